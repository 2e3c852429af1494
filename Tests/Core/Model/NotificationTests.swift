// Carillon · NotificationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Notifications", .timeLimit(.minutes(10)))
struct NotificationTests {
    @Test("a proof is awaited while it can still change something; a starting SignalR client proves fewer")
    func awaitsProof() {
        typealias Row = (
            status: NotificationStatus, reason: String?, decision: String?, age: Int, expiresIn: Int?,
            isAwaited: Bool, isAwaitedFirst: Bool
        )
        let days = 86_400
        let table: [Row] = [
            (.pending, nil, nil, 9 * days, nil, true, true),
            (.sent, "unproven", nil, 9 * days, nil, true, true),
            (.sent, "capped_by_user", "capped_by_user", 0, nil, true, false),
            (.sent, "no_device", nil, 0, nil, false, false),
            (.sent, "no_device", "capped_by_user", 0, nil, false, false),
            (.sent, nil, nil, 0, nil, false, false),
            (.failed, "UNREGISTERED", nil, 2 * days - 1, nil, true, false),
            (.failed, "UNREGISTERED", nil, 2 * days, nil, false, false),
            (.failed, "UNREGISTERED", nil, 9 * days, 1, true, false),
            (.failed, "UNREGISTERED", nil, 0, 0, false, false),
            (.delivered, nil, nil, 0, nil, false, false),
            (.expired, nil, nil, 0, nil, false, false),
            (.suppressed, nil, nil, 0, nil, false, false),
            (.deferred, nil, nil, 0, nil, false, false),
            (.cancelled, nil, nil, 0, nil, false, false),
        ]
        for row in table {
            var notification = Notification(
                id: NotificationID(high: 1, low: 1), user: "u1", type: "greeting",
                createdAt: Facts.now - .seconds(row.age))
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
