// Carillon · DeliverySQL.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The statements of ``DeliveryStore``.
enum DeliverySQL {
    /// $1 to $4: users, notifications, devices, whether they are repeats; $5 and $6: types and
    /// their categories' keys.
    static let facts = Self.facts(
        "JOIN carillon.devices d ON d.id = k.device", "", mayHaveAttempts: "(k.is_repeat OR n.status <> 'pending')")

    /// The same with the user's e-mail address and locale instead of a device.
    static let mailFacts = Self.facts(
        "",
        """
        CROSS JOIN LATERAL (
            SELECT k.device AS id, k.user_id, 'web' AS platform, 'email' AS provider, 'default' AS app,
                'production' AS environment, coalesce(s.email, '') AS token, NULL::text AS name, NULL::text AS device_id,
                NULL::text AS app_version,
                coalesce(s.locale, \(PreferenceColumns.deviceLocale)) AS locale,
                s.email IS NOT NULL AND s.email_invalid_at IS NULL AS active,
                s.email_invalid_reason AS deactivated_reason, 'epoch'::timestamptz AS registered_at,
                'epoch'::timestamptz AS last_used_at, false AS silenced
        ) d
        """,
        mayHaveAttempts: "true"
    )

    /// The key of a type's category; the search in the array costs a fraction of a join with all
    /// types.
    private static let category = "($6::text[])[array_position($5::text[], n.type)]"

    /// Unread notifications that were not opened; they are few and have an index.
    private static let unseen = """
        greatest(coalesce(b.unread, 0) - (
            SELECT count(*) FROM carillon.notifications o
            WHERE o.user_id = k.user_id AND o.opened_at IS NOT NULL AND o.read_at IS NULL AND o.deleted_at IS NULL
                AND o.version > 0
        ), 0)::int4
        """

    /// The fifth column is the earliest time of attempts to look for with ``alreadyAccepted``; null
    /// if there are none.
    ///
    /// A first delivery may come after its repeat was sent. So a first push looks for attempts too,
    /// once its notification is no longer pending. Mail always does, because mail does not change
    /// the status of an inbox row.
    private static func facts(_ device: String, _ address: String, mayHaveAttempts: String) -> String {
        """
        SELECT (k.n - 1)::int4, n.replaced_by IS NOT NULL, \(Self.unseen),
            \(EpochSQL.version(of: "b")),
            CASE WHEN \(mayHaveAttempts) THEN n.stored_at - interval '1 day' END,
            EXISTS (SELECT FROM carillon.cancellations) AND \(CancellationSQL.isCancelled("n")),
            \(PreferenceColumns.list), \(NotificationColumns.messageList), \(DeviceColumns.messageList)
        FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS k (user_id, notification, device, is_repeat, n)
        JOIN carillon.notifications n ON \(NotificationSQL.isNamed(by: "k", id: "notification"))
        \(device)
        LEFT JOIN carillon.inboxes b ON b.user_id = k.user_id
        \(PreferenceColumns.joins(type: "n.type", category: Self.category))
        \(address)
        """
    }

    /// The deliveries that their devices have accepted.
    ///
    /// Not a part of ``facts``: PostgreSQL locks and opens every partition that a statement names
    /// at each call, even if it reads no row of them.
    ///
    /// $1 and $2: notifications and devices; $3: the earliest time of attempts. Rows: the indices
    /// of the deliveries.
    static let alreadyAccepted = """
        SELECT (k.n - 1)::int4
        FROM unnest($1, $2) WITH ORDINALITY AS k (notification, device, n)
        CROSS JOIN LATERAL (
            SELECT FROM carillon.delivery_attempts a
            WHERE a.notification_id = k.notification AND a.device_id = k.device AND a.outcome = 'accepted'
                AND a.at >= $3
            LIMIT 1
        ) a
        """

    /// The pushes that have failed for their device.
    ///
    /// $1 to $3: users, notifications, devices. Rows: the indices of the pushes, and a reason.
    static let failedPushes = """
        SELECT (k.n - 1)::int4, f.reason
        FROM unnest($1, $2, $3) WITH ORDINALITY AS k (user_id, notification, device, n)
        JOIN carillon.notifications n ON \(NotificationSQL.isNamed(by: "k", id: "notification"))
        CROSS JOIN LATERAL (
            SELECT coalesce(max(a.reason), '') AS reason FROM carillon.delivery_attempts a
            WHERE a.notification_id = k.notification AND a.device_id = k.device AND a.kind = 'push'
                AND a.outcome = 'failed' AND a.at >= \(NotificationState.earliestAttempt)
            HAVING count(*) > 0
        ) f
        """

    /// Inserts attempts, but no skipped ones of erased users.
    ///
    /// Looks up each user, as ``NotificationSQL/isNamed(by:id:)`` does.
    static let attempts = """
        INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, device_id, provider, kind, attempt, outcome,
            reason, provider_id, duration_ms)
        SELECT a.* FROM \(NotificationSQL.rows(
            "at", "user_id", "notification_id", "device_id", "provider", "kind", "attempt", "outcome", "reason",
            "provider_id", "duration_ms")) AS a
        WHERE a.outcome <> '\(DeliveryStore.Outcome.skipped.rawValue)'
            OR EXISTS (SELECT FROM carillon.users u WHERE u.user_id = ANY (ARRAY[a.user_id]))
        """

    /// The statements that create the audit's missing partitions, first today's.
    ///
    /// Leaves out days with rows in the default partition: PostgreSQL would refuse their
    /// partitions.
    static let missingPartitions = """
        SELECT format(
            'CREATE TABLE carillon.%I PARTITION OF carillon.delivery_attempts FOR VALUES FROM (%L) TO (%L)',
            p.name, p.first, p.next)
        FROM generate_series(0, 7) AS s (n)
        CROSS JOIN LATERAL (SELECT date_trunc('day', now() AT TIME ZONE 'UTC') + s.n * interval '1 day' AS at) AS day
        CROSS JOIN LATERAL (
            SELECT 'delivery_attempts_' || to_char(day.at, 'YYYYMMDD') AS name, day.at AT TIME ZONE 'UTC' AS first,
                (day.at + interval '1 day') AT TIME ZONE 'UTC' AS next
        ) AS p
        WHERE to_regclass('carillon.' || p.name) IS NULL AND NOT EXISTS (
            SELECT FROM carillon.delivery_attempts_default d WHERE d.at >= p.first AND d.at < p.next
        )
        ORDER BY s.n
        """

    /// $1, $2: users and ids; $3: when.
    ///
    /// Skips notifications that a dispatcher has recorded before it died, without putting the push
    /// in its stream.
    static let unproven = """
        INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, provider, kind, attempt, outcome)
        SELECT $3::timestamptz, u.user_id, u.id, '\(AuditStep.provider)', '\(AuditStep.kind)', 0,
            '\(AuditStep.unproven.rawValue)'
        FROM unnest($1, $2) AS u (user_id, id)
        WHERE \(NotificationSQL.exists("u")) AND NOT EXISTS (
            SELECT FROM carillon.delivery_attempts a
            WHERE a.notification_id = u.id AND a.kind = '\(AuditStep.kind)'
                AND a.outcome = '\(AuditStep.unproven.rawValue)' AND a.at >= $3::timestamptz - interval '1 hour'
        )
        """

    /// $1 to $3: users, ids, summaries; $4: when.
    ///
    /// Skips notifications that an earlier transaction has recorded, whose answer was lost.
    static let summarised = """
        INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, provider, kind, attempt, outcome, provider_id)
        SELECT $4::timestamptz, s.user_id, s.id, '\(AuditStep.provider)', '\(AuditStep.kind)', 0,
            '\(AuditStep.summarised.rawValue)', s.summary::text
        FROM unnest($1, $2, $3) AS s (user_id, id, summary)
        WHERE \(NotificationSQL.exists("s")) AND NOT EXISTS (
            SELECT FROM carillon.delivery_attempts a
            WHERE a.notification_id = s.id AND a.kind = '\(AuditStep.kind)'
                AND a.outcome = '\(AuditStep.summarised.rawValue)' AND a.at >= $4::timestamptz - interval '1 hour'
        )
        """

    /// Pushes that a provider accepted.
    ///
    /// Separate from ``acceptedMail``, which names the audit: PostgreSQL locks and opens every
    /// partition that a statement names at each call, even if it reads no row of them.
    static let acceptedPushes = Self.accepted(
        where: "n.status IN ('pending', 'failed', 'expired', 'cancelled', 'deferred')")

    /// Mail that the relay accepted.
    ///
    /// Mail does not end the wait for quiet hours. It does not change the status of an inbox
    /// notification either, because a push may follow, unless all its pushes were dropped.
    static let acceptedMail = Self.accepted(
        where: """
            CASE
                WHEN n.status = 'cancelled' THEN true
                WHEN (n.channels & \(Channels.inApp.rawValue)) = 0
                    THEN n.status IN ('pending', 'failed', 'expired', 'suppressed')
                ELSE \(NotificationState.isQueued) AND NOT \(NotificationState.mayBePushed)
            END
            """)

    /// Marks notifications as sent; one cancelled while a provider had it records that, too.
    private static func accepted(where condition: String) -> String {
        """
        UPDATE carillon.notifications n
        SET status = 'sent', status_reason = CASE WHEN n.status = 'cancelled' THEN 'cancelled_too_late' END,
            sent_via = a.via, sent_device = a.device
        FROM \(NotificationSQL.rows("user_id", "id", "via", "device")) AS a
        WHERE \(NotificationSQL.isNamed(by: "a")) AND \(condition)
        """
    }

    /// Clears `in_flight` of cancelled notifications that no provider got, unless another device or
    /// the mail may still be in flight.
    static let stopped = """
        UPDATE carillon.notifications n
        SET status_reason = NULL
        FROM unnest($1, $2) AS s (user_id, id)
        WHERE \(NotificationSQL.isNamed(by: "s")) AND \(NotificationState.isCancelledInFlight)
            AND NOT \(NotificationState.mayBePushedThoughCancelled)
            AND NOT \(NotificationState.mayBeMailed(at: "now()"))
        """

    /// Locks notifications, so that when two dispatchers end the last deliveries of one, the second
    /// sees the first's change.
    ///
    /// PostgreSQL sorts before it locks. $1, $2: users and ids.
    static let lock = """
        SELECT FROM unnest($1, $2) AS d (user_id, id)
        JOIN carillon.notifications n ON \(NotificationSQL.isNamed(by: "d"))
        ORDER BY d.user_id COLLATE "C", d.id FOR UPDATE OF n
        """

    /// Ends obsolete notifications that wait for a provider, unless one of their deliveries may be
    /// in flight.
    ///
    /// A listed notification stays in the inbox as sent; any other ends as suppressed or failed. A
    /// cancelled one is left to its cancellation unless its user has seen it. The status reason
    /// tells what it waits for:
    ///
    /// - `queued`: its push.
    /// - None: a proof, or its push was faster than the mark `queued`. So a secondary send that did
    ///   not go out does not end it.
    /// - Another reason: its mail only.
    ///
    /// $1 to $5: users, ids, reasons, whether it was a secondary send, whether the reason is a
    /// failure. Rows: the label's columns, status and reason.
    static let dropped = """
        UPDATE carillon.notifications n
        SET status = CASE
                WHEN \(Self.expiresUnseen) THEN 'expired'
                WHEN (n.channels & \(Channels.inApp.rawValue)) <> 0 THEN 'sent'
                WHEN d.has_failed AND n.read_at IS NULL AND n.deleted_at IS NULL THEN 'failed'
                ELSE 'suppressed'
            END,
            status_reason = CASE
                WHEN \(Self.expiresUnseen) THEN d.reason
                WHEN n.read_at IS NOT NULL THEN 'read'
                WHEN n.deleted_at IS NOT NULL THEN 'deleted'
                WHEN n.opened_at IS NOT NULL THEN 'opened'
                ELSE d.reason
            END,
            sent_via = CASE
                WHEN (n.channels & \(Channels.inApp.rawValue)) <> 0 AND NOT (\(Self.expiresUnseen)) THEN 'inbox'
                ELSE n.sent_via
            END
        FROM unnest($1, $2, $3, $4, $5) AS d (user_id, id, reason, is_secondary, has_failed)
        WHERE \(NotificationSQL.isNamed(by: "d")) AND n.status = 'pending'
            AND CASE
                WHEN n.status_reason <> 'queued' THEN NOT \(NotificationState.waitsForMail)
                ELSE (n.status_reason = 'queued' OR NOT d.is_secondary) AND NOT \(NotificationState.mayBePushed)
            END
            AND (d.reason <> 'cancelled' OR n.read_at IS NOT NULL OR n.opened_at IS NOT NULL)
            AND NOT \(NotificationState.mayBeMailed(at: "now()"))
        RETURNING \(LabelColumns.list), n.status, n.status_reason
        """

    /// Whether a notification expired before its user saw it; a deletion at its `keep_until` or
    /// later is by retention, not by the user.
    private static let expiresUnseen = """
        d.reason = 'expired' AND n.read_at IS NULL AND n.opened_at IS NULL
            AND (n.deleted_at IS NULL OR (n.deleted_at >= n.keep_until) IS TRUE)
        """

    /// A notification that the gate found expired ends like any other expired one.
    ///
    /// After a failed push it stays pending while another device may get it: the last one decides.
    /// After failed mail it stays pending while its push is queued. Before the mark `queued`,
    /// failed mail ends it: the push may be held back, and a provider that accepts it still counts.
    ///
    /// $1 to $4: users, ids, reasons, whether it was a push.
    static let failed = """
        UPDATE carillon.notifications n
        SET status = CASE WHEN f.reason = 'expired' THEN 'expired' ELSE 'failed' END, status_reason = f.reason
        FROM unnest($1, $2, $3, $4) AS f (user_id, id, reason, is_push)
        WHERE \(NotificationSQL.isNamed(by: "f")) AND n.status = 'pending'
            AND NOT ((f.is_push OR (\(NotificationState.isQueued)) IS TRUE) AND \(NotificationState.mayBePushed))
        """

    /// Settles notifications that get no push although it was deferred or enqueued.
    ///
    /// They take the outcome of their mail. If a follow-up still has the mail, they wait.
    ///
    /// $1 to $4: users, ids, reasons, statuses unless the mail went out or is to come. Rows: the
    /// label's columns, status, and the reason unless the mail went out.
    static let leftToMail = """
        UPDATE carillon.notifications n
        SET status = CASE
                WHEN \(NotificationState.wasMailed) THEN 'sent'
                WHEN \(NotificationState.waitsForMail) THEN 'pending'
                ELSE l.status
            END,
            status_reason = l.reason,
            sent_via = CASE WHEN \(NotificationState.wasMailed) THEN 'email' ELSE n.sent_via END
        FROM unnest($1, $2, $3, $4) AS l (user_id, id, reason, status)
        WHERE \(NotificationSQL.isNamed(by: "l"))
            AND (n.status = 'deferred' OR \(NotificationState.isQueued))
        RETURNING \(LabelColumns.list), n.status, CASE WHEN n.status <> 'sent' THEN n.status_reason END
        """

    /// $1 to $4: users, addresses that the relay rejected, reasons, times of sending.
    ///
    /// An address set since then stays valid, even the same one.
    static let deadAddresses = """
        UPDATE carillon.user_settings s
        SET email_invalid_at = t.at, email_invalid_reason = t.reason
        FROM unnest($1, $2, $3, $4) AS t (user_id, address, reason, at)
        WHERE s.user_id = t.user_id AND s.email = t.address AND s.email_invalid_at IS NULL
            AND (s.email_set_at IS NULL OR s.email_set_at < t.at)
        RETURNING s.user_id
        """

    /// $1 to $4: devices, tokens that the provider rejected, reasons, times of the evidence.
    ///
    /// A device keeps its id when its token changes.
    static let deadTokens = """
        UPDATE carillon.devices d
        SET active = false, deactivated_reason = t.reason
        FROM unnest($1, $2, $3, $4) AS t (id, token, reason, evidence)
        WHERE d.id = t.id AND d.token = t.token AND d.active AND d.registered_at < t.evidence
        RETURNING d.id
        """
}
