// Carillon · NotificationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Notifications", .timeLimit(.minutes(10)))
struct NotificationTests {
    @Test("a proof is awaited while it can still change something; a starting SignalR client proves fewer")
    func awaitsProof() {
        typealias Row = (
            status: NotificationStatus, reason: String?, decision: String?, expiresIn: Int?, isAwaited: Bool,
            isAwaitedFirst: Bool
        )
        let table: [Row] = [
            (.pending, nil, nil, nil, true, true),
            (.sent, "unproven", nil, nil, true, true),
            (.sent, "capped_by_user", "capped_by_user", nil, true, false),
            (.sent, "no_device", nil, nil, false, false),
            (.sent, "no_device", "capped_by_user", nil, false, false),
            (.sent, nil, nil, nil, false, false),
            (.failed, "UNREGISTERED", nil, 1, true, false),
            (.failed, "UNREGISTERED", nil, 0, false, false),
            (.delivered, nil, nil, nil, false, false),
            (.expired, nil, nil, nil, false, false),
            (.suppressed, nil, nil, nil, false, false),
            (.deferred, nil, nil, nil, false, false),
            (.cancelled, nil, nil, nil, false, false),
        ]
        for row in table {
            var notification = Notification(
                id: NotificationID(high: 1, low: 1), user: "u1", type: "greeting", createdAt: Facts.now)
            notification.status = row.status
            notification.statusReason = row.reason
            notification.decision = row.decision
            notification.expiresAt = row.expiresIn.map { Facts.now + .seconds($0) }
            for (shape, isStart) in [(NotificationShape.canonical, false), (.canonical, true), (.camelCase, false)] {
                let isAwaited = notification.awaitsProof(in: shape, isStart: isStart, now: Facts.now)
                #expect(isAwaited == row.isAwaited, "\(row) \(shape) \(isStart)")
            }
            let isAwaitedFirst = notification.awaitsProof(in: .camelCase, isStart: true, now: Facts.now)
            #expect(isAwaitedFirst == row.isAwaitedFirst, "\(row)")
        }
    }
}
