// Carillon · TraceStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Postgres
import Stores
import Testing

@Suite("Stores: traces", .timeLimit(.minutes(10)))
struct TraceStoreTests {
    @Test("what became of its user's tokens while it was to be sent is part of a record")
    func tokens() async throws {
        try await Samples.withStores { pool in
            let devices = DeviceStore(pool: pool)
            _ = try await devices.register(Samples.device(user: "a", token: "before", at: -10))
            let notification = Samples.notification(0, user: "a") { $0.expiresAt = Samples.start + .seconds(600) }
            _ = try await NotificationStore(pool: pool).store([notification], areRepeats: false)
            try await pool.query("UPDATE carillon.notifications SET stored_at = created_at")
            for (user, token, second) in [("a", "meanwhile", 60), ("b", "another's", 60), ("a", "after", 600)] {
                _ = try await devices.register(Samples.device(user: user, token: token, at: Int64(second)))
            }
            let record = try #require(try await TraceStore(pool: pool).record(notification.id, user: "a"))
            #expect(record.attempts.map(\.kind) == ["token"])
            #expect(record.attempts.first?.at == Samples.start + .seconds(60))
            #expect(record.attempts.first?.outcome == "registered")
            #expect(record.attempts.first?.reason == "new")
        }
    }

    @Test("without its user a notification is found by its attempts, or near the moment of its id")
    func search() async throws {
        try await Samples.withStores { pool in
            let store = TraceStore(pool: pool)
            let batch = (0..<3).map { Samples.notification($0, user: "u\($0)") }
            _ = try await NotificationStore(pool: pool).store(batch, areRepeats: false)
            // The first was stored at once, the others an hour late; of the second a send is on record.
            try await pool.query(
                """
                UPDATE carillon.notifications
                SET stored_at = created_at + CASE WHEN user_id = 'u0' THEN interval '1 second' ELSE interval '1 hour' END
                """
            )
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: batch[1].createdAt + .seconds(3_600), user: "u1", notification: batch[1].id, device: nil,
                    provider: .fcm, kind: "push", attempt: 1, outcome: .accepted)
            ]
            try await DeliveryStore(pool: pool).settle(settlement)
            for (index, isFound) in [true, true, false].enumerated() {
                let record = try await store.record(batch[index].id, user: nil)
                #expect((record?.notification.user == "u\(index)") == isFound)
                #expect(try await store.record(batch[index].id, user: "u\(index)") != nil)
            }
        }
    }
}
