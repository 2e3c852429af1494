// Carillon · StreamSurveyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

/// Surveys of waiting work in Redis.
@Suite(.timeLimit(.minutes(10)))
struct StreamSurveyTests {
    private static let now = Timestamp(seconds: 1_795_000_000)

    private static func work(_ number: UInt64, since: Timestamp?) -> DeliveryWork {
        let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number)
        return DeliveryWork(notification: id, device: id, user: "ada", attempt: 1, isRepeat: true, since: since)
    }

    @Test("lists a process for a minute after its lease has ended, and a living one whatever its clock says")
    func processes() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let survey = Live(redis, keys: keys).survey
            let now = try await survey.time()
            for (name, age) in [("ended", 30), ("gone", 90), ("slow", 3_600)] {
                let end = RedisArgument.integer((now + .seconds(-age)).milliseconds)
                for register in [keys.nodes, keys.dispatchers] {
                    try await redis.send("ZADD", .text(register), end, .text(name))
                }
            }
            for lease in [keys.nodeLease("slow"), keys.dispatcherLease("slow")] {
                try await redis.send("SET", .text(lease), "held")
            }
            let nodes = try await survey.nodes()
            #expect(nodes.map(\.id) == ["ended", "slow"] && nodes.map(\.isAlive) == [false, true])
            let dispatchers = try await survey.dispatchers()
            #expect(dispatchers.map(\.name) == ["ended", "slow"] && dispatchers.map(\.isAlive) == [false, true])
        }
    }

    /// Returns a count of a server's statistics.
    private static func count(_ name: String, _ redis: RedisClient) async throws -> Int {
        let text = try await redis.send("INFO", "stats").string() ?? ""
        let line = text.split(whereSeparator: \.isNewline).first { $0.hasPrefix("\(name):") }
        return line.flatMap { Int($0.drop { !$0.isNumber }) } ?? 0
    }

    @Test("reads only what it needs of an entry of half a million fields")
    func countless() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            let live = Live(redis, keys: Keyspace())
            var batch = RedisBatch()
            batch.append(
                entry: Array(repeating: (name: "a", value: Array("1".utf8)), count: 500_001),
                to: live.keys.jobs(.normal))
            try await redis.run(batch)
            let session = redis.session
            let before = try await Self.count("total_net_output_bytes", redis)
            let streams = try await live.survey.streams(of: [])
            let after = try await Self.count("total_net_output_bytes", redis)
            let found = try #require(streams.first { $0.lane == .normal })
            #expect(found.length == 1 && found.oldest != nil)
            #expect(after - before < 100_000)
            #expect(redis.session == session)
        }
    }

    @Test("reads the parts of a stream together, and adds up what is in them")
    func parts() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            let keys = Keyspace(parts: 16)
            let live = Live(redis, keys: keys)
            let users = (0..<20).map { "user-\($0)" }
            for (number, user) in users.enumerated() {
                let moment = Self.now + .seconds(Int64(number))
                try await redis.send(
                    "XADD", .text(keys.part(of: user).deliveries(.fcm, .normal)), .text("\(moment.milliseconds)-0"),
                    .text(DeliveryWork.field), .text("x"))
            }
            let stream = RedisArgument.text(keys.part(of: users[0]).deliveries(.fcm, .normal))
            try await redis.send("XGROUP", "CREATE", stream, "dispatchers", "0")
            try await redis.send("XREADGROUP", "GROUP", "dispatchers", "one", "COUNT", "1", "STREAMS", stream, ">")
            var batch = RedisBatch()
            live.retries.add(
                Self.work(1, since: Self.now + .seconds(-50)), due: Self.now, provider: .fcm, lane: .normal, in: &batch)
            let scopes = [BreakerScope("one"), BreakerScope("two", service: "https://push.example")]
            for (number, scope) in scopes.enumerated() {
                live.retries.add(
                    Self.work(UInt64(2 + number), since: Self.now + .seconds(-70 - Int64(number))),
                    due: Self.now + .seconds(9), provider: .fcm, lane: .normal, scope: scope, in: &batch)
            }
            try await redis.run(batch)
            let before = try await Self.count("total_reads_processed", redis)
            let streams = try await live.survey.streams()
            let after = try await Self.count("total_reads_processed", redis)
            let found = try #require(streams.first { $0.provider == .fcm && $0.lane == .normal })
            #expect(found.length == users.count && found.pending == 1 && found.consumers == 1)
            #expect(found.oldest == Self.now && found.oldestPending == Self.now)
            #expect(found.retries == 3 && found.nextRetry == Self.now)
            let due: [BreakerScope?: Timestamp] = [
                nil: Self.now, scopes[0]: Self.now + .seconds(9), scopes[1]: Self.now + .seconds(9),
            ]
            #expect(found.firstDue == due)
            #expect(found.waitingSince == Self.now + .seconds(-71))
            #expect(streams.reduce(0) { $0 + $1.length } == users.count)
            // One read for each stream and one for details; Redis may get a batch in pieces.
            #expect(after - before < 5 * streams.count)
        }
    }

    @Test("finds no pending entry in an overflow that is deleted while it is read")
    func deletedMeanwhile() async throws {
        try await TestRedis.with { redis, prefix in
            var batch = RedisBatch()
            batch.append("XPENDING", .text(Keyspace(prefix: prefix).overflow("gone")), .text(Keyspace.group))
            let reply = try #require(try await redis.send(batch).first)
            #expect(try StreamSurvey.oldest(reply) == nil)
        }
    }

    @Test("counts the overflows of all organisations as one stream, as old as the first entries of their jobs")
    func overflow() async throws {
        try await TestRedis.with { redis, prefix in
            let live = Live(redis, keys: Keyspace(prefix: prefix))
            func overflow() async throws -> StreamSurvey.Stream {
                try #require(try await live.survey.streams(of: []).first(where: \.isOverflow))
            }
            let none = try await overflow()
            #expect(none.length == 0 && none.waitingSince == nil)
            for (org, age) in [("one", 50), ("two", 70), ("two", 60)] {
                let entry = "\((Self.now + .seconds(-age)).milliseconds)-0"
                let job = JobOrigin(stream: live.keys.jobs(.normal), entry: entry, fields: [])
                try await live.overflows.append([(org: org, fields: job.movedFields)])
            }
            let found = try await overflow()
            #expect(found.name == live.keys.overflows && found.lane == .bulk && found.provider == nil)
            #expect(found.length == 3 && found.pending == 0)
            #expect(found.oldest == Self.now + .seconds(-70) && found.waitingSince == found.oldest)
        }
    }

    @Test("measures waiting from the first append, in the stream and in the retry set")
    func waitingSince() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let survey = Live(redis, keys: keys).survey
            let retries = Live(redis, keys: keys).retries
            func stream(_ provider: Provider = .fcm, _ lane: Lane = .normal) async throws -> StreamSurvey.Stream? {
                try await survey.streams(of: [provider]).first { $0.provider == provider && $0.lane == lane }
            }
            func add(_ work: DeliveryWork, due: Timestamp) async throws {
                var batch = RedisBatch()
                retries.add(work, due: due, provider: .fcm, lane: .normal, in: &batch)
                try await redis.run(batch)
            }
            func append(_ text: String, at moment: Timestamp, _ lane: Lane = .normal) async throws {
                try await redis.send(
                    "XADD", .text(keys.deliveries(.fcm, lane)), .text("\(moment.milliseconds)-0"),
                    .text(DeliveryWork.field), .text(text))
            }
            #expect(try await stream()?.waitingSince == nil)
            // More than one end of the set is sampled for; the oldest is due last.
            for number in UInt64(0)..<100 {
                let since = Self.now + .seconds(-43 - Int64(number))
                try await add(Self.work(number, since: since), due: Self.now + .seconds(Int64(number)))
            }
            #expect(try await stream()?.waitingSince == Self.now + .seconds(-142))
            #expect(try await stream()?.retries == 100)
            #expect(try await stream()?.oldest == nil)
            // A delivery that returned to its stream keeps its age.
            let moved = Self.work(200, since: Self.now + .seconds(-300))
            try await append(String(decoding: moved.bytes, as: UTF8.self), at: Self.now)
            #expect(try await stream()?.waitingSince == Self.now + .seconds(-300))
            #expect(try await stream()?.oldest == Self.now)
            // An entry that is no delivery counts as waiting.
            try await append("x", at: Self.now + .seconds(-7), .bulk)
            #expect(try await stream(.fcm, .bulk)?.waitingSince == Self.now + .seconds(-7))
            #expect(try await stream(.apns)?.waitingSince == nil)
        }
    }
}
