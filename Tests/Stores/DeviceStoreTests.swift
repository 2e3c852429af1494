// Carillon · DeviceStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
import Model
import Postgres
import Stores
import Testing

@Suite(.timeLimit(.minutes(10)))
struct DeviceStoreTests {
    @Test("one token, one owner: a token that another user registers moves to that user")
    func ownership() async throws {
        try await Samples.withStores { pool in
            let devices = DeviceStore(pool: pool)
            let first = try await devices.register(Samples.device(user: "a", token: "t"))
            let second = try await devices.register(Samples.device(user: "b", token: "t", at: 1))
            #expect(second.id == first.id)
            #expect(try await devices.list(user: "a").isEmpty)
            #expect(try await devices.list(user: "b").map(\.token) == ["t"])
            #expect(try await devices.remove(user: "a", id: first.id) == false)
            #expect(try await devices.remove(user: "b", token: "t"))
        }
    }

    @Test("the same name is replaced; of six devices the stalest is switched off")
    func limits() async throws {
        try await Samples.withStores { pool in
            let devices = DeviceStore(pool: pool)
            _ = try await devices.register(Samples.device(user: "a", token: "old", name: "phone"))
            _ = try await devices.register(Samples.device(user: "a", token: "new", name: "phone", at: 1))
            #expect(try await devices.list(user: "a").map(\.token) == ["new"])
            for number in 2...6 {
                _ = try await devices.register(Samples.device(user: "a", token: "t\(number)", at: Int64(number)))
            }
            let active = try await RecipientStore(pool: pool).activeDevices(["a"])[ExactText("a")]?.map(\.token)
                .sorted()
            #expect(active == ["t2", "t3", "t4", "t5", "t6"])
            let stale = try await devices.list(user: "a").first { $0.token == "new" }
            #expect(stale?.deactivatedReason == "too_many_devices")
        }
    }

    @Test("a dead token counts only against a registration older than its evidence")
    func deadTokens() async throws {
        try await Samples.withStores { pool in
            let devices = DeviceStore(pool: pool)
            let deliveries = DeliveryStore(pool: pool)
            let device = try await devices.register(Samples.device(user: "a", token: "t", at: 100))
            var settlement = DeliveryStore.Settlement()
            settlement.deadTokens = [(device.id, "Unregistered", Samples.start + .seconds(50))]
            try await deliveries.settle(settlement)
            #expect(try await devices.list(user: "a").first?.isActive == true)
            settlement.deadTokens = [(device.id, "Unregistered", Samples.start + .seconds(150))]
            try await deliveries.settle(settlement)
            #expect(try await devices.list(user: "a").first?.isActive == false)
            #expect(try await devices.list(user: "a").first?.deactivatedReason == "Unregistered")
        }
    }
}
