// Carillon · DeliveryStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Postgres
import Stores
import Testing

@Suite(.timeLimit(.minutes(10)))
struct DeliveryStoreTests {
    @Test("facts are read as they stand now, and an accepted attempt is remembered for repeats")
    func facts() async throws {
        try await Samples.withStores { pool in
            let deliveries = DeliveryStore(pool: pool)
            let device = try await DeviceStore(pool: pool).register(Samples.device(user: "a", token: "t"))
            let notification = Samples.notification(1, user: "a") { $0.extras.badge = 7 }
            _ = try await NotificationStore(pool: pool).store([notification], areRepeats: false)
            let unknown = NotificationID(high: 1, low: 2)
            let found = try await deliveries.facts([
                ("a", notification.id, device.id, true), ("a", unknown, device.id, false),
            ])
            #expect(found[0]?.device.token == "t")
            #expect(found[0]?.notification.extras.badge == 7)
            #expect(found[0]?.unread == 1)
            #expect(found[0]?.wasAccepted == false)
            #expect(found[1] == nil)

            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: Timestamp(seconds: 1),
                    user: "a",
                    notification: notification.id,
                    device: device.id,
                    provider: .fcm,
                    kind: "push",
                    attempt: 1,
                    outcome: .accepted
                )
            ]
            settlement.accepted = [("a", notification.id, "fcm")]
            try await deliveries.settle(settlement)
            let again = try await deliveries.facts([
                ("a", notification.id, device.id, true), ("a", notification.id, device.id, false),
            ])
            #expect(again[0]?.wasAccepted == true)
            // Not asked for a first delivery, which spares the look.
            #expect(again[1]?.wasAccepted == false)
            #expect(again[0]?.notification.status == .sent)
        }
    }

    @Test("a failure on one device does not undo another's acceptance, and the other way round")
    func outcomes() async throws {
        try await Samples.withStores { pool in
            let store = NotificationStore(pool: pool)
            let deliveries = DeliveryStore(pool: pool)
            let batch = [Samples.notification(1, user: "a"), Samples.notification(2, user: "a")]
            _ = try await store.store(batch, areRepeats: false)
            var accepted = DeliveryStore.Settlement()
            accepted.accepted = batch.map { ("a", $0.id, "fcm") }
            var failed = DeliveryStore.Settlement()
            failed.failed = batch.map { ("a", $0.id, "UNREGISTERED") }
            try await deliveries.settle(accepted)
            try await deliveries.settle(failed)
            #expect(try await store.load([("a", batch[0].id)]).first?.status == .sent)
            let late = [Samples.notification(3, user: "b")]
            _ = try await store.store(late, areRepeats: false)
            failed.failed = [("b", late[0].id, "UNREGISTERED")]
            try await deliveries.settle(failed)
            #expect(try await store.load([("b", late[0].id)]).first?.status == .failed)
            accepted.accepted = [("b", late[0].id, "apns")]
            try await deliveries.settle(accepted)
            #expect(try await store.load([("b", late[0].id)]).first?.status == .sent)
        }
    }
}
