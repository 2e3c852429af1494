// Carillon · CollapseSQL.swift
// SPDX-License-Identifier: Apache-2.0

/// How the newer of two notifications with a collapse key replaces the older.
enum CollapseSQL {
    /// Deletes all but the newest of each key's notifications, which are then replaced by it.
    ///
    /// Runs in the transaction that stored them, with their inboxes locked. What an inbox loses has one version. What nobody
    /// ever got neither replaces nor is replaced: what was suppressed or cancelled, and what had expired before it came, which
    /// alone has expired without a channel.
    /// $1 and $2: users and keys. Rows: the label's columns, the newest one's id, the inbox's version and unread count
    /// afterwards; version 0 for what was not listed.
    static let replaceOlder = """
        WITH keys AS (SELECT DISTINCT k.user_id, k.key FROM unnest($1, $2) AS k (user_id, key)),
        live AS MATERIALIZED (
            SELECT n.user_id, n.id, n.read_at IS NULL AS is_unread, n.version > 0 AS is_listed,
                first_value(n.id) OVER (PARTITION BY n.user_id, n.collapse_key ORDER BY n.id DESC) AS newest
            FROM keys k JOIN carillon.notifications n ON n.user_id = k.user_id AND n.collapse_key = k.key
            WHERE n.deleted_at IS NULL AND n.replaced_by IS NULL AND n.status NOT IN ('suppressed', 'cancelled')
                AND NOT (n.status = 'expired' AND n.channels = 0)
        ),
        older AS MATERIALIZED (SELECT * FROM live WHERE id <> newest),
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
