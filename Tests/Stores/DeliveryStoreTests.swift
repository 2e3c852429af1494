// Carillon · DeliveryStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
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

    @Test("a dead address counts only against one that was set before it was written to, be it the same again")
    func deadAddresses() async throws {
        try await Samples.withStores { pool in
            let preferences = PreferenceStore(pool: pool)
            let deliveries = DeliveryStore(pool: pool)
            var settings = UserSettings()
            settings.email = "a@example.com"
            try await preferences.set(user: "a", settings: settings)
            // The database has a clock of its own, between the two moments.
            let (before, after) = (Timestamp(seconds: 1), Timestamp(seconds: 32_000_000_000))
            func settle(_ address: String, at moment: Timestamp) async throws -> Bool {
                var settlement = DeliveryStore.Settlement()
                settlement.deadAddresses = [("a", address, "SMTP_550_5.1.1", moment)]
                return try await deliveries.settle(settlement).addresses == [ExactText("a")]
            }
            func isGood() async throws -> Bool {
                try await pool.query("SELECT 1 FROM carillon.user_settings WHERE email_invalid_at IS NULL").count == 1
            }
            #expect(try await !settle("a@example.com", at: before))
            #expect(try await isGood())
            #expect(try await !settle("other@example.com", at: after))
            #expect(try await isGood())
            // What leaves the address alone does not set it.
            _ = try await preferences.set(user: "a", settings: settings, keeping: [.general])
            #expect(try await settle("a@example.com", at: after))
            #expect(try await !isGood())
            try await preferences.set(user: "a", settings: settings)
            #expect(try await !settle("a@example.com", at: before))
            #expect(try await isGood())
            // One that was set before that was written down goes by its text.
            try await pool.query("UPDATE carillon.user_settings SET email_set_at = NULL")
            _ = try await preferences.set(user: "a", settings: settings, keeping: [.general])
            #expect(try await settle("a@example.com", at: before))
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
