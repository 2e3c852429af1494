// Carillon · DeliverySQL.swift
// SPDX-License-Identifier: Apache-2.0

/// The statements of ``DeliveryStore``.
enum DeliverySQL {
    /// $1 to $4: users, notifications, devices, whether they are repeats; $5 and $6: types and their categories' keys.
    static let facts = """
        SELECT (k.n - 1)::int4, n.replaced_by IS NOT NULL, coalesce(b.unread, 0)::int4, coalesce(b.version, 0),
            k.is_repeat AND EXISTS (
                SELECT FROM carillon.delivery_attempts a
                WHERE a.notification_id = k.notification AND a.device_id = k.device AND a.outcome = 'accepted'
            ),
            EXISTS (SELECT FROM carillon.cancellations) AND \(CancellationSQL.isCancelled("n")),
            \(WishColumns.list), \(NotificationColumns.list), \(DeviceColumns.list)
        FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS k (user_id, notification, device, is_repeat, n)
        JOIN carillon.notifications n ON n.user_id = k.user_id AND n.id = k.notification
        JOIN carillon.devices d ON d.id = k.device
        LEFT JOIN carillon.inboxes b ON b.user_id = k.user_id
        LEFT JOIN unnest($5, $6) AS t (type, category) ON t.type = n.type
        \(WishColumns.joins(user: "k.user_id", type: "n.type", category: "t.category"))
        """

    static let attempts = """
        INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, device_id, provider, kind, attempt, outcome,
            reason, provider_id, duration_ms)
        SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        """

    /// What was cancelled while a provider had it says so, and counts as sent.
    static let accepted = """
        UPDATE carillon.notifications n
        SET status = 'sent', status_reason = CASE WHEN n.status = 'cancelled' THEN 'cancelled_too_late' END,
            sent_via = a.via
        FROM unnest($1, $2, $3) AS a (user_id, id, via)
        WHERE n.user_id = a.user_id AND n.id = a.id AND n.status IN ('pending', 'failed', 'deferred', 'cancelled')
        """

    /// What was cancelled while it was on its way to a provider and did not get there is not on its way any more.
    static let stopped = """
        UPDATE carillon.notifications n
        SET status_reason = NULL
        FROM unnest($1, $2) AS s (user_id, id)
        WHERE n.user_id = s.user_id AND n.id = s.id AND n.status = 'cancelled' AND n.status_reason = 'in_flight'
        """

    static let failed = """
        UPDATE carillon.notifications n
        SET status = 'failed', status_reason = f.reason
        FROM unnest($1, $2, $3) AS f (user_id, id, reason)
        WHERE n.user_id = f.user_id AND n.id = f.id AND n.status = 'pending'
        """

    static let deadTokens = """
        UPDATE carillon.devices d
        SET active = false, deactivated_reason = t.reason
        FROM unnest($1, $2, $3) AS t (id, reason, evidence)
        WHERE d.id = t.id AND d.active AND d.registered_at < t.evidence
        """
}
