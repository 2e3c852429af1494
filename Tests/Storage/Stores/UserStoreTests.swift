// Carillon · UserStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Testing

@Suite(.timeLimit(.minutes(10)))
struct UserStoreTests {
    @Test("stores records of several users at once and returns the devices of each")
    func records() async throws {
        try await Samples.withStores { pool in
            let users = Database(pool).users
            let records = ["b", "a", "c"].map { user in
                var record = UserRecord(user: user)
                if user != "c" { record.devices = [Samples.device(user: user, token: "t-\(user)")] }
                record.preferences = ["x": TypePreference(push: false)]
                record.topics = ["news", "news"]
                return record
            }
            for _ in 0..<2 {
                let devices = try await users.put(records)
                #expect(devices.map { $0.map(\.device.token) } == [["t-b"], ["t-a"], []])
            }
            #expect(try await Database(pool).topics.topics(user: "a", limit: 10) == ["news"])
            #expect(try await Database(pool).preferences.preferences(user: "c")["x"]?.push == false)
        }
    }

    @Test("keeps the devices within an app's limit and names those that it switched off")
    func tooManyDevices() async throws {
        try await Samples.withStores { pool in
            let users = Database(pool).users(limits: DeviceLimits(standard: 2))
            var record = UserRecord(user: "a")
            record.devices = (1...3).map { Samples.device(user: "a", token: "t\($0)", at: Int64($0)) }
            let registrations = try #require(try await users.put([record]).first)
            #expect(registrations.map(\.device.isActive) == [false, true, true])
            #expect(registrations.flatMap(\.switchedOff).map(\.token) == ["t1"])
        }
    }

    @Test("keeps the latest time for known users")
    func lastSeen() async throws {
        try await Samples.withStores { pool in
            let users = Database(pool).users
            let now = Samples.start
            try await users.markSeen(["a", "b"], at: now)
            #expect(try await pool.query("SELECT FROM carillon.users").count == 0)
            _ = try await users.put([UserRecord(user: "a"), UserRecord(user: "b")])
            try await users.markSeen(["a", "b", "a"], at: now)
            try await users.markSeen(["a"], at: now + .seconds(5))
            try await users.markSeen(["b"], at: now + .seconds(-5))
            try await users.markSeen(["nobody", "a"], at: now)
            #expect(try await users.lastSeen(["b", "nobody", "a"]) == [now, nil, now + .seconds(5)])
            #expect(try await pool.query("SELECT FROM carillon.users").count == 2)
        }
    }

    @Test("exports every table with rows of a user")
    func exportIsWhole() async throws {
        try await Samples.withStores { pool in
            let tables = Set(try await Database(pool).users.tables().map(\.name))
            let exported =
                UserExportStore.Single.allCases.map(\.rawValue) + UserExportStore.Section.allCases.map(\.rawValue)
            #expect(tables.subtracting(exported).isEmpty, "add these to UserExportStore")
        }
    }

    @Test("limits a user's topics but not those that a service adds")
    func topicLimit() async throws {
        try await Samples.withStores { pool in
            let topics = Database(pool).topics
            let first = try await topics.subscribe(user: "u", topic: "a", limit: 2)
            #expect(first)
            #expect(try await topics.subscribe(user: "u", topic: "b", limit: 2))
            #expect(try await topics.subscribe(user: "u", topic: "c", limit: 2) == false)
            #expect(try await topics.subscribe(user: "u", topic: "a", limit: 2))
            #expect(try await topics.subscribe(user: "u", topic: "c"))
            #expect(try await topics.unsubscribe(user: "u", topic: "c"))
            #expect(try await topics.unsubscribe(user: "u", topic: "c") == false)
        }
    }
}
