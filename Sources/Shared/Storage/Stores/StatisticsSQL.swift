// Carillon · StatisticsSQL.swift
// SPDX-License-Identifier: Apache-2.0

/// The statements of ``StatisticsStore``.
enum StatisticsSQL {
    static let attempts = """
        SELECT date_trunc('minute', a.at), a.provider, a.outcome, count(*)
        FROM (
            SELECT at, provider, outcome FROM carillon.delivery_attempts
            WHERE at >= $1 AND kind IN ('push', 'email') ORDER BY at DESC LIMIT $2
        ) a GROUP BY 1, 2, 3
        """

    /// Rows outside of inboxes count where they were suppressed; the others among them have no outcome.
    static let inboxes = """
        SELECT date_trunc('minute', n.stored_at), 'in_app',
            CASE
                WHEN n.version = 0 AND n.status = 'suppressed' THEN 'suppressed'
                WHEN n.version = 0 THEN NULL
                WHEN n.delivered_at IS NOT NULL OR n.read_at IS NOT NULL THEN 'delivered'
                WHEN n.status IN ('cancelled', 'expired') THEN 'skipped'
                ELSE 'waiting'
            END, count(*)
        FROM (
            SELECT stored_at, version, status, delivered_at, read_at FROM carillon.notifications
            WHERE stored_at >= $1 ORDER BY stored_at DESC LIMIT $2
        ) n GROUP BY 1, 2, 3
        """

    static let types = """
        SELECT n.type, \(Reach.columns)
        FROM (
            SELECT type, \(Reach.source) FROM carillon.notifications
            WHERE stored_at >= $1 ORDER BY stored_at DESC LIMIT $2
        ) n GROUP BY n.type ORDER BY 2 DESC, 1 LIMIT $3
        """

    /// $1: how many.
    static let broadcasts = """
        SELECT b.id, b.org_id, b.job_id,
            (SELECT f ->> 1 FROM jsonb_array_elements(b.fields) f WHERE f ->> 0 = 'type' LIMIT 1),
            (SELECT coalesce(sum(stored), 0)::int8 FROM carillon.broadcast_pages WHERE broadcast = b.id)
        FROM carillon.broadcasts b ORDER BY b.id DESC LIMIT $1
        """

    /// $1: organisation, $2: the job's id.
    static let reach = """
        SELECT \(Reach.columns) FROM carillon.notifications n
        WHERE n.org_id = $1 AND n.job_id = $2 AND n.job_id IS NOT NULL
        """

    static let failures = """
        SELECT a.at, a.user_id, a.notification_id, a.provider, a.attempt, a.reason
        FROM (
            SELECT at, user_id, notification_id, provider, kind, attempt, outcome, reason FROM carillon.delivery_attempts
            WHERE at >= $1 ORDER BY at DESC LIMIT $2
        ) a WHERE a.outcome = 'failed' AND a.kind IN ('push', 'email') ORDER BY a.at DESC LIMIT $3
        """
}
