// Carillon · TokenBucketsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// The scripts behind the protection of the gateway, on a real Redis.
@Suite("Buckets and states in Redis", .timeLimit(.minutes(10)))
struct TokenBucketsTests {
    @Test("A bucket gives its burst at once, then tells how long it needs; users and kinds have their own")
    func bucket() async throws {
        try await TestRedis.with { connection, prefix in
            let buckets = Live(connection, keys: Keyspace(prefix: prefix)).buckets
            func take(_ count: Int, _ kind: String = "calls", _ user: String = "u") async throws -> Int64 {
                try await buckets.take(count, kind: kind, user: user, perSecond: 1, burst: 3_600)
            }
            #expect(try await take(2_000) == 0)
            #expect(try await take(1_600) == 0)
            // One a second, and some seconds may have passed already.
            let delay = try await take(100)
            #expect((40_000...100_000).contains(delay), "\(delay)")
            #expect(try await take(10, "messages") == 0)
            #expect(try await take(10, "calls", "v") == 0)
            // Far too much costs no more than a bucket's filling.
            let longest = try await take(100_000)
            #expect((3_540_000...3_600_000).contains(longest), "\(longest)")
            let key = "\(prefix)rate:calls:{u}"
            #expect((7_140_000...7_200_000).contains(try await connection.send("PTTL", .text(key)).integer()))
        }
    }

    @Test("Of more than a bucket holds as many are taken as there are, and no more are owed")
    func available() async throws {
        try await TestRedis.with { connection, prefix in
            let buckets = Live(connection, keys: Keyspace(prefix: prefix)).buckets
            func take(_ count: Int, _ user: String = "u") async throws -> Int {
                try await buckets.takeAvailable(count, kind: "retract", user: user, perSecond: 1, burst: 3_600)
            }
            #expect(try await take(3_000) == 3_000)
            // One a second, and some seconds may have passed already.
            let rest = try await take(5_000)
            #expect((600...660).contains(rest), "\(rest)")
            #expect((0...60).contains(try await take(100)))
            #expect(try await take(5_000, "v") == 3_600)
            #expect(try await take(0, "w") == 0)
        }
    }

    @Test("A state is changed where the connection is registered, and brings none back")
    func states() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let presence = PresenceRegistry(Live(connection, keys: keys))
            _ = try await Lease(key: keys.nodeLease("n"), value: "gateway", connection: connection).renew()
            let since = Timestamp(milliseconds: 1_795_000_000_000)
            let registered = ["one", "two"].map { name in
                ConnectionPresence(connection: name, node: "n", dialect: .native, state: .active, since: since)
            }
            try await presence.register(registered.map { ("u", $0) })
            try await presence.setStates(
                [("u", "one", .idle), ("u", "gone", .idle), ("v", "one", .idle)], at: since + .seconds(5))
            guard case .online(let connections) = try await presence.lookUp(["u"]).first else {
                Issue.record("the user is not online")
                return
            }
            let idle = ConnectionPresence(
                connection: "one", node: "n", dialect: .native, state: .idle, since: since,
                stateSince: since + .seconds(5))
            #expect(connections.sorted { $0.connection < $1.connection } == [idle, registered[1]])
            #expect(try await presence.lookUp(["v"]) == [.offline])
            try await presence.setStates([("u", "one", .active)], at: since + .seconds(9))
            guard case .online(let again) = try await presence.lookUp(["u"]).first else { return }
            #expect(again.allSatisfy { $0.state == .active })
        }
    }
}
