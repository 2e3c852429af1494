// Carillon · NotificationSQL.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The statements of ``NotificationStore``.
enum NotificationSQL {
    /// Locks inboxes, and creates the missing ones.
    ///
    /// Locks or creates one row after the other. `WHERE false` locks a row without writing it. The
    /// lock makes a batch that stores nothing wait for a synchronous standby.
    ///
    /// $1: users in byte order, so that two batches never deadlock.
    static let makeInboxes = """
        WITH fresh AS (
            INSERT INTO carillon.inboxes AS b (user_id, version)
            SELECT unnest($1), \(EpochSQL.base)
            ON CONFLICT (user_id) DO UPDATE SET version = b.version WHERE false
            RETURNING user_id
        )
        INSERT INTO carillon.users (user_id) SELECT user_id FROM fresh ON CONFLICT DO NOTHING
        """

    /// Locks inboxes in byte order of user, as everywhere.
    ///
    /// $1: users.
    static let lockInboxes = """
        SELECT FROM carillon.inboxes WHERE user_id = ANY($1) ORDER BY user_id COLLATE "C" FOR UPDATE
        """

    /// The rows of equally long arrays, the parameters `$1` to `$n`, as a table with `names`.
    ///
    /// `unnest` in the list of columns makes one row after the other; in FROM it first copies all
    /// into a temporary store, which takes three times as long.
    static func rows(_ names: String...) -> String { self.rows(zip(names, 1...).map { ($0, "$\($1)") }) }

    private static func rows(_ columns: [(name: String, parameter: String)]) -> String {
        "(SELECT " + columns.map { "unnest(\($0.parameter)) AS \($0.name)" }.joined(separator: ", ") + ")"
    }

    private static let columns = NotificationColumns.inserted

    /// The parameter with this number, from 1, after those of the columns.
    private static func parameter(_ offset: Int) -> String { "$\(Self.columns.count + offset)" }

    /// Raises the inboxes, creates those that are missing, and inserts a batch of new
    /// notifications.
    ///
    /// One statement suffices: raising an inbox locks it until the commit, in the order of the
    /// users. So the order of versions is the order of commits, and the raised row has the version
    /// and the unread count.
    ///
    /// Parameters after those of the columns:
    /// 1. for each row whether it is listed, and 2. how many listed rows of its user follow it;
    /// 3. each user once, in byte order, and 4. the number of the user's listed rows;
    /// 5. for each row the number of its user in 3, from 1.
    ///
    /// Rows: for each user, in the order of 3, version and unread count after the batch. If a job
    /// of the batch is cancelled, nothing is stored and there are no rows.
    ///
    /// The arrays replace a join, which a plan could make quadratic. An inserted inbox has no
    /// `xmax`; a raised one has, as it was locked first.
    static let insertFresh = """
        WITH cancelled AS MATERIALIZED (
            SELECT EXISTS (SELECT FROM carillon.cancellations) AND EXISTS (
                SELECT FROM unnest(\(Self.columns.parameter("org_id")), \(Self.columns.parameter("job_id")),
                    \(Self.columns.parameter("job_entry"))) AS i (org_id, job_id, job_entry)
                WHERE \(CancellationSQL.isCancelled("i")))
                AS is_so
        ),
        raised AS (
            INSERT INTO carillon.inboxes AS b (user_id, version, unread, total)
            SELECT u.user_id, \(EpochSQL.base) + u.listed, u.listed, u.listed
            FROM \(Self.rows([("user_id", Self.parameter(3)), ("listed", Self.parameter(4))])) AS u
            WHERE NOT (SELECT is_so FROM cancelled)
            ON CONFLICT (user_id) DO UPDATE
            SET version = \(EpochSQL.version(of: "b")) + EXCLUDED.unread, unread = b.unread + EXCLUDED.unread,
                total = b.total + EXCLUDED.total
            RETURNING b.user_id, b.version, b.unread, b.xmax = 0 AS is_new
        ),
        reached AS MATERIALIZED (
            SELECT array_agg(r.version) AS versions, array_agg(r.unread) AS unread
            FROM (SELECT version, unread FROM raised ORDER BY user_id COLLATE "C") r
        ),
        registered AS (
            INSERT INTO carillon.users (user_id)
            SELECT user_id FROM raised WHERE is_new
            ON CONFLICT DO NOTHING
        ),
        stored AS (
            INSERT INTO carillon.notifications (version, \(Self.columns.names))
            SELECT CASE WHEN t.is_listed THEN x.versions[t.user_number] - t.behind ELSE 0 END, \(Self.columns.names)
            FROM reached x
            CROSS JOIN \(Self.rows(Self.columns.columns.map { ($0.name, Self.columns.parameter($0.name)) } + [
                ("is_listed", Self.parameter(1)), ("behind", Self.parameter(2)), ("user_number", Self.parameter(5)),
            ])) AS t
            WHERE x.versions IS NOT NULL
        )
        SELECT u.version, u.unread FROM reached x CROSS JOIN unnest(x.versions, x.unread) AS u (version, unread)
        """

    /// Fails with ``notStored`` unless a notification is stored, which rolls its transaction back.
    ///
    /// $1, $2: user and id.
    static let requireStored = "SELECT 1 / count(*) FROM carillon.notifications WHERE user_id = $1 AND id = $2"

    /// The SQLSTATE of a division by zero.
    static let notStored = "22012"

    /// Inserts new notifications, numbers them and raises their inboxes, for a batch that may
    /// contain stored ones, by their id or their job's.
    ///
    /// A separate statement, because it must see what was committed while the batch waited for the
    /// locks of its inboxes. It looks the inboxes up one by one (`LIMIT 1`) and raises them by
    /// their `ctid`, which the lock keeps. The plan of a join would depend on statistics that may
    /// be from when the table was empty.
    ///
    /// A notification whose job was cancelled before it came is stored as cancelled, not listed and
    /// without its collapse key. A job id that a digest holds for the user counts as known too,
    /// unless the row is the notification that a lone item becomes.
    ///
    /// Parameter after those of the columns: for each row whether it is listed. Rows: position,
    /// version, unread count; for a known one its id, status, status reason and whether its
    /// content differs; for a new one that was cancelled the status.
    static let insertChecked = """
        WITH input AS MATERIALIZED (
            SELECT i.*, EXISTS (SELECT FROM carillon.cancellations) AND \(CancellationSQL.isCancelled("i")) AS is_cancelled
            FROM unnest(\(Self.columns.parameters), \(Self.parameter(1))) WITH ORDINALITY
                AS i (\(Self.columns.names), listed, n)
        ),
        known AS MATERIALIZED (
            SELECT i.n, x.*
            FROM input i
            CROSS JOIN LATERAL (
                (SELECT o.id, o.version, o.status, o.status_reason, false AS differs
                    FROM carillon.notifications o
                    WHERE o.user_id = i.user_id AND o.id = i.id)
                UNION ALL
                (SELECT o.id, o.version, o.status, o.status_reason,
                        (o.type, o.title, o.body, o.data) IS DISTINCT FROM (i.type, i.title, i.body, i.data)
                    FROM carillon.notifications o
                    WHERE i.job_id IS NOT NULL AND o.user_id = i.user_id AND o.org_id = i.org_id
                        AND o.job_id = i.job_id)
                UNION ALL
                (SELECT h.notification_id, 0, '\(NotificationStatus.deferred.rawValue)', 'digest',
                        (h.type, h.title, h.body, h.data) IS DISTINCT FROM (i.type, i.title, i.body, i.data)
                    FROM carillon.digest_items h
                    WHERE i.job_id IS NOT NULL AND h.user_id = i.user_id AND h.org_id = i.org_id
                        AND h.job_id = i.job_id AND NOT h.is_single
                        AND (h.fate IS DISTINCT FROM '\(DigestStore.Fate.alone.rawValue)'
                            OR h.job_entry <> i.job_entry OR h.notification_id = i.id))
                LIMIT 1
            ) x
        ),
        stepped AS MATERIALIZED (
            SELECT i.*, \(EpochSQL.version(of: "b")) AS base, b.unread AS base_unread, b.row_id,
                count(*) FILTER (WHERE i.listed AND NOT i.is_cancelled) OVER (PARTITION BY i.user_id ORDER BY i.n) AS step,
                row_number() OVER (PARTITION BY i.user_id ORDER BY i.n DESC) AS from_last
            FROM input i CROSS JOIN LATERAL (
                SELECT x.version, x.unread, x.ctid AS row_id FROM carillon.inboxes x WHERE x.user_id = i.user_id LIMIT 1
            ) b
            WHERE NOT EXISTS (SELECT FROM known WHERE known.n = i.n)
        ),
        raised AS (
            UPDATE carillon.inboxes b
            SET version = l.base + l.step, unread = b.unread + l.step, total = b.total + l.step
            FROM stepped l
            WHERE l.from_last = 1 AND l.step > 0 AND b.ctid = l.row_id
        ),
        numbered AS MATERIALIZED (
            SELECT s.*, CASE WHEN listed AND NOT is_cancelled THEN base + step ELSE 0 END AS version,
                (base_unread + step)::int4 AS unread
            FROM stepped s
        ),
        stored AS (
            INSERT INTO carillon.notifications (version, \(Self.columns.names))
            SELECT x.version, \(Self.columns.list(
                of: "x", replacing: [
                    "status": "CASE WHEN x.is_cancelled THEN 'cancelled' ELSE x.status END",
                    "collapse_key": "CASE WHEN NOT x.is_cancelled THEN x.collapse_key END",
                ]))
            FROM numbered x
        )
        SELECT (n - 1)::int4, version, unread, NULL::uuid, CASE WHEN is_cancelled THEN 'cancelled' END, NULL, false
        FROM numbered
        UNION ALL
        SELECT (k.n - 1)::int4, k.version, b.unread, k.id, k.status, k.status_reason, k.differs
        FROM known k JOIN input i USING (n)
        CROSS JOIN LATERAL (SELECT x.unread FROM carillon.inboxes x WHERE x.user_id = i.user_id LIMIT 1) b
        """

    /// Whether the notification `n` is the one that `row` names by its user and id.
    ///
    /// Plans are made while tables are empty, and kept. With two equations, such a plan may read a
    /// whole index for a join, which takes longer with each row stored meanwhile. `ANY` allows no
    /// such join, so the plan looks up each row.
    static func isNamed(by row: String, id: String = "id") -> String {
        "n.user_id = ANY (ARRAY[\(row).user_id]) AND n.id = \(row).\(id)"
    }

    /// True if the notification that `row` names exists, else null.
    ///
    /// An erasure may have deleted the notification while a dispatcher worked on it; then no row
    /// may name its user again. A subquery with a value, because the planner may turn `EXISTS` into
    /// a join that reads the whole index.
    static func exists(_ row: String) -> String {
        "(SELECT true FROM carillon.notifications n WHERE \(Self.isNamed(by: row)))"
    }

    /// Returns rows in the order in which batches lock notifications: by user, then id.
    ///
    /// ``isNamed(by:id:)`` looks up one row after the other, so two statements in this order do not
    /// deadlock; transactions with several such statements may, and are retried. Rows of one
    /// notification keep their order.
    static func lockOrder<Row>(_ rows: [Row], by key: (Row) -> NotificationKey) -> [Row] {
        let keys = rows.map(key)
        return keys.indices.sorted { keys[$0] < keys[$1] }.map { rows[$0] }
    }

    static let markDelivered = """
        UPDATE carillon.notifications n
        SET status = 'delivered', status_reason = NULL, delivered_at = p.at, sent_via = coalesce(n.sent_via, $4)
        FROM \(Self.rows("user_id", "id", "at")) AS p
        WHERE \(Self.isNamed(by: "p")) AND n.status IN ('pending', 'sent', 'deferred', 'failed')
            AND n.status_reason IS DISTINCT FROM 'cancelled_too_late'
        RETURNING \(LabelColumns.list), p.at
        """

    /// A notification that is handed to a provider's stream later than this after it was stored
    /// gets a `handed_at`.
    static let handOver = "interval '30 seconds'"

    /// Sets statuses.
    ///
    /// A push may be faster than the mark that it is queued. If quiet hours put it off meanwhile,
    /// its notification stays deferred until the release. A notification that was sent to another
    /// device long before keeps its status, and gets its `handed_at`.
    ///
    /// $1 to $5: users, ids, statuses, reasons, ways; $6: whether deferred ones are released.
    static let mark = """
        UPDATE carillon.notifications n
        SET status = CASE n.status WHEN 'sent' THEN n.status ELSE c.status END,
            status_reason = CASE n.status WHEN 'sent' THEN n.status_reason ELSE c.reason END,
            sent_via = coalesce(c.via, n.sent_via),
            handed_at = CASE
                WHEN c.reason = 'queued' AND n.stored_at < now() - \(Self.handOver) THEN clock_timestamp()
                ELSE n.handed_at
            END
        FROM \(Self.rows("user_id", "id", "status", "reason", "via")) AS c
        WHERE \(Self.isNamed(by: "c"))
            AND (n.status = 'pending' OR n.status = 'deferred' AND (c.status <> 'pending' OR $6::bool)
                OR n.status = 'sent' AND c.reason = 'queued' AND n.stored_at < now() - \(Self.handOver))
        """

    /// Records decisions, and raises the counts of notes of their inboxes, which are locked.
    ///
    /// $1 to $3: users, ids, decisions.
    static let note = """
        WITH noted AS (
            UPDATE carillon.notifications n SET decision = c.decision
            FROM unnest($1, $2, $3) AS c (user_id, id, decision)
            WHERE \(Self.isNamed(by: "c")) AND n.decision IS DISTINCT FROM c.decision
            RETURNING n.user_id, n.version
        )
        UPDATE carillon.inboxes b SET notes = b.notes + 1
        WHERE b.user_id = ANY (ARRAY (SELECT user_id FROM noted WHERE version > 0))
        """

    static let load = """
        SELECT \(NotificationColumns.list)
        FROM unnest($1, $2) AS k (user_id, id)
        JOIN carillon.notifications n ON \(Self.isNamed(by: "k"))
        """
}

/// Replaces the older of two notifications with the same organisation and collapse key.
enum CollapseSQL {
    /// Whether the notification `n` takes part in collapsing.
    ///
    /// Suppressed and cancelled notifications neither replace nor are replaced. Those that were
    /// stored as such, or had expired on arrival, have no key.
    private static let takesPart = "n.replaced_by IS NULL AND n.status NOT IN ('suppressed', 'cancelled')"

    /// Deletes all but the newest notification of each key, which replaces the others.
    ///
    /// Runs in the transaction that stored them, with their inboxes locked; all deletions in an
    /// inbox share a version.
    ///
    /// Considers only keys of notifications that this transaction stored and that take part. Other
    /// keys change nothing. The newest notification of such a key may be months old, and the query
    /// would read all newer rows of the user.
    ///
    /// The newest one may be deleted or archived. The index of keys lacks such rows. So the query
    /// also reads the user's rows that are newer than the newest live row of at least one key, once
    /// for all keys; usually there are none.
    ///
    /// $1 to $4: users, organisations, keys and ids. Rows: the label's columns, the newest one's
    /// id, the inbox's version and unread count afterwards; version 0 for unlisted ones.
    static let replaceOlder = """
        WITH keys AS (
            SELECT DISTINCT k.user_id, k.org_id, k.key
            FROM unnest($1, $2, $3, $4) AS k (user_id, org_id, key, id)
            CROSS JOIN LATERAL (
                SELECT n.stored_at, \(Self.takesPart) AS takes_part FROM carillon.notifications n
                WHERE n.user_id = k.user_id AND n.id = k.id LIMIT 1
            ) f
            WHERE f.takes_part AND f.stored_at = now()
        ),
        live AS MATERIALIZED (
            SELECT n.user_id, n.org_id, n.collapse_key, n.id, n.read_at IS NULL AS is_unread,
                n.version > 0 AS is_listed,
                first_value(n.id) OVER (PARTITION BY n.user_id, n.org_id, n.collapse_key ORDER BY n.id DESC) AS newest
            FROM keys k
            JOIN carillon.notifications n ON n.user_id = k.user_id AND n.collapse_key = k.key AND n.org_id = k.org_id
            WHERE n.deleted_at IS NULL AND \(Self.takesPart)
        ),
        starts AS MATERIALIZED (
            SELECT DISTINCT ON (user_id) user_id, newest AS start FROM live ORDER BY user_id, newest
        ),
        newer AS (
            SELECT s.user_id, d.org_id, d.collapse_key, d.id
            FROM starts s CROSS JOIN LATERAL (
                SELECT n.org_id, n.collapse_key, n.id FROM carillon.notifications n
                WHERE n.user_id = s.user_id AND n.id > s.start AND n.collapse_key IS NOT NULL AND \(Self.takesPart)
                    AND n.status_reason IS DISTINCT FROM 'cancelled_too_late'
                ORDER BY n.id
            ) d
        ),
        ranked AS (
            SELECT c.user_id, c.id, c.is_unread, c.is_listed, c.is_live,
                first_value(c.id) OVER (PARTITION BY c.user_id, c.org_id, c.collapse_key ORDER BY c.id DESC) AS newest
            FROM (
                SELECT user_id, org_id, collapse_key, id, is_unread, is_listed, true AS is_live FROM live
                UNION ALL
                SELECT user_id, org_id, collapse_key, id, false, false, false FROM newer
            ) c
        ),
        older AS MATERIALIZED (
            SELECT user_id, id, is_unread, is_listed, newest FROM ranked WHERE is_live AND id <> newest
        ),
        raised AS (
            UPDATE carillon.inboxes b
            SET version = \(EpochSQL.version(of: "b")) + 1, unread = b.unread - o.unread, total = b.total - o.total
            FROM (
                SELECT user_id, count(*)::int4 AS total, (count(*) FILTER (WHERE is_unread))::int4 AS unread
                FROM older WHERE is_listed GROUP BY user_id
            ) o
            WHERE b.user_id = o.user_id
            RETURNING b.user_id, b.version, b.unread
        ),
        replaced AS (
            UPDATE carillon.notifications n
            SET deleted_at = now(), replaced_by = o.newest,
                version = CASE WHEN o.is_listed THEN r.version ELSE n.version END,
                status = CASE WHEN n.status IN ('pending', 'deferred') THEN 'suppressed' ELSE n.status END,
                status_reason = CASE WHEN n.status IN ('pending', 'deferred') THEN 'replaced' ELSE n.status_reason END
            FROM older o LEFT JOIN raised r USING (user_id)
            WHERE n.user_id = o.user_id AND n.id = o.id
            RETURNING \(LabelColumns.list), o.newest, CASE WHEN o.is_listed THEN r.version ELSE 0 END,
                coalesce(r.unread, 0)::int4
        )
        SELECT * FROM replaced
        """
}
