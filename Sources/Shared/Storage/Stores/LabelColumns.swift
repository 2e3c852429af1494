// Carillon · LabelColumns.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The columns of a ``NotificationLabel``, of the alias `n`.
enum LabelColumns {
    static let list = "n.user_id, n.id, n.type, n.category, n.org_id, n.job_id"
    static let count = 6

    static func read(_ row: PostgresRow, at start: Int = 0) throws(PostgresError) -> NotificationLabel {
        NotificationLabel(
            id: try row.id(start + 1),
            user: try row.text(start),
            type: try row.text(start + 2),
            category: try row.optionalText(start + 3),
            org: try row.text(start + 4),
            job: try row.optionalText(start + 5)
        )
    }
}

/// The columns of a ``NotificationLabel`` and of the channel that reached its user, from a table
/// `n` with the columns ``EndpointColumns/source`` and from the device `d` that got the push.
enum EndpointColumns {
    /// The columns that a changed row of an alias `n` returns.
    static let source = LabelColumns.list + ", n.sent_via, n.sent_device"
    static let list = LabelColumns.list + ", n.sent_via, d.id, d.platform, d.app"
    static let join = "LEFT JOIN carillon.devices d ON d.id = n.sent_device"

    static func read(
        _ row: PostgresRow,
        at start: Int = 0
    ) throws(PostgresError) -> (label: NotificationLabel, endpoint: LifecycleEvent.Endpoint) {
        let first = start + LabelColumns.count
        let label = try LabelColumns.read(row, at: start)
        guard let via = try row.optionalText(first), SentVia(rawValue: via) == nil else {
            // No provider was involved.
            return (label, LifecycleEvent.Endpoint(.inApp))
        }
        if via == Provider.email.rawValue { return (label, LifecycleEvent.Endpoint(.email)) }
        let device = try row.optionalID(first + 1)
        let platform = try row.optionalText(first + 2).flatMap { Platform(rawValue: $0) }
        let app = try row.optionalText(first + 3)
        return (label, LifecycleEvent.Endpoint(.push, device: device, platform: platform, app: app))
    }
}

/// A notification that ended as obsolete.
package struct EndedNotification: Sendable {
    let label: NotificationLabel
    let status: NotificationStatus
    let reason: String?

    /// Reads rows of the label's columns, the status and its reason.
    static func read(_ result: PostgresResult) throws(PostgresError) -> [EndedNotification] {
        var ended: [EndedNotification] = []
        for row in result {
            guard let status = NotificationStatus(rawValue: try row.text(LabelColumns.count)) else { continue }
            ended.append(
                EndedNotification(
                    label: try LabelColumns.read(row), status: status,
                    reason: try row.optionalText(LabelColumns.count + 1)))
        }
        return ended
    }

    /// The event of the end; nil if the status is not final, or if there is no reason: its mail was
    /// accepted, and that has its own event.
    package func event(at moment: Timestamp) -> LifecycleEvent? {
        guard self.reason != nil else { return nil }
        return LifecycleEvent.Kind(ending: self.status).map { kind in
            LifecycleEvent(
                kind, self.label, at: moment, channel: self.status == .sent ? .inApp : nil, reason: self.reason)
        }
    }
}
