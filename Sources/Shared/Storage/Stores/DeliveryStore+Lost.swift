// Carillon · DeliveryStore+Lost.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

extension DeliveryStore {
    /// A push that was handed on for a device and has not ended there, as far as the audit tells.
    package struct Lost: Sendable {
        package let notification: NotificationID
        package let user: String
        package let lane: Lane
        package let device: Device
    }

    /// The pushes that a page of notifications may still have waited for, although they count as sent or failed by what
    /// became of another device, or of the mail.
    ///
    /// For when Redis has lost what waited. Each device that had a try which did not end it is found, and each that had none
    /// although it was registered when the notification was handed on and it was pushed to others.
    ///
    /// - Parameters:
    ///   - since: when the notifications were handed on at the earliest.
    ///   - until: and at the latest.
    ///   - place: where the page before ended; ``RepairPlace/init(_:)`` for the first page.
    ///   - now: what has expired by then is left out.
    ///   - limit: how many notifications are looked at.
    /// - Returns: where the page ended; nil if nothing was left to look at.
    package func lost(
        handedOnSince since: Timestamp,
        until: Timestamp,
        after place: RepairPlace,
        now: Timestamp,
        limit: Int
    ) async throws(PostgresError) -> (lost: [Lost], last: RepairPlace?) {
        let result = try await self.pool.query(
            Self.lost, .timestamptz(since.microseconds), .timestamptz(until.microseconds),
            .timestamptz(place.moment.microseconds), .uuid(place.id.halves), .timestamptz(now.microseconds),
            .int4(Int32(clamping: limit))
        )
        var lost: [Lost] = []
        var last: RepairPlace?
        for row in result {
            let id = NotificationID(try row.uuid(1))
            last = RepairPlace(Timestamp(microseconds: try row.timestamptz(0)), id)
            guard !row.isNull(4) else { continue }
            lost.append(
                Lost(
                    notification: id,
                    user: try row.text(2),
                    lane: Lane(rawValue: try row.text(3)) ?? .normal,
                    device: try DeviceColumns.read(row, at: 4)
                )
            )
        }
        return (lost, last)
    }

    /// $1 and $2: since and until when they were handed on, $3 and $4: the place, $5: now, $6: how
    /// many notifications.
    ///
    /// The page is chosen before it is looked into, so that each costs the same, whatever is in it. Of its notifications, one
    /// that has nothing lost is a row without a device. Attempts are of the time since the place, but for clocks that
    /// differ, so that no older part of the audit is read. What waits for the end of quiet hours is in PostgreSQL.
    private static let lost = """
        WITH page AS MATERIALIZED (
            SELECT n.moment, n.id, n.user_id, n.lane,
                n.status = 'sent' AND n.sent_via <> 'email' AS was_pushed,
                (n.channels & \(Channels.push.rawValue)) <> 0 AND n.read_at IS NULL AND n.deleted_at IS NULL
                    AND n.replaced_by IS NULL AND (n.expires_at IS NULL OR n.expires_at > $5::timestamptz)
                    AND (n.status = 'failed'
                        OR n.status = 'sent' AND n.sent_via NOT IN ('inbox', 'socket', 'summary')) AS is_open
            FROM (\(StoreSQL.handedOn(since: "$1::timestamptz", until: "$2::timestamptz"))) n
            WHERE n.moment >= $3::timestamptz AND (n.moment, n.id) > ($3::timestamptz, $4::uuid)
            ORDER BY n.moment, n.id LIMIT $6
        )
        SELECT p.moment, p.id, p.user_id, p.lane, \(DeviceColumns.list)
        FROM page p LEFT JOIN LATERAL (
            SELECT x.* FROM carillon.devices x
            CROSS JOIN LATERAL (
                SELECT count(*) > 0 AS was_tried, coalesce(bool_or(\(DeliverySQL.isEnd("a"))), false) AS has_ended
                FROM carillon.delivery_attempts a
                WHERE a.notification_id = p.id AND a.device_id = x.id AND a.kind = 'push'
                    AND a.at >= $3::timestamptz - interval '1 hour'
            ) t
            WHERE p.is_open AND x.user_id = p.user_id AND x.active AND NOT x.silenced AND NOT t.has_ended
                AND (t.was_tried OR x.registered_at <= p.moment AND (p.was_pushed OR EXISTS (
                    SELECT FROM carillon.delivery_attempts o
                    WHERE o.notification_id = p.id AND o.kind = 'push' AND o.outcome IN ('retry', 'failed')
                        AND o.at >= $3::timestamptz - interval '1 hour')))
                AND NOT EXISTS (
                    SELECT FROM carillon.follow_ups f
                    WHERE f.user_id = p.user_id AND f.notification_id = p.id
                        AND f.kind = '\(FollowUp.release.rawValue)')
        ) d ON true
        ORDER BY p.moment, p.id
        """
}
