// Carillon · StoreSQL.swift
// SPDX-License-Identifier: Apache-2.0

/// The statements of ``NotificationStore``.
enum StoreSQL {
    /// Makes the inboxes that are missing.
    ///
    /// $1: users, sorted, so that two batches never wait for each other crosswise.
    static let makeInboxes = """
        WITH fresh AS (
            INSERT INTO carillon.inboxes (user_id)
            SELECT wanted.u FROM unnest($1) AS wanted(u)
            WHERE (SELECT true FROM carillon.inboxes i WHERE i.user_id = wanted.u LIMIT 1) IS NULL
            ON CONFLICT DO NOTHING
            RETURNING user_id
        )
        INSERT INTO carillon.users (user_id) SELECT user_id FROM fresh ON CONFLICT DO NOTHING
        """

    /// Locks the inboxes in order of user.
    ///
    /// $1: users.
    static let lockInboxes = """
        SELECT FROM carillon.inboxes WHERE user_id = ANY($1) ORDER BY user_id FOR UPDATE
        """

    /// Inserts what is new, numbers it and raises the inboxes.
    ///
    /// Inboxes are looked up one by one (`LIMIT 1`) and raised by their place, which their lock holds still: a join would
    /// leave the choice of a plan to statistics that may be of a time when the table was empty.
    /// The inboxes are locked by now, and a statement of its own sees what was committed while it waited for them.
    /// Rows: position, version, unread; and for a known one its id, status and status reason. With $26, nothing is stored
    /// if any of the users has said what they want of the type or of everything; that is a row of position -1.
    ///
    /// - Parameter checksKnown: whether rows may be there already, by their id or their job's. Asking makes sixteen parts
    ///   ready twice, so entries that are seen for the first time and have no job id go without.
    static func insert(checksKnown: Bool) -> String { checksKnown ? self.insertChecked : self.insertFresh }

    private static let insertFresh = Self.insertHead + Self.insertTail(unless: "") + Self.insertRows
    private static let insertChecked =
        Self.insertHead + Self.known + Self.insertTail(unless: "AND NOT EXISTS (SELECT FROM known WHERE known.n = i.n)")
        + Self.insertRows + Self.knownRows

    private static let insertHead = """
        WITH input AS MATERIALIZED (
            SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                $20, $21, $22, $23, $24, $25)
            AS t (n, user_id, id, job_entry, org_id, job_id, type, severity, delivery, lane, channels, listed, title,
                body, data, extras, category, entity_type, entity_id, collapse_key, status, status_reason, created_at,
                expires_at, keep_until)
        ),
        wished AS MATERIALIZED (
            SELECT $26 AND EXISTS (
                SELECT FROM input i
                WHERE (SELECT true FROM carillon.preferences p
                        WHERE p.user_id = i.user_id AND p.type = i.type LIMIT 1) IS NOT NULL
                    OR (SELECT s.opted_out OR s.email_opted_out
                        FROM carillon.user_settings s WHERE s.user_id = i.user_id LIMIT 1)
            ) AS is_so
        ),

        """

    private static let known = """
        known AS MATERIALIZED (
            SELECT i.n, x.*
            FROM input i
            CROSS JOIN LATERAL (
                (SELECT o.id, o.version, o.status, o.status_reason FROM carillon.notifications o
                    WHERE o.user_id = i.user_id AND o.id = i.id)
                UNION ALL
                (SELECT o.id, o.version, o.status, o.status_reason FROM carillon.notifications o
                    WHERE i.job_id IS NOT NULL AND o.user_id = i.user_id AND o.org_id = i.org_id
                        AND o.job_id = i.job_id)
                LIMIT 1
            ) x
        ),

        """

    private static func insertTail(unless condition: String) -> String {
        """
        numbered AS MATERIALIZED (
            SELECT i.*, b.version AS base, b.unread AS base_unread, b.place,
                count(*) FILTER (WHERE i.listed) OVER (PARTITION BY i.user_id ORDER BY i.n) AS step,
                row_number() OVER (PARTITION BY i.user_id ORDER BY i.n DESC) AS from_last
            FROM input i CROSS JOIN LATERAL (
                SELECT x.version, x.unread, x.ctid AS place FROM carillon.inboxes x WHERE x.user_id = i.user_id LIMIT 1
            ) b
            WHERE NOT (SELECT is_so FROM wished) \(condition)
        ),
        raised AS (
            UPDATE carillon.inboxes b
            SET version = b.version + l.step, unread = b.unread + l.step, total = b.total + l.step
            FROM numbered l
            WHERE l.from_last = 1 AND l.step > 0 AND b.ctid = l.place
        ),
        stored AS (
            INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, job_id, type, severity, delivery,
                lane, channels, title, body, data, extras, category, entity_type, entity_id, collapse_key, status,
                status_reason, created_at, expires_at, keep_until)
            SELECT user_id, id, CASE WHEN listed THEN base + step ELSE 0 END, job_entry, org_id, job_id, type, severity,
                delivery, lane, channels, title, body, data, extras, category, entity_type, entity_id, collapse_key,
                status, status_reason, created_at, expires_at, keep_until
            FROM numbered
        )

        """
    }

    private static let insertRows = """
        SELECT n, CASE WHEN listed THEN base + step ELSE 0 END, (base_unread + step)::int4, NULL::uuid, NULL, NULL
        FROM numbered
        UNION ALL
        SELECT -1, 0, 0, NULL, NULL, NULL FROM wished WHERE is_so
        """

    private static let knownRows = """

        UNION ALL
        SELECT k.n, k.version, b.unread, k.id, k.status, k.status_reason
        FROM known k JOIN input i USING (n)
        CROSS JOIN LATERAL (SELECT x.unread FROM carillon.inboxes x WHERE x.user_id = i.user_id LIMIT 1) b
        """

    static let markDelivered = """
        UPDATE carillon.notifications n
        SET status = 'delivered', status_reason = NULL, delivered_at = p.at, sent_via = coalesce(n.sent_via, $4)
        FROM unnest($1, $2, $3) AS p (user_id, id, at)
        WHERE n.user_id = p.user_id AND n.id = p.id AND n.status IN ('pending', 'sent')
        """

    static let mark = """
        UPDATE carillon.notifications n
        SET status = c.status, status_reason = c.reason, sent_via = coalesce(c.via, n.sent_via)
        FROM unnest($1, $2, $3, $4, $5) AS c (user_id, id, status, reason, via)
        WHERE n.user_id = c.user_id AND n.id = c.id AND n.status = 'pending'
        """

    static let unowned = """
        SELECT \(NotificationColumns.list), coalesce(b.unread, 0)::int4, n.stored_at FROM carillon.notifications n
        LEFT JOIN carillon.inboxes b USING (user_id)
        WHERE n.stored_at > (SELECT swept_until FROM carillon.sweep) AND n.stored_at <= $1
            AND n.status = 'pending' AND n.status_reason IS NULL
            AND ($3::timestamptz IS NULL OR (n.stored_at, n.id) > ($3, $4::uuid))
        ORDER BY n.stored_at, n.id LIMIT $2
        """

    /// Moves the sweeper's mark to just before the oldest row that is still without an owner, $1 at most.
    static let advanceSweep = """
        UPDATE carillon.sweep SET swept_until = greatest(swept_until, coalesce((
            SELECT min(n.stored_at) - interval '1 microsecond' FROM carillon.notifications n
            WHERE n.stored_at > swept_until AND n.stored_at <= $1
                AND n.status = 'pending' AND n.status_reason IS NULL
        ), $1))
        """

    static let load = """
        SELECT \(NotificationColumns.list)
        FROM unnest($1, $2) AS k (user_id, id)
        JOIN carillon.notifications n ON n.user_id = k.user_id AND n.id = k.id
        """
}
