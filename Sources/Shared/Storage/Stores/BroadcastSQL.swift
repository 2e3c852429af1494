// Carillon · BroadcastSQL.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The statements of ``BroadcastStore``.
enum BroadcastSQL {
    /// How long a claim holds without renewal.
    private static let claim = "now() + interval '30 seconds'"
    /// How long a claim to count an audience holds: longer than the count, which has 60 s.
    private static let countingClaim = "now() + interval '90 seconds'"
    /// Whether a broadcast, of the alias `b`, is an event.
    private static let isEvent = FieldsColumn.isEvent("b.fields")
    /// Whether a full lane holds a broadcast, of the alias `b`; ``markHeld`` renews it every 4 s.
    private static let isHeld = "b.held_at > now() - interval '10 seconds'"

    /// The fields that two jobs with one id must share: all but the trace context and the fields
    /// that scheduling adds or removes.
    private static func content(_ fields: String) -> String {
        Self.others("'traceparent', 'id', 'deliver_at'", in: fields)
    }

    /// The fields except those with these names, sorted.
    private static func others(_ names: String, in fields: String) -> String {
        "(SELECT jsonb_agg(f ORDER BY f) FROM jsonb_array_elements(\(fields)) f WHERE f ->> 0 NOT IN (\(names)))"
    }

    /// Stores a broadcast and its chains unless its entry or job id is known.
    ///
    /// A failed broadcast whose dead letter is replayed continues where it stopped. Its
    /// `created_at` is renewed, but not if it has local times, whose day stays. It is found by its
    /// entry, because its id is a hash of the fields, which change when a user is erased from
    /// `except`.
    ///
    /// $1: id, $2: organisation, $3: job, $4: entry, $5: stream, $6: fields, $7: topic, $8: lane,
    /// $9: urgency, $10: when. Rows: id, state and whether the content differs; $1 as the id if the
    /// entry is known.
    static let add = """
        WITH given AS (SELECT $2::text AS org_id, $3::text AS job_id, $4::text AS job_entry),
        known AS (
            SELECT b.id, b.state FROM carillon.broadcasts b
            WHERE b.org_id = $2 AND b.job_entry = $4
                AND \(Self.others("'except'", in: "b.fields")) IS NOT DISTINCT FROM
                    \(Self.others("'except'", in: "$6::jsonb"))
        ),
        revived AS (
            UPDATE carillon.broadcasts b
            SET state = 'expanding', reason = NULL, created_at = CASE
                WHEN b.fields @> '[["deliver_local"]]' THEN b.created_at ELSE greatest(b.created_at, $10) END
            FROM known k WHERE b.id = k.id AND b.state = 'failed'
        ),
        fresh AS (
            INSERT INTO carillon.broadcasts (id, org_id, job_id, job_entry, stream, fields, topic, lane, urgency, state,
                created_at)
            SELECT $1, i.org_id, i.job_id, i.job_entry, $5, $6, $7, $8, $9,
                CASE WHEN \(CancellationSQL.isCancelled("i")) THEN 'cancelled' ELSE 'counting' END, $10
            FROM given i WHERE NOT EXISTS (SELECT FROM known)
            ON CONFLICT DO NOTHING
            RETURNING id, state
        ),
        chains AS (
            INSERT INTO carillon.broadcast_chains (broadcast, part) SELECT id, part FROM fresh, generate_series(0, 15) part
        )
        SELECT $1::uuid, state, false FROM known
        UNION ALL
        SELECT id, state, false FROM fresh
        UNION ALL
        SELECT b.id, b.state, b.id <> $1 AND \(Self.content("b.fields")) IS DISTINCT FROM \(Self.content("$6::jsonb"))
        FROM carillon.broadcasts b WHERE b.org_id = $2 AND b.job_id = $3
        """

    // MARK: Expanding

    /// How many of the oldest broadcasts share turns; a claim sorts all their free chains.
    private static let mostSharing = 200
    /// Whether a broadcast, of the alias `b`, expands, and is an event or in a lane to take.
    private static let isWanted = "b.state = 'expanding' AND (b.lane <> ALL ($2) OR \(Self.isEvent))"
    /// Whether a chain, of the alias `c`, is free.
    private static let isFree = "NOT c.is_done AND (c.claimed_until IS NULL OR c.claimed_until < now())"

    /// The oldest broadcasts with free chains: first of the organisations after $3, then of the
    /// others.
    ///
    /// The inner limit comes before the search for free chains, which would take long for thousands
    /// of broadcasts. Few have none: their chains are taken, or have just ended.
    private static let sharing = """
        (
            SELECT s.* FROM (
                SELECT b.id, b.urgency, b.org_id <= $3 AS had_turn, b.org_id FROM carillon.broadcasts b
                WHERE \(Self.isWanted)
                ORDER BY b.urgency, b.org_id <= $3, b.org_id, b.id LIMIT \(2 * Self.mostSharing)
            ) s
            WHERE EXISTS (SELECT FROM carillon.broadcast_chains c WHERE c.broadcast = s.id AND \(Self.isFree))
            ORDER BY s.urgency, s.had_turn, s.org_id, s.id LIMIT \(Self.mostSharing)
        )
        """

    /// Claims the most urgent free chain: within a lane a chain of the oldest broadcast.
    ///
    /// $1: dispatcher, $2: lanes whose notifications to leave out. Rows: part, pages, reached, and
    /// the columns of the broadcast.
    static let claimOldest = Self.claimStatement(
        from: "carillon.broadcasts", where: Self.isWanted, order: "b.urgency, b.id, c.part")

    /// Claims the most urgent free chain: within a lane that of the next organisation which had the
    /// fewest turns of eight pages, among the organisation's oldest broadcasts.
    ///
    /// Another statement than ``claimOldest``, because only the fewest turns need a sort of many
    /// free chains.
    ///
    /// $1, $2 and rows: as in ``claimOldest``, $3: the organisation that had the last turn.
    static let claimInTurn = Self.claimStatement(
        from: Self.sharing, where: "true",
        order: "b.urgency, b.had_turn, b.org_id, c.pages / 8, b.id, c.part")

    private static func claimStatement(
        from broadcasts: String, where condition: String, order: String
    ) -> String {
        """
        WITH candidate AS (
            SELECT c.broadcast, c.part
            FROM \(broadcasts) b
            JOIN carillon.broadcast_chains c ON c.broadcast = b.id
            WHERE \(condition) AND \(Self.isFree)
            ORDER BY \(order)
            LIMIT 1 FOR UPDATE OF c SKIP LOCKED
        ),
        claimed AS (
            UPDATE carillon.broadcast_chains c SET claimed_by = $1, claimed_until = \(Self.claim)
            FROM candidate x WHERE c.broadcast = x.broadcast AND c.part = x.part
            RETURNING c.broadcast, c.part, c.pages, c.reached
        )
        SELECT c.part::int4, c.pages, c.reached, \(Self.columns)
        FROM claimed c JOIN carillon.broadcasts b ON b.id = c.broadcast
        """
    }

    /// $1: broadcast, $2: part, $3: dispatcher.
    static let releaseChain = """
        UPDATE carillon.broadcast_chains SET claimed_by = NULL, claimed_until = NULL
        WHERE broadcast = $1 AND part = $2 AND claimed_by = $3
        """

    /// The next users of a part of everyone.
    ///
    /// $1: part, $2: last user, $3: limit.
    static let users = """
        SELECT u.user_id FROM carillon.users u
        WHERE (hashtextextended(u.user_id, 0) & 15) = $1 AND u.user_id COLLATE "C" > $2
        ORDER BY u.user_id COLLATE "C" LIMIT $3
        """

    /// The next subscribers of a part of a topic.
    ///
    /// $1 to $3: as in ``users``, $4: topic.
    static let subscribers = """
        SELECT s.user_id FROM carillon.subscriptions s
        WHERE s.topic = $4 AND (hashtextextended(s.user_id, 0) & 15) = $1 AND s.user_id COLLATE "C" > $2
        ORDER BY s.user_id COLLATE "C" LIMIT $3
        """

    /// Writes a page's row before its notifications; fails if the broadcast no longer expands.
    ///
    /// Locks the row of the broadcast, so that ``markHeld`` skips it.
    ///
    /// $1: broadcast, $2: part, $3: number, $4: selected, $5: stored, $6: counted.
    static let page = """
        INSERT INTO carillon.broadcast_pages (broadcast, part, number, selected, stored, counted, at)
        VALUES ($1, $2, $3, $4, $5, $6,
            (SELECT now() FROM carillon.broadcasts b WHERE b.id = $1 AND b.state = 'expanding' FOR SHARE))
        """

    /// Advances a chain.
    ///
    /// If two dispatchers both believe that they own the chain, the row lock orders them, and the
    /// second fails on the page. A finished chain names no user.
    ///
    /// $1: broadcast, $2: part, $3: number, $4: until, $5: whether it was the last page.
    static let advance = """
        UPDATE carillon.broadcast_chains
        SET pages = $3 + 1, reached = CASE WHEN $5 THEN '' ELSE $4 END, is_done = $5, claimed_until = \(Self.claim)
        WHERE broadcast = $1 AND part = $2
        """

    /// Finishes a chain whose last page selects no user, so that small audiences cost few rows.
    ///
    /// Does nothing if another dispatcher has stored a page meanwhile.
    ///
    /// $1: broadcast, $2: part, $3: number.
    static let end = """
        UPDATE carillon.broadcast_chains SET reached = '', is_done = true
        WHERE broadcast = $1 AND part = $2 AND pages = $3
        """

    /// Recounts a page, because some users already had a notification of the same job: they count
    /// as `duplicate`, like users for whom a digest had gathered it.
    ///
    /// $1: broadcast, $2: part, $3: number, $4, $5: users and ids.
    static let recount = """
        WITH kept AS (
            SELECT count(*)::int4 AS n FROM unnest($4, $5) AS k (user_id, id)
            CROSS JOIN LATERAL (
                SELECT FROM carillon.notifications x WHERE x.user_id = k.user_id AND x.id = k.id
            ) found
        )
        UPDATE carillon.broadcast_pages p
        SET stored = kept.n, counted = p.counted || jsonb_build_object(
            'duplicate', coalesce((p.counted ->> 'duplicate')::int4, 0) + p.stored - kept.n)
        FROM kept WHERE p.broadcast = $1 AND p.part = $2 AND p.number = $3
        """

    /// Ends the broadcasts whose chains are finished, and deletes the chains.
    static let finish = """
        WITH ended AS (
            UPDATE carillon.broadcasts b SET state = 'done'
            WHERE b.state = 'expanding'
                AND NOT EXISTS (SELECT FROM carillon.broadcast_chains c WHERE c.broadcast = b.id AND NOT c.is_done)
            RETURNING b.id
        )
        DELETE FROM carillon.broadcast_chains c USING ended e WHERE c.broadcast = e.id
        """

    /// Records that the broadcasts of a lane wait for room, and moves their `created_at` on by that
    /// time.
    ///
    /// So times to live stand still meanwhile, except for jobs with local times. Skips broadcasts
    /// whose pages are being stored, because they are not waiting. Several indexes have
    /// `created_at`, so this writes at most every 4 s, however often it is called.
    ///
    /// $1: lane.
    static let markHeld = """
        WITH waiting AS (
            SELECT b.id FROM carillon.broadcasts b WHERE b.state = 'expanding' AND b.lane = $1
                AND NOT \(Self.isEvent)
                AND (b.held_at IS NULL OR b.held_at < now() - interval '4 seconds')
            ORDER BY b.id FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE carillon.broadcasts b
        SET held_at = now(), created_at = CASE
            WHEN \(Self.isHeld) AND NOT b.fields @> '[["deliver_local"]]'
            THEN b.created_at + (now() - b.held_at) ELSE b.created_at END
        FROM waiting x WHERE b.id = x.id
        """

    /// $1: broadcast, $2: reason.
    static let fail = """
        UPDATE carillon.broadcasts SET state = 'failed', reason = $2 WHERE id = $1 AND state = 'expanding'
        """

    // MARK: Counting and withdrawing

    /// Claims a broadcast in a state that one dispatcher works on.
    ///
    /// $1: dispatcher, $2: state, $3: broadcasts to leave out.
    static let claimBroadcast = """
        WITH candidate AS (
            SELECT b.id FROM carillon.broadcasts b
            WHERE b.state IN ('counting', 'expanding', 'cancelling') AND b.state = $2
                AND (b.claimed_until IS NULL OR b.claimed_until < now() OR b.claimed_by = $1)
                AND b.id <> ALL ($3)
            ORDER BY b.urgency, b.id LIMIT 1 FOR UPDATE SKIP LOCKED
        )
        UPDATE carillon.broadcasts b SET claimed_by = $1,
            claimed_until = CASE WHEN b.state = 'counting' THEN \(Self.countingClaim) ELSE \(Self.claim) END
        FROM candidate x WHERE b.id = x.id
        RETURNING \(Self.columns)
        """

    /// The size of an audience, up to a bound.
    ///
    /// $1: topic or null, $2: bound.
    static let size = """
        SELECT CASE WHEN $1::text IS NULL
            THEN (SELECT count(*) FROM (SELECT FROM carillon.users LIMIT $2) u)
            ELSE (SELECT count(*) FROM (SELECT FROM carillon.subscriptions WHERE topic = $1 LIMIT $2) s) END
        """

    /// $1: broadcast, $2: size, $3: next state.
    static let counted = """
        UPDATE carillon.broadcasts SET audience = $2, state = $3, claimed_by = NULL, claimed_until = NULL
        WHERE id = $1 AND state = 'counting'
        """

    /// Records a page whose notifications ``CancellationSQL/cancelPage`` cancels, in the same
    /// statement.
    static let withdrawn = """
        noted AS (
            UPDATE carillon.broadcasts o
            SET withdrawn_to = CASE WHEN $6 THEN '' ELSE $5 END,
                withdrawn = o.withdrawn + (SELECT count(*) FROM changed), claimed_until = \(Self.claim),
                state = CASE WHEN $6 THEN 'cancelled' ELSE o.state END
            WHERE o.id = $4 AND o.state = 'cancelling'
        )
        """

    // MARK: Reading and steering

    /// The columns of a broadcast, of the alias `b`.
    static let columns = """
        b.id, b.org_id, b.job_id, b.job_entry, b.stream, b.fields, b.topic, b.lane, b.state, b.reason, b.audience, \
        b.created_at, b.withdrawn_to, b.withdrawn
        """

    /// The number of ``columns``.
    static let columnCount = 14

    private static let progress = """
        \(Self.columns), coalesce(b.state = 'expanding' AND \(Self.isHeld), false),
            c.done, p.pages, p.selected, p.stored, p.counted
        """

    /// A broadcast without chains has finished them all.
    ///
    /// Reads each page once: a page yields a row for each of its reasons, or one row without any.
    private static let progressJoins = """
        CROSS JOIN LATERAL (
            SELECT CASE WHEN count(*) = 0 THEN 16 ELSE count(*) FILTER (WHERE is_done) END AS done
            FROM carillon.broadcast_chains WHERE broadcast = b.id
        ) c
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(r.pages), 0)::int8 AS pages, coalesce(sum(r.selected), 0)::int8 AS selected,
                coalesce(sum(r.stored), 0)::int8 AS stored,
                coalesce(jsonb_object_agg(r.key, r.users) FILTER (WHERE r.users > 0), '{}'::jsonb) AS counted
            FROM (
                SELECT e.key, sum(e.value::int8) AS users,
                    count(*) FILTER (WHERE coalesce(e.number, 1) = 1) AS pages,
                    sum(g.selected) FILTER (WHERE coalesce(e.number, 1) = 1) AS selected,
                    sum(g.stored) FILTER (WHERE coalesce(e.number, 1) = 1) AS stored
                FROM carillon.broadcast_pages g
                LEFT JOIN LATERAL jsonb_each_text(g.counted) WITH ORDINALITY e (key, value, number) ON true
                WHERE g.broadcast = b.id GROUP BY e.key
            ) r
        ) p
        """

    /// $1: organisation, $2: job ids, $3: entries.
    static let find = """
        SELECT \(Self.progress) FROM carillon.broadcasts b \(Self.progressJoins)
        WHERE b.org_id = $1 AND (b.job_id = ANY($2) OR b.job_entry = ANY($3)) ORDER BY b.id DESC LIMIT 1
        """

    /// $1: entry.
    static let ofEntry = "SELECT FROM carillon.broadcasts WHERE job_entry = $1 LIMIT 1"

    /// Lists broadcasts, newest first.
    ///
    /// The state is a literal, because the index `broadcasts_state` leaves out those that are done.
    ///
    /// $1: upper bound of ids, $2: limit.
    static func list(_ state: Broadcast.State?) -> String {
        let condition = state.map { " AND x.state = '\($0.rawValue)'" } ?? ""
        return """
            SELECT \(Self.progress)
            FROM (
                SELECT * FROM carillon.broadcasts x WHERE x.id < $1\(condition) ORDER BY x.id DESC LIMIT $2
            ) b \(Self.progressJoins)
            ORDER BY b.id DESC
            """
    }

    /// Counts the broadcasts that only an operator can move on, by state, up to a bound.
    ///
    /// $1: bound.
    static let waiting = """
        SELECT w.state, count(*) FROM (
            SELECT state FROM carillon.broadcasts
            WHERE state IN ('awaiting_confirmation', 'paused', 'failed') LIMIT $1
        ) w GROUP BY w.state
        """

    /// Changes the state if it is one of $3.
    ///
    /// A broadcast may be confirmed or resumed days later, so its times to live begin then. With
    /// local times, times to live count from these, so a resumed broadcast keeps its day. Resuming
    /// a failed broadcast removes its dead letter, as replaying the letter does.
    ///
    /// $1: broadcast, $2: new state, $3: allowed states.
    static let transition = """
        WITH removed AS (
            DELETE FROM carillon.dead_letters d USING carillon.broadcasts b
            WHERE b.id = $1 AND b.state = 'failed' AND b.state = ANY($3) AND $2 = 'expanding'
                AND d.stream = b.stream AND d.entry = substr(b.job_entry, length(b.stream) + 2)
        )
        UPDATE carillon.broadcasts
        SET state = CASE WHEN $2 = 'expanding' AND audience IS NULL THEN 'counting' ELSE $2 END,
            created_at = CASE
                WHEN $2 = 'expanding' AND (state = 'awaiting_confirmation' OR NOT fields @> '[["deliver_local"]]')
                THEN greatest(created_at, now()) ELSE created_at END,
            reason = CASE WHEN $2 = 'expanding' THEN NULL ELSE reason END,
            withdrawn_to = '', claimed_by = NULL, claimed_until = NULL
        WHERE id = $1 AND state = ANY($3)
        """

    /// Removes a user from the exclusions of jobs and from the positions of chains, a batch of rows
    /// at a time.
    ///
    /// An unfinished chain falls back to the user before the erased one, so that it repeats no
    /// user.
    ///
    /// $1: user, $2: limit.
    static let forgetUser = [
        """
        UPDATE carillon.broadcasts b SET fields = (
            SELECT jsonb_agg(CASE WHEN e.f ->> 0 = 'except'
                    THEN jsonb_build_array('except', ((e.f ->> 1)::jsonb - $1::text)::text) ELSE e.f END ORDER BY e.n)
            FROM jsonb_array_elements(b.fields) WITH ORDINALITY e (f, n)
            WHERE CASE WHEN e.f ->> 0 = 'except' THEN (e.f ->> 1)::jsonb - $1::text <> '[]' ELSE true END
        )
        WHERE b.id = ANY (ARRAY (
            SELECT x.id FROM carillon.broadcasts x
            WHERE x.fields @> '[["except"]]' AND carillon.excluded_users(x.fields) ? $1::text LIMIT $2
        ))
        """,
        """
        UPDATE carillon.broadcast_chains c
        SET reached = CASE WHEN c.is_done THEN '' ELSE coalesce((
            SELECT u.user_id FROM carillon.users u
            WHERE (hashtextextended(u.user_id, 0) & 15) = c.part AND u.user_id COLLATE "C" < $1
            ORDER BY u.user_id COLLATE "C" DESC LIMIT 1
        ), '') END
        WHERE (c.broadcast, c.part) IN (
            SELECT x.broadcast, x.part FROM carillon.broadcast_chains x
            WHERE x.reached = $1 AND x.reached <> '' LIMIT $2
        ) AND c.reached = $1
        """,
    ]

    /// Deletes ended broadcasts that were created before a moment, with their pages; the oldest
    /// first.
    ///
    /// Keeps broadcasts with users who wait for their local time, because the firing updates their
    /// counts.
    ///
    /// A subquery, because PostgreSQL may turn NOT EXISTS into a join that reads all schedules.
    ///
    /// Estimates the pages: each has up to 1,000 users, and the last of each of the 16 chains may
    /// have fewer.
    ///
    /// $1: moment, $2: limit, $3: the most pages of several broadcasts.
    static let forget = """
        DELETE FROM carillon.broadcasts WHERE id = ANY (ARRAY (
            SELECT id FROM (
                SELECT b.id, b.pages, sum(b.pages) OVER (ORDER BY b.created_at, b.id) AS total
                FROM (
                    SELECT e.id, e.created_at, coalesce(e.audience, 0) / 1000 + 16 AS pages FROM carillon.broadcasts e
                    WHERE e.created_at < $1 AND e.state IN ('done', 'cancelled', 'failed') AND (
                        SELECT true FROM carillon.schedules s
                        WHERE s.org_id = e.org_id AND s.job_id = e.job_id AND s.cron IS NULL LIMIT 1
                    ) IS NULL
                    ORDER BY e.created_at LIMIT $2
                ) b
            ) old
            WHERE total <= $3 OR total = pages
        ))
        """
}
