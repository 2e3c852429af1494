// Carillon · DeviceStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Testing

@Suite(.timeLimit(.minutes(10)))
struct DeviceStoreTests {
    @Test("moves a token to the user who registers it")
    func ownership() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices
            let first = try await devices.register(Samples.device(user: "a", token: "t")).device
            let second = try await devices.register(Samples.device(user: "b", token: "t", at: 1)).device
            #expect(second.id == first.id)
            #expect(try await devices.list(user: "a").isEmpty)
            #expect(try await devices.list(user: "b").map(\.token) == ["t"])
            #expect(try await devices.remove(user: "a", id: first.id) == false)
            #expect(try await devices.remove(user: "b", token: "t"))
        }
    }

    @Test("replaces a device of the same name and switches the stalest beyond the limit off")
    func limits() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices(limits: DeviceLimits(ofApps: ["default": 5]))
            _ = try await devices.register(Samples.device(user: "a", token: "old", name: "phone"))
            _ = try await devices.register(Samples.device(user: "a", token: "new", name: "phone", at: 1))
            #expect(try await devices.list(user: "a").map(\.token) == ["new"])
            for number in 2...5 {
                let registration = try await devices.register(
                    Samples.device(user: "a", token: "t\(number)", at: Int64(number)))
                #expect(registration.switchedOff.isEmpty)
            }
            let last = try await devices.register(Samples.device(user: "a", token: "t6", at: 6))
            #expect(last.device.isActive && last.switchedOff.map(\.token) == ["new"])
            #expect(last.switchedOff.first?.deactivatedReason == "too_many_devices")
            let active = try await Database(pool).recipients.activeDevices(["a"])[ExactText("a")]?.map(\.token)
                .sorted()
            #expect(active == ["t2", "t3", "t4", "t5", "t6"])
            let stale = try await devices.list(user: "a").first { $0.token == "new" }
            #expect(stale?.deactivatedReason == "too_many_devices")
        }
    }

    @Test("limits the devices of each app separately")
    func limitsOfApps() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices(limits: DeviceLimits(standard: 3, ofApps: ["news": 1]))
            for number in 1...4 {
                for app in ["default", "news"] {
                    var device = Samples.device(user: "a", token: "t\(number)", at: Int64(number))
                    device.app = app
                    _ = try await devices.register(device)
                }
            }
            let active = try await devices.list(user: "a").filter(\.isActive).map { "\($0.app) \($0.token)" }
            #expect(active.sorted() == ["default t2", "default t3", "default t4", "news t4"])
            #expect(DeviceLimits().limit(of: "default") == 20)
        }
    }

    /// The audit entries of tokens, in order.
    private static func audit(_ pool: PostgresPool) async throws -> [String] {
        let rows = try await pool.query(
            """
            SELECT a.user_id, a.outcome, a.reason FROM carillon.delivery_attempts a WHERE a.kind = 'token'
            ORDER BY a.at, a.user_id, a.outcome
            """
        )
        return try rows.map { "\(try $0.text(0)) \(try $0.text(1)) \(try $0.text(2))" }
    }

    @Test("records every change of a token in the audit")
    func audited() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices
            let first = try await devices.register(Samples.device(user: "a", token: "t", name: "phone")).device
            _ = try await devices.register(Samples.device(user: "a", token: "t", name: "phone", at: 1))
            var expected = ["a registered new"]
            #expect(try await Self.audit(pool) == expected)

            _ = try await devices.register(Samples.device(user: "b", token: "t", at: 2))
            expected += ["a removed moved", "b registered moved"]
            #expect(try await Self.audit(pool) == expected)

            _ = try await devices.register(Samples.device(user: "b", token: "u", name: "x", at: 3))
            _ = try await devices.register(Samples.device(user: "b", token: "v", name: "x", at: 4))
            expected += ["b registered new", "b registered new", "b removed replaced"]
            #expect(try await Self.audit(pool) == expected)

            // Touched without a token and with a new one.
            for token in [nil, "t", "w"] {
                _ = try await devices.touch(
                    user: "b", id: first.id, change: .init(token: token), at: Samples.start + .seconds(5))
            }
            expected += ["b registered new_token"]
            #expect(try await Self.audit(pool) == expected)
            // Taking the token of the user's other device removes that device.
            _ = try await devices.touch(
                user: "b", id: first.id, change: .init(token: "v"), at: Samples.start + .seconds(6))
            expected += ["b registered new_token", "b removed replaced"]
            #expect(try await Self.audit(pool) == expected)

            try await pool.query("UPDATE carillon.devices SET active = false")
            _ = try await devices.register(Samples.device(user: "b", token: "v", at: 7))
            expected += ["b registered again"]
            #expect(try await Self.audit(pool) == expected)

            #expect(try await devices.remove(user: "a", id: first.id) == false)
            #expect(try await devices.remove(user: "b", id: first.id))
            #expect(try await devices.remove(user: "b", id: first.id) == false)
            #expect(try await Set(Self.audit(pool)) == Set(expected + ["b removed unregistered"]))
        }
    }

    @Test("records surplus devices and replaced tokens in the audit")
    func auditOfLimits() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices(limits: DeviceLimits(standard: 5))
            for number in 1...6 {
                _ = try await devices.register(Samples.device(user: "a", token: "t\(number)", at: Int64(number)))
            }
            let added = [String](repeating: "a registered new", count: 6)
            #expect(try await Self.audit(pool).sorted() == (added + ["a deactivated too_many_devices"]).sorted())

            for (number, token) in ["old", "new"].enumerated() {
                var device = Samples.device(user: "b", token: token, at: Int64(10 + number))
                device.deviceID = "d1"
                _ = try await devices.registerReplacing(device)
            }
            let ofOther = try await Self.audit(pool).filter { $0.hasPrefix("b ") }
            #expect(ofOther == ["b registered new", "b registered new", "b removed replaced"])
        }
    }

    @Test("switches a dead token off only when it was registered before the evidence")
    func deadTokens() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices
            let deliveries = Database(pool).deliveries
            let device = try await devices.register(Samples.device(user: "a", token: "t", at: 100)).device
            var settlement = DeliveryStore.Settlement()
            settlement.deadTokens = [(device.id, "Unregistered", Samples.start + .seconds(50))]
            #expect(try await deliveries.settle(settlement).devices.isEmpty)
            #expect(try await devices.list(user: "a").first?.isActive == true)
            settlement.deadTokens = [(device.id, "Unregistered", Samples.start + .seconds(150))]
            #expect(try await deliveries.settle(settlement).devices == [device.id])
            #expect(try await deliveries.settle(settlement).devices.isEmpty, "the device is already off")
            #expect(try await devices.list(user: "a").first?.isActive == false)
            #expect(try await devices.list(user: "a").first?.deactivatedReason == "Unregistered")
        }
    }
}
