// Carillon · RateLimitTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

/// The scripts that protect the gateway, on a real Redis.
@Suite("Token buckets and presence states", .timeLimit(.minutes(10)))
struct TokenBucketsTests {
    @Test("grants the burst at once, then returns the delay, for each user and kind")
    func bucket() async throws {
        try await TestRedis.with { connection, prefix in
            let buckets = Live(connection, keys: Keyspace(prefix: prefix)).buckets
            func take(_ count: Int, _ kind: TokenBuckets.Kind = .calls, _ user: String = "u") async throws -> Int64 {
                try await buckets.take(count, kind: kind, user: user, perSecond: 1, burst: 3_600)
            }
            #expect(try await take(2_000) == 0)
            #expect(try await take(1_600) == 0)
            // One token a second; a few seconds may have passed.
            let delay = try await take(100)
            #expect((40_000...100_000).contains(delay), "\(delay)")
            #expect(try await take(10, .messages) == 0)
            #expect(try await take(10, .calls, "v") == 0)
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
            func take(
                _ count: Int, _ user: String = "u", _ kind: TokenBuckets.Kind = .retractions
            ) async throws -> Int {
                try await buckets.takeAvailable(count, kind: kind, user: user, perSecond: 1, burst: 3_600).taken
            }
            #expect(try await take(3_000) == 3_000)
            // One token a second; a few seconds may have passed.
            let rest = try await take(5_000)
            #expect((600...660).contains(rest), "\(rest)")
            #expect((0...60).contains(try await take(100)))
            #expect(try await take(5_000, "v") == 3_600)
            #expect(try await take(5_000, "v", .ownSends) == 3_600)
            #expect(try await take(0, "w") == 0)
        }
    }

    @Test("a bucket of one token a minute has the next one after the wait that it returned")
    func slow() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let key = keys.bucket("own_sends", "u")
            func take() async throws -> (taken: Int, wait: Int64) {
                try await Live(connection, keys: keys).buckets.takeAvailable(
                    1, kind: .ownSends, user: "u", perSecond: 1.0 / 60, burst: 60)
            }
            // Acts as if this time had passed: the key holds the moment when the bucket is full, in
            // ms.
            func pass(_ milliseconds: Int64) async throws {
                let full = try await connection.send("GET", .text(key)).string().flatMap { Double($0) }
                let earlier = try #require(full) - Double(milliseconds)
                try await connection.send("SET", .text(key), .text("\(earlier)"), "KEEPTTL")
            }
            for _ in 0..<60 { #expect(try await take().taken == 1) }
            let (taken, wait) = try await take()
            #expect(taken == 0)
            #expect((30_000...60_000).contains(wait), "\(wait)")
            #expect((3_570_000...3_600_000).contains(try await connection.send("PTTL", .text(key)).integer()))
            try await pass(wait / 2)
            let (early, rest) = try await take()
            #expect(early == 0)
            try await pass(rest)
            #expect(try await take().taken == 1)
        }
    }

    @Test("fills a bucket whose time lies ahead, because Redis's clock has stepped back")
    func steppedBack() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let live = Live(connection, keys: keys)
            let ahead = (try await live.survey.time() + .seconds(86_400)).milliseconds
            try await connection.send("SET", .text(keys.bucket("retract", "u")), .integer(ahead))
            let (taken, wait) = try await live.buckets.takeAvailable(
                20, kind: .retractions, user: "u", perSecond: 2, burst: 20)
            #expect(taken == 20)
            #expect(wait == 500)
        }
    }

    @Test("shares a bucket between two processes")
    func shared() async throws {
        let (rate, burst) = (40.0, 10)
        try await TestRedis.with { first, prefix in
            try await TestRedis.with(try await TestRedis.configuration(clientName: "second")) { second in
                let keys = Keyspace(prefix: prefix)
                let processes = [first, second].map { Live($0, keys: keys).buckets }
                // The bucket uses Redis's clock.
                let survey = Live(first, keys: keys).survey
                let start = try await survey.time()
                var taken = [0, 0]
                while taken.reduce(0, +) < 60 {
                    var waits: [Int64] = []
                    // The process that has fewer asks first.
                    for index in taken[0] <= taken[1] ? [0, 1] : [1, 0] {
                        let (count, wait) = try await processes[index].takeAvailable(
                            2, account: "fcm:default", perSecond: rate, burst: burst)
                        taken[index] += count
                        if count == 0 { waits.append(wait) }
                    }
                    // Waits as dispatchers do: the bucket returns the delay, on Redis's clock.
                    if waits.count == 2, let wait = waits.min() { try await Task.sleep(for: .milliseconds(wait)) }
                }
                let seconds = (try await survey.time() - start) / .seconds(1)
                #expect(Double(taken.reduce(0, +)) <= Double(burst) + rate * seconds + 1)
                #expect(taken.allSatisfy { $0 >= 5 }, "\(taken)")
            }
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
            _ = try await presence.register(registered.map { ("u", $0) })
            let later = since + .seconds(5)
            try await presence.setStates(
                [("u", "one", .idle, later), ("u", "gone", .idle, later), ("v", "one", .idle, later)])
            func connections() async throws -> [ConnectionPresence] {
                guard case .online(let connections) = try await presence.lookUp(["u"]).first else { return [] }
                return connections.sorted { $0.connection < $1.connection }
            }
            func first(_ state: ConnectionPresence.State, after seconds: Int64) -> ConnectionPresence {
                ConnectionPresence(
                    connection: "one", node: "n", dialect: .native, state: state, since: since,
                    stateSince: since + .seconds(seconds))
            }
            #expect(try await connections() == [first(.idle, after: 5), registered[1]])
            #expect(try await presence.lookUp(["v"]) == [.offline])
            try await presence.setStates([("u", "one", .active, since + .seconds(9))])
            #expect(try await connections() == [first(.active, after: 9), registered[1]])
        }
    }
}

/// Counts of a user's recent interruptions, on a real Redis.
@Suite("Usage caps", .timeLimit(.minutes(10)))
struct UsageCapsTests {
    private static let now = Timestamp(seconds: 1_795_000_000)
    private static let byType = UsageCaps.Cap(name: "type:news", limit: FrequencyCap(count: 2, window: .seconds(60)))
    private static let byUser = UsageCaps.Cap(name: "user", limit: FrequencyCap(count: 3, window: .seconds(3_600)))

    private static func use(_ number: UInt64, user: String = "ada") -> UsageCaps.Use {
        UsageCaps.Use(user: user, notification: NotificationID(high: 1, low: number), caps: [Self.byType, Self.byUser])
    }

    @Test("counts a notification once, none over the cap, and nothing when it only looks")
    func counts() async throws {
        try await TestRedis.with { connection, prefix in
            let usage = Live(connection, keys: Keyspace(prefix: prefix)).usageCaps
            func reached(at moment: Timestamp, user: String = "ada") async throws -> Int? {
                try await usage.reached([Self.byType, Self.byUser], user: user, now: moment)
            }
            for _ in 0..<3 { #expect(try await reached(at: Self.now) == nil) }
            let first = try await usage.use([Self.use(1), Self.use(1), Self.use(2)], now: Self.now)
            #expect(first == [nil, nil, nil])
            #expect(try await reached(at: Self.now) == 0)
            #expect(try await usage.use([Self.use(3), Self.use(1)], now: Self.now) == [0, nil])
            #expect(try await reached(at: Self.now, user: "bob") == nil)
            // A minute later the span of the type is over, to the millisecond; the user's is not.
            #expect(try await reached(at: Self.now + .milliseconds(59_999)) == 0)
            let later = Self.now + .seconds(60)
            #expect(try await reached(at: later) == nil)
            #expect(try await usage.use([Self.use(4)], now: later) == [nil])
            #expect(try await reached(at: later) == 1)
            #expect(try await usage.use([Self.use(5)], now: later) == [1])
        }
    }

    @Test("counts a notification again as of now, once, and not when a cap holds it back")
    func recount() async throws {
        try await TestRedis.with { connection, prefix in
            let usage = Live(connection, keys: Keyspace(prefix: prefix)).usageCaps
            let first = try await usage.use([Self.use(1), Self.use(2)], now: Self.now)
            #expect(first == [nil, nil])
            // The repeated count reaches the cap.
            let later = Self.now + .seconds(30)
            #expect(try await usage.use([Self.use(2), Self.use(2)], now: later, recounts: true) == [nil, nil])
            // A minute after the first count the other count has left the span and this one has
            // not.
            let end = Self.now + .seconds(60)
            #expect(try await usage.use([Self.use(3)], now: end) == [nil])
            #expect(try await usage.use([Self.use(1), Self.use(3)], now: end, recounts: true) == [0, nil])
            // The user's cap of three has room for one more when the type's has.
            let last = later + .seconds(60)
            #expect(try await usage.use([Self.use(4), Self.use(5)], now: last) == [nil, 0])
            #expect(try await usage.use([Self.use(6)], now: end + .seconds(60)) == [1])
        }
    }

    @Test("counts nothing that lies ahead, because the clock has stepped back", arguments: [false, true])
    func steppedBack(recounts: Bool) async throws {
        try await TestRedis.with { connection, prefix in
            let usage = Live(connection, keys: Keyspace(prefix: prefix)).usageCaps
            let first = try await usage.use([Self.use(1), Self.use(2)], now: Self.now + .seconds(86_400))
            #expect(first == [nil, nil])
            let reached = try await usage.reached([Self.byType, Self.byUser], user: "ada", now: Self.now)
            #expect(reached == nil)
            let then = try await usage.use(
                [Self.use(3), Self.use(4), Self.use(5)], now: Self.now, recounts: recounts)
            #expect(then == [nil, nil, 0])
            // A call that had to be repeated comes with an earlier time.
            let earlier = try await usage.use([Self.use(6)], now: Self.now - .seconds(10), recounts: recounts)
            #expect(earlier == [0])
        }
    }
}

/// Pauses of accounts that dispatchers share on a real Redis.
@Suite(.timeLimit(.minutes(10)))
struct SendingPausesTests {
    private static let now = Timestamp(seconds: 1_795_000_000)

    private static func pause(
        _ account: String, _ seconds: Int64, provider: Provider = .fcm, service: String? = nil
    ) -> SendingPauses.Pause {
        SendingPauses.Pause(
            provider: provider, account: account, service: service, until: Self.now + .seconds(seconds))
    }

    @Test("shares the latest pause of each account within a provider")
    func latest() async throws {
        try await TestRedis.with { first, prefix in
            try await TestRedis.with(try await TestRedis.configuration(clientName: "second")) { second in
                let keys = Keyspace(prefix: prefix)
                let mine = Live(first, keys: keys).sendingPauses
                let theirs = Live(second, keys: keys).sendingPauses
                func hear(_ after: Int64 = 0) async throws -> [SendingPauses.Pause] {
                    try await theirs.exchange([], of: [.fcm, .webpush], now: Self.now + .seconds(after))
                        .sorted { $0.account < $1.account }
                }
                let nothing = try await hear()
                #expect(nothing.isEmpty)
                let unshared = [
                    Self.pause("one", 60), Self.pause("one", 30), Self.pause("two", 20),
                    Self.pause("my app", 10, provider: .webpush, service: "https://push.example"),
                    Self.pause("one", 600, provider: .apns),
                ]
                #expect(try await mine.exchange(unshared, of: [], now: Self.now).isEmpty)
                #expect(
                    try await hear() == [
                        Self.pause("my app", 10, provider: .webpush, service: "https://push.example"),
                        Self.pause("one", 60), Self.pause("two", 20),
                    ])
                // An earlier end shortens nothing, a later one wins, and the sender reads it in the
                // same round trip.
                #expect(
                    try await theirs.exchange(
                        [Self.pause("one", 40), Self.pause("two", 40)], of: [.fcm], now: Self.now
                    ).sorted { $0.account < $1.account } == [Self.pause("one", 60), Self.pause("two", 40)])
                #expect(try await hear(40) == [Self.pause("one", 60)], "an ended pause is not shared")
                #expect(try await hear(60).isEmpty)
            }
        }
    }

    @Test("replaces a pause that ends too late, because the clock has stepped back")
    func steppedBack() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let pauses = Live(redis, keys: keys).sendingPauses
            let ahead = [Self.pause("one", 86_460), Self.pause("two", 86_460)]
            _ = try await pauses.exchange(ahead, of: [], now: Self.now + .seconds(86_400))
            let stale = try await pauses.exchange([], of: [.fcm], now: Self.now)
            #expect(stale.isEmpty)
            let heard = try await pauses.exchange([Self.pause("one", 60)], of: [.fcm], now: Self.now)
            #expect(heard == [Self.pause("one", 60)])
            let key = RedisArgument.text(keys.pauses(.fcm))
            #expect(try await redis.send("HKEYS", key).strings() == ["- one"])
            #expect((1...60_000).contains(try await redis.send("PTTL", key).integer()))
        }
    }

    @Test("drops ended pauses with the next announcement and the key with the last")
    func end() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let pauses = Live(redis, keys: keys).sendingPauses
            let key = RedisArgument.text(keys.pauses(.fcm))
            _ = try await pauses.exchange([Self.pause("one", 60), Self.pause("two", 20)], of: [], now: Self.now)
            var left = try await redis.send("PTTL", key).integer()
            #expect((1...60_000).contains(left) && left > 20_000)
            _ = try await pauses.exchange([Self.pause("three", 30)], of: [], now: Self.now + .seconds(25))
            #expect(try await redis.send("HKEYS", key).strings().sorted() == ["- one", "- three"])
            left = try await redis.send("PTTL", key).integer()
            #expect((1...35_000).contains(left))
            _ = try await pauses.exchange([Self.pause("one", 10)], of: [], now: Self.now + .seconds(61))
            #expect(try await redis.send("EXISTS", key).integer() == 0)
        }
    }
}
