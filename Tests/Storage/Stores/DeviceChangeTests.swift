// Carillon · DeviceChangeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Testing

@Suite(.timeLimit(.minutes(10)))
struct DeviceChangeTests {
    private static func device(_ token: String, user: String = "a", deviceID: String?, at second: Int64 = 0) -> Device {
        var device = Samples.device(user: user, token: token, at: second)
        device.deviceID = deviceID
        return device
    }

    @Test("replaces the old token of a device and leaves other devices alone")
    func replacing() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices
            _ = try await devices.registerReplacing(Self.device("t1", deviceID: "phone"))
            _ = try await devices.registerReplacing(Self.device("t2", deviceID: "tablet", at: 1))
            _ = try await devices.registerReplacing(Self.device("t3", deviceID: nil, at: 2))
            _ = try await devices.registerReplacing(Self.device("t4", user: "b", deviceID: "phone", at: 3))
            let again = try await devices.registerReplacing(Self.device("t5", deviceID: "phone", at: 4)).device
            #expect(again.token == "t5")
            #expect(try await devices.list(user: "a").map(\.token) == ["t5", "t3", "t2"])
            #expect(try await devices.list(user: "b").map(\.token) == ["t4"])
            // A request that began earlier and ends later leaves the newer token alone.
            _ = try await devices.registerReplacing(Self.device("t6", deviceID: "phone", at: 3))
            #expect(try await devices.list(user: "a").map(\.token) == ["t5", "t6", "t3", "t2"])
        }
    }

    @Test("keeps registration time and push switch when a device registers again, but not for another user")
    func again() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices
            let first = try await devices.register(Self.device("t", deviceID: nil), silenced: true).device
            #expect(first.isSilenced)
            let again = try await devices.register(Self.device("t", deviceID: nil, at: 60)).device
            #expect(again.isSilenced)
            #expect(again.createdAt == first.createdAt)
            #expect(again.registeredAt == Samples.start + .seconds(60))
            let heard = try await devices.register(Self.device("t", deviceID: nil, at: 61), silenced: false)
            #expect(heard.device.getsPushes)
            _ = try await devices.setSilenced(true, user: "a", id: first.id)
            let moved = try await devices.register(Self.device("t", user: "b", deviceID: nil, at: 120)).device
            #expect(moved.createdAt == Samples.start + .seconds(120))
            #expect(moved.getsPushes, "the switch of the last user does not count for the next")
        }
    }

    @Test("removes all devices of an app and a provider, and no others")
    func removingAll() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices
            for token in ["t1", "t2"] { _ = try await devices.register(Self.device(token, deviceID: nil)) }
            _ = try await devices.register(Self.device("t3", user: "b", deviceID: nil))
            let one = try #require(try await devices.list(user: "a").first)
            #expect(try await devices.removeAll(user: "a", app: "another", provider: one.provider) == 0)
            #expect(try await devices.removeAll(user: "a", app: one.app, provider: one.provider) == 2)
            #expect(try await devices.list(user: "b").count == 1)
        }
    }

    @Test("updates time and token on a touch and takes the token from its previous device")
    func touching() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices
            let mine = try await devices.register(Self.device("t1", deviceID: nil)).device
            _ = try await devices.register(Self.device("t2", user: "b", deviceID: nil))
            let later = Samples.start + .seconds(60)
            let seen = try await devices.touch(
                user: "a", id: mine.id, change: .init(deviceID: "phone", appVersion: "2.1", locale: "de"), at: later)
            #expect(seen?.token == "t1")
            #expect(seen?.lastUsedAt == later)
            #expect(seen?.registeredAt == mine.registeredAt)
            #expect(seen?.deviceID == "phone")
            let moved = try await devices.touch(
                user: "a", id: mine.id, change: .init(token: "t2", appVersion: .some(nil)), at: later)
            #expect(moved?.id == mine.id)
            #expect(moved?.token == "t2")
            #expect(moved?.registeredAt == later)
            #expect(moved?.deviceID == "phone")
            #expect(moved?.appVersion == nil && moved?.locale == "de")
            #expect(moved?.createdAt == mine.registeredAt)
            #expect(try await devices.list(user: "b").isEmpty)
            let foreign = try await devices.touch(user: "b", id: mine.id, change: .init(token: "t9"), at: later)
            #expect(foreign == nil)
            #expect(try await devices.list(user: "a").map(\.token) == ["t2"])
        }
    }
}
