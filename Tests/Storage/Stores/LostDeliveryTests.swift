// Carillon · LostDeliveryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

/// The deliveries that a repair appends again, because Redis may have lost them.
@Suite(.timeLimit(.minutes(10)))
struct LostDeliveryTests {
    @Test("finds deliveries that a device waits for although the notification is settled, page by page")
    func lost() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let deliveries = database.deliveries
            let devices = database.devices
            let phone = try await devices.register(Samples.device(user: "a", token: "phone", name: "phone")).device
            let tablet = try await devices.register(Samples.device(user: "a", token: "tablet", name: "tablet")).device
            let late = try await devices.register(Samples.device(user: "a", token: "late", name: "late", at: 120))
                .device
            let batch = (1...12).map { number in
                Samples.notification(number, user: "a") {
                    $0.channels = [.push]
                    if number == 6 { $0.expiresAt = Samples.start + .seconds(150) }
                }
            }
            _ = try await store.store(batch, areRepeats: false)
            try await database.pool.query(
                "UPDATE carillon.notifications SET stored_at = $1",
                .timestamptz((Samples.start + .seconds(60)).microseconds))
            try await database.pool.query("UPDATE carillon.devices SET pushed_since = registered_at")
            func settle(
                _ number: Int,
                _ device: Device,
                _ outcome: DeliveryStore.Outcome,
                _ reason: String? = nil
            ) async throws {
                let key = batch[number - 1].key
                var settlement = DeliveryStore.Settlement()
                settlement.attempts = [
                    DeliveryStore.Attempt(
                        at: Samples.start + .seconds(61), user: "a", notification: key.id, device: device.id,
                        provider: .fcm, kind: "push", attempt: 1, outcome: outcome, reason: reason)
                ]
                if outcome == .accepted { settlement.accepted = [(key, "fcm", device.id)] }
                if outcome == .failed { settlement.failed = [(key, "SMTP_550", false)] }
                try await deliveries.settle(settlement)
            }
            // 1: retry pending; 2: not tried; 4: failed with its mail, with a retry pending; 3:
            // retry on a device that registered later.
            for number in [1, 2, 4] { try await settle(number, phone, number == 4 ? .failed : .accepted) }
            for number in [1, 4] { try await settle(number, tablet, .retry, "UNAVAILABLE") }
            try await settle(3, phone, .accepted)
            try await settle(3, tablet, .accepted)
            try await settle(3, late, .retry, "UNAVAILABLE")
            // 5: ended; 6: expired; 7: read; 8: by socket; 9: postponed; 10: itself pending; 11:
            // refused.
            for number in [5, 6, 7, 9, 11] { try await settle(number, phone, .accepted) }
            try await store.mark([(batch[7].key, .sent, nil, "socket")])
            for number in [5, 6, 7, 8, 10] { try await settle(number, tablet, .retry, "UNAVAILABLE") }
            try await settle(5, tablet, .accepted)
            try await database.pool.query(
                "UPDATE carillon.notifications SET read_at = now() WHERE id = $1", .uuid(batch[6].id.halves))
            try await settle(9, tablet, .skipped, "quiet_hours")
            let release = FollowUpStore.Item(user: "a", notification: batch[8].id, kind: .release)
            try await database.followUps.postpone([(release, Samples.start, "quiet_hours")], now: Samples.start)
            try await settle(11, tablet, .skipped, "opted_out")

            func found(until: Duration) async throws -> [String] {
                var found: [String] = []
                var cursor = RepairCursor(Samples.start)
                while true {
                    let page = try await deliveries.lost(
                        handedOnSince: Samples.start, until: Samples.start + until, after: cursor,
                        now: Samples.start + .seconds(200), limit: 2)
                    for one in page.lost {
                        let number = batch.firstIndex { $0.id == one.notification }.map { $0 + 1 } ?? 0
                        found.append("\(number) \(one.device.token)")
                    }
                    guard let last = page.last else { return found.sorted() }
                    cursor = last
                }
            }
            #expect(try await found(until: .seconds(60)) == ["1 tablet", "2 tablet", "3 late", "4 tablet"])
            #expect(try await found(until: .seconds(59)).isEmpty)
            // A silenced device gets nothing.
            try await database.pool.query("UPDATE carillon.devices SET silenced = true WHERE token = 'tablet'")
            #expect(try await found(until: .seconds(60)) == ["3 late"])
        }
    }

    @Test("counts only notifications that were pushed towards a page of the repair")
    func lostPages() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let deliveries = database.deliveries
            let phone = try await database.devices.register(Samples.device(user: "a", token: "phone")).device
            let tablet = try await database.devices.register(Samples.device(user: "a", token: "tablet")).device
            let batch = (1...5).map { number in
                Samples.notification(number, user: "a") { $0.channels = number == 1 ? [.inApp] : [.inApp, .push] }
            }
            // One after the other, so that the pushed one is the last.
            for notification in batch { _ = try await store.store([notification], areRepeats: false) }
            let pushed = batch[4].id
            try await store.mark(batch.prefix(4).map { ($0.key, .sent, nil, "socket") })
            try await database.pool.query("UPDATE carillon.devices SET pushed_since = now() - interval '1 day'")
            let now = try await database.clock()
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: now, user: "a", notification: pushed, device: phone.id, provider: .fcm, kind: "push",
                    attempt: 1, outcome: .accepted)
            ]
            settlement.accepted = [(NotificationKey(user: "a", id: pushed), "fcm", phone.id)]
            try await deliveries.settle(settlement)
            let start = now + .seconds(-3_600)
            let page = try await deliveries.lost(
                handedOnSince: start, until: now, after: RepairCursor(start), now: now, limit: 1)
            #expect(page.lost.map(\.notification) == [pushed])
            #expect(page.lost.map(\.device.id) == [tablet.id])
        }
    }
}
