// Carillon · ScheduleSQL.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The longer statements of ``ScheduleStore``.
enum ScheduleSQL {
    /// Whether the schedule `s` brings a snoozed notification back.
    ///
    /// - Parameter id: the expression of its id.
    static func isSnooze(of id: String) -> String { "starts_with(s.job_id, 'snooze:' || \(id) || ':')" }

    /// Whether the job id of the new schedule `n` is free: no job with it waits for the other kind
    /// of time, a single moment or local times.
    ///
    /// A page of a broadcast is not checked: its id was taken when the broadcast was stored.
    private static let isFree = """
        (n.part LIKE '% %' OR NOT EXISTS (
            SELECT FROM carillon.schedules s
            WHERE s.org_id = n.org_id AND s.job_id = n.job_id AND s.cron IS NULL AND (s.part = '') <> (n.part = '')
        ))
        """

    static let add = ScheduleColumns.insert() + " WHERE \(Self.isFree) ON CONFLICT DO NOTHING RETURNING id"

    /// $18: organisation, $19: its limit.
    static let put =
        ScheduleColumns.insert() + """

             WHERE \(Self.isFree) AND (SELECT count(*) FROM (
                SELECT FROM carillon.schedules WHERE org_id = $18 AND source = 'api' LIMIT $19
            ) own) < $19
            ON CONFLICT DO NOTHING
            """

    static let content = "SELECT content FROM carillon.schedules WHERE id = $1"

    /// The new schedules whose id belongs to a job that was scheduled with other content, or for
    /// another kind of time.
    static let conflicts = """
        SELECT (n.ordinal - 1)::int4
        FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS n (id, org_id, job_id, part, content, ordinal)
        WHERE EXISTS (
            SELECT FROM carillon.schedules s
            WHERE s.org_id = n.org_id AND s.job_id = n.job_id AND s.part = n.part AND s.cron IS NULL
                AND s.content <> n.content
        ) OR NOT \(Self.isFree) AND NOT EXISTS (SELECT FROM carillon.schedules o WHERE o.id = n.id)
        """

    /// Whether a row is an event, which cannot be stored as cancelled.
    ///
    /// An event has no parts. So the fields of parts, which may name a thousand users, are not
    /// read.
    ///
    /// - Parameter row: an alias with `part` and `fields`.
    private static func isEvent(_ row: String) -> String {
        "CASE WHEN \(row).part = '' THEN \(FieldsColumn.isEvent("\(row).fields")) ELSE false END"
    }

    /// Wakes schedules whose job was cancelled before, and removes those that are events.
    ///
    /// A cancelled entry also cancels the job's own id, because a broadcast fires as another entry.
    /// A source without a slash, such as `api`, is no entry, but may be the id of another job.
    ///
    /// $1: ids of new schedules.
    static let endCancelled = """
        WITH cancelled AS MATERIALIZED (
            SELECT s.id, s.org_id, s.job_id, x.at, \(Self.isEvent("s")) AS is_event
            FROM carillon.schedules s
            CROSS JOIN LATERAL (
                SELECT max(c.at) AS at FROM carillon.cancellations c
                WHERE c.org_id = s.org_id AND c.job_id = ANY (ARRAY[
                    s.job_id, CASE WHEN s.source LIKE '%/%' THEN s.source END, split_part(s.source, '/', 2)])
            ) x
            WHERE s.id = ANY($1) AND s.cron IS NULL AND x.at IS NOT NULL
        ),
        named AS (
            INSERT INTO carillon.cancellations (org_id, job_id, at)
            SELECT c.org_id, c.job_id, max(c.at) FROM cancelled c WHERE c.job_id IS NOT NULL
            GROUP BY c.org_id, c.job_id ORDER BY c.org_id, c.job_id
            ON CONFLICT (org_id, job_id) DO NOTHING
        ),
        removed AS (
            DELETE FROM carillon.schedules s USING cancelled c WHERE s.id = c.id AND s.attempts = 0 AND c.is_event
        )
        UPDATE carillon.schedules s SET wake_at = now() FROM cancelled c
        WHERE s.id = c.id AND s.attempts = 0 AND s.wake_at > now() AND NOT c.is_event
        """

    /// Whether a row is a page of a broadcast; as a literal, so that `schedules_pages` serves it.
    static let isPage = "part LIKE '% %'"
    /// Whether a row is any other job, by the index `schedules_due`.
    static let isJob = "part NOT LIKE '% %'"

    /// $1: lane, $2: now.
    static let duePage = """
        SELECT FROM carillon.schedules WHERE lane = $1 AND wake_at <= $2 AND \(Self.isPage) ORDER BY wake_at LIMIT 1
        """

    /// Claims due schedules.
    ///
    /// Jobs of all organisations come in the order of their moments.
    ///
    /// `attempts` counts only the first claim and whether there was another, because the turn of a
    /// schedule that is claimed with others may never come.
    ///
    /// While a lane is full, pages of cancelled broadcasts are found through their broadcasts,
    /// because hundreds of thousands of other pages may be due. The order by part keeps the planner
    /// off the index of due pages.
    ///
    /// $1: lane, $2: now, $3: end of the claim, $4: whether the lane has room for other pages.
    static let claim = """
        UPDATE carillon.schedules s
        SET wake_at = $3, attempts = CASE s.attempts WHEN 0 THEN 1 ELSE greatest(s.attempts, 2) END
        WHERE s.id = ANY(ARRAY(
            SELECT id FROM carillon.schedules
            WHERE lane = $1 AND wake_at <= $2 AND \(Self.isJob)
            ORDER BY wake_at LIMIT \(ScheduleStore.claimSize) FOR UPDATE SKIP LOCKED
        ) || ARRAY(
            SELECT id FROM carillon.schedules
            WHERE $4 AND lane = $1 AND wake_at <= $2 AND \(Self.isPage)
            ORDER BY wake_at LIMIT \(ScheduleStore.pageClaimSize) FOR UPDATE SKIP LOCKED
        ) || ARRAY(
            SELECT p.id FROM carillon.broadcasts b CROSS JOIN LATERAL (
                SELECT id FROM carillon.schedules
                WHERE org_id = b.org_id AND job_id = b.job_id AND cron IS NULL
                    AND lane = $1 AND wake_at <= $2 AND \(Self.isPage)
                ORDER BY part LIMIT \(ScheduleStore.pageClaimSize) FOR UPDATE SKIP LOCKED
            ) p
            WHERE NOT $4 AND b.state IN ('cancelling', 'cancelled') LIMIT \(ScheduleStore.pageClaimSize)
        ))
        RETURNING \(ScheduleColumns.list)
        """

    /// Marks due pages of recurring schedules as held, by a `created_at` after their moment.
    ///
    /// A page wakes at its moment or later, so the index limits the search to pages that are not
    /// missed yet.
    ///
    /// $1: lane, $2: now, $3: least moment, $4: limit.
    static let holdPages = """
        UPDATE carillon.schedules s SET created_at = $2
        WHERE s.id = ANY(ARRAY(
            SELECT id FROM carillon.schedules
            WHERE lane = $1 AND wake_at >= $3 AND wake_at <= $2 AND due_at >= $3 AND due_at < $2
                AND created_at <= due_at AND \(Self.isPage) AND source LIKE '\(Keyspace.schedules)/%'
            ORDER BY wake_at LIMIT $4 FOR UPDATE SKIP LOCKED
        ))
        """

    /// $1: id, $2: attempts when it was claimed, $3: number.
    static let beginAlone = """
        UPDATE carillon.schedules SET attempts = least($2 + 1, 30000)::smallint WHERE id = $1 AND number = $3
        """

    /// Extends claims.
    ///
    /// $1: ids, $2: numbers, $3: current occurrences, $4: end of the claims.
    static let extendClaims = """
        UPDATE carillon.schedules s SET wake_at = $4
        FROM unnest($1, $2, $3) AS n (id, number, due)
        WHERE s.id = n.id AND s.number = n.number AND s.due_at = n.due AND s.wake_at IS NOT NULL
        """

    /// The counts of schedules that still exist, with their broadcasts.
    ///
    /// A schedule given with fields counts only if it still has them and is not being fired.
    ///
    /// $1: ids, $2: numbers, $3, $4: pages, $5: reasons, $6: users, $7: fields or nulls.
    private static let outcomes = """
        SELECT b.id AS broadcast, n.part, n.page, n.reason, n.users
        FROM unnest($1, $2, $3, $4, $5, $6, $7) AS n (id, number, part, page, reason, users, fields)
        JOIN carillon.schedules s ON s.id = n.id AND s.number = n.number AND (
            n.fields IS NULL
            OR s.fields = n.fields::jsonb AND (s.attempts > 0 AND s.wake_at > now()) IS NOT TRUE
        )
        JOIN carillon.broadcasts b ON b.org_id = s.org_id AND b.job_id = s.job_id
        """

    /// Locks schedules that are counted, so that no dispatcher claims them meanwhile.
    ///
    /// $1: ids.
    static let lock = "SELECT FROM carillon.schedules WHERE id = ANY($1) ORDER BY id FOR UPDATE"

    /// Locks the pages of ``countOutcomes``, in one order for all dispatchers.
    ///
    /// $1 to $7: as in ``outcomes``.
    static let lockPages = """
        SELECT FROM carillon.broadcast_pages p
        WHERE (p.broadcast, p.part, p.number) IN (SELECT r.broadcast, r.part, r.page FROM (\(Self.outcomes)) r)
        ORDER BY p.broadcast, p.part, p.number FOR NO KEY UPDATE
        """

    /// Adds users to the stored ones of pages, or to the counts by reason.
    ///
    /// The counts by reason of each page change, because its users leave `scheduled`.
    ///
    /// $1 to $7: as in ``outcomes``.
    static let countOutcomes = """
        WITH outcomes AS (
            SELECT r.broadcast, r.part, r.page, r.reason, sum(r.users) AS users FROM (\(Self.outcomes)) r
            GROUP BY r.broadcast, r.part, r.page, r.reason
        ), pages AS (
            SELECT o.broadcast, o.part, o.page,
                coalesce(sum(o.users) FILTER (WHERE o.reason = '\(ScheduleStore.stored)'), 0)::int4 AS stored,
                jsonb_object_agg(o.reason, o.users) FILTER (WHERE o.reason <> '\(ScheduleStore.stored)') AS others
            FROM outcomes o GROUP BY o.broadcast, o.part, o.page
        )
        UPDATE carillon.broadcast_pages p SET
            stored = p.stored + n.stored,
            counted = p.counted || (
                SELECT jsonb_object_agg(e.key, coalesce((p.counted ->> e.key)::int8, 0) + e.value::int8)
                FROM jsonb_each_text(n.others) e
            )
        FROM pages n WHERE p.broadcast = n.broadcast AND p.part = n.part AND p.number = n.page
        """

    /// Advances schedules, but not a job that a cancellation woke before it was due.
    ///
    /// $1: ids, $2: current occurrences, $3: next ones, $4, $5: days and minutes of these, $6: when
    /// they fired, or nulls, $7: when they are inspected next.
    static let advance = """
        UPDATE carillon.schedules s SET due_at = n.due, wake_at = n.wake, wall_day = n.day, wall_minutes = n.minutes,
            last_fired_at = coalesce(n.fired, s.last_fired_at),
            attempts = CASE WHEN n.wake > n.due THEN s.attempts ELSE 0 END
        FROM unnest($1, $2, $3, $4, $5, $6, $7) AS n (id, was, due, day, minutes, fired, wake)
        WHERE s.id = n.id AND s.due_at = n.was AND s.state = 'waiting'
            AND (s.cron IS NOT NULL OR s.wake_at >= s.due_at)
        RETURNING s.id
        """

    /// $1: last id, $2: now, $3: limit.
    static let zoned = """
        SELECT \(ScheduleColumns.listWithoutFields) FROM carillon.schedules s
        WHERE s.zone IS NOT NULL AND s.zone <> 'recipient' AND s.id > $1 AND (s.due_at > $2 OR s.state = 'failed')
        ORDER BY s.id LIMIT $3
        """

    /// Counts the failed schedules that have not ended, up to a bound.
    ///
    /// Only failed schedules lack `wake_at`, so the index `schedules_due` finds them.
    ///
    /// $1: now, $2: bound.
    static let failed = """
        SELECT count(*) FROM (
            SELECT FROM carillon.schedules
            WHERE lane IN (\(Lane.allCases.map { "\($0.rank)" }.joined(separator: ", "))) AND wake_at IS NULL
                AND \(Self.isJob) AND state = 'failed' AND (ends_at IS NULL OR ends_at > $1)
            LIMIT $2
        ) f
        """

    /// Makes the waiting rows of a page of a job due now, or removes its event.
    ///
    /// $1: organisation, $2: job id, $3: least part, $4: limit, $5: when. Row: the number of rows
    /// in the page, the part of the last one, and the number of events.
    static let endPage = """
        WITH page AS MATERIALIZED (
            SELECT s.id, s.part, \(Self.isEvent("s")) AS is_event FROM carillon.schedules s
            WHERE s.org_id = $1 AND s.job_id = $2 AND s.cron IS NULL AND s.part >= $3 ORDER BY s.part LIMIT $4
        ), woken AS (
            UPDATE carillon.schedules s SET wake_at = $5 FROM page p
            WHERE s.id = p.id AND s.wake_at > $5 AND s.attempts = 0 AND NOT p.is_event
        ), removed AS (
            DELETE FROM carillon.schedules s USING page p WHERE s.id = p.id AND s.attempts = 0 AND p.is_event
            RETURNING s.id
        )
        SELECT count(*), max(part), (SELECT count(*) FROM removed) FROM page
        """

    /// Finds rows of jobs whose ids lie between two others.
    ///
    /// $1: organisation, $2, $3: job ids, $4: limit. Rows: id, number, part, and the number of
    /// users if it is a page of a broadcast, else 0.
    static let parts = """
        SELECT id, number, part, CASE WHEN \(Self.isPage) THEN coalesce((
            SELECT json_array_length((f ->> 1)::json) FROM jsonb_array_elements(fields) f
            WHERE f ->> 0 = 'users' LIMIT 1
        ), 0) ELSE 0 END
        FROM carillon.schedules
        WHERE org_id = $1 AND job_id > $2 AND job_id < $3 AND cron IS NULL LIMIT $4
        """

    /// $1: organisation, $2: job ids.
    static let count = """
        SELECT count(*) FROM carillon.schedules WHERE org_id = $1 AND job_id = ANY($2) AND cron IS NULL
        """

    /// The ids of the waiting jobs that came from these entries, except the ids in $3.
    ///
    /// $1: organisation, $2: entries with their streams, $3: ids, $4 and $5: the least and the
    /// greatest id of their schedules.
    static let owners = """
        SELECT DISTINCT w.job_id FROM unnest($2) AS e (name)
        CROSS JOIN LATERAL (
            SELECT s.job_id FROM carillon.schedules s
            WHERE s.id BETWEEN $4 AND $5 AND s.org_id = $1 AND s.source = e.name AND s.cron IS NULL LIMIT 1
        ) w
        WHERE w.job_id <> ALL ($3)
            AND NOT EXISTS (SELECT FROM carillon.broadcasts b WHERE b.org_id = $1 AND b.job_entry = e.name)
        """

    /// Leaves out the pages of broadcasts, which may be hundreds of thousands.
    ///
    /// $1: last id, $2: organisation or null, $3: limit.
    static let page = """
        SELECT \(ScheduleColumns.list) FROM carillon.schedules s
        WHERE s.id > $1 AND ($2::text IS NULL OR s.org_id = $2) AND s.part NOT LIKE '% %' ORDER BY s.id LIMIT $3
        """

    /// Reads a page of schedules for several users, with the fields of those that may name a user.
    ///
    /// The page bounds how many fields are unpacked at a time.
    ///
    /// $1: user, $2: last id. Rows: id, number, part and fields.
    static let naming = """
        WITH page AS MATERIALIZED (
            SELECT id, number, part, fields FROM carillon.schedules
            WHERE user_id IS NULL AND id > $2 ORDER BY id LIMIT 1000
        )
        SELECT s.id, s.number, s.part, CASE WHEN \(FieldsErasure.mayName("$1", in: "s.fields")) THEN s.fields END
        FROM page s ORDER BY s.id
        """
}
