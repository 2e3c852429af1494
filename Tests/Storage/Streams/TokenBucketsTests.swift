// Carillon · TokenBucketsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// The scripts that protect the gateway, on a real Redis.
@Suite("Token buckets and presence states", .timeLimit(.minutes(10)))
struct TokenBucketsTests {
    @Test("grants the burst at once, then returns the delay, for each user and kind")
    func bucket() async throws {
        try await TestRedis.with { connection, prefix in
            let buckets = Live(connection, keys: Keyspace(prefix: prefix)).buckets
            func take(_ count: Int, _ kind: String = "calls", _ user: String = "u") async throws -> Int64 {
                try await buckets.take(count, kind: kind, user: user, perSecond: 1, burst: 3_600)
            }
            #expect(try await take(2_000) == 0)
            #expect(try await take(1_600) == 0)
            // One token a second; a few seconds may have passed.
            let delay = try await take(100)
            #expect((40_000...100_000).contains(delay), "\(delay)")
            #expect(try await take(10, "messages") == 0)
            #expect(try await take(10, "calls", "v") == 0)
            // A huge request costs at most the time to fill the bucket.
            let longest = try await take(100_000)
            #expect((3_540_000...3_600_000).contains(longest), "\(longest)")
            let key = "\(prefix)rate:calls:{u}"
            #expect((7_140_000...7_200_000).contains(try await connection.send("PTTL", .text(key)).integer()))
        }
    }

    @Test("takes the tokens that are available and owes none")
    func available() async throws {
        try await TestRedis.with { connection, prefix in
            let buckets = Live(connection, keys: Keyspace(prefix: prefix)).buckets
            func take(_ count: Int, _ user: String = "u") async throws -> Int {
                try await buckets.takeAvailable(count, kind: "retract", user: user, perSecond: 1, burst: 3_600)
            }
            #expect(try await take(3_000) == 3_000)
            // One token a second; a few seconds may have passed.
            let rest = try await take(5_000)
            #expect((600...660).contains(rest), "\(rest)")
            #expect((0...60).contains(try await take(100)))
            #expect(try await take(5_000, "v") == 3_600)
            #expect(try await take(0, "w") == 0)
        }
    }

    @Test("changes the state of registered connections only")
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
                Issue.record("expected an online user")
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
