// Carillon · DeliveryWorkTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

@Suite("Text form of deliveries", .timeLimit(.minutes(10)))
struct DeliveryWorkTests {
    private static let notification = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
    private static let device = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"

    private static func work(user: String = "u1", attempt: Int = 0, isRepeat: Bool = false) throws -> DeliveryWork {
        DeliveryWork(
            notification: try #require(NotificationID(Self.notification)),
            device: try #require(NotificationID(Self.device)),
            user: user,
            attempt: attempt,
            isRepeat: isRepeat
        )
    }

    private static func fault(_ text: String) -> DeliveryWork.Fault? {
        do throws(DeliveryWork.Fault) {
            _ = try DeliveryWork(text.utf8)
            return nil
        } catch {
            return error
        }
    }

    @Test(
        "reads the text that it writes, which does not change between releases",
        arguments: [
            ("u1", 0, false, "0 - u1"), ("u1", 12, true, "12 r u1"), ("a b  c ", 1, false, "1 - a b  c "),
            ("é😀", 0, false, "0 - é😀"), (" ", 0, true, "0 r  "),
        ]
    )
    func text(user: String, attempt: Int, isRepeat: Bool, rest: String) throws {
        let work = try Self.work(user: user, attempt: attempt, isRepeat: isRepeat)
        #expect(String(decoding: work.bytes, as: UTF8.self) == "1 \(Self.notification) \(Self.device) \(rest)")
        #expect(try DeliveryWork(work.bytes) == work)
    }

    @Test("counts attempts and stays a repeat once a push may have arrived")
    func tries() throws {
        let work = try Self.work()
        #expect(try work.afterTry == Self.work(attempt: 1, isRepeat: true))
        #expect(try work.afterTry.afterTry == Self.work(attempt: 2, isRepeat: true))
    }

    @Test("counts unknown outcomes")
    func unknowns() throws {
        let start = "1 \(Self.notification) \(Self.device)"
        var work = try DeliveryWork("\(start) 3 ra1795000000123 u1".utf8)
        for flags in ["rau", "rauu", "rauuu"] {
            work = work.afterUnknown
            #expect(String(decoding: work.bytes, as: UTF8.self) == "\(start) \(work.attempt) \(flags)1795000000123 u1")
            #expect(try DeliveryWork(work.bytes) == work)
        }
        #expect(work.unknowns == 3 && work.attempt == 6)
        #expect(work.afterTry.unknowns == 3)
    }

    @Test("says since when a delivery has waited, from its first entry on")
    func waiting() throws {
        let first = StreamEntry(id: "1795000000123-4", fields: nil)
        let work = try Self.work(attempt: 2, isRepeat: true).waiting(since: first)
        let text = "1 \(Self.notification) \(Self.device) 2 r1795000000123 u1"
        #expect(work.bytes == Array(text.utf8))
        let read = try DeliveryWork(work.bytes)
        #expect(read == work)
        #expect(read.since == Timestamp(milliseconds: 1_795_000_000_123))
        // Moved to its stream and back into the retry set.
        let later = StreamEntry(id: "1795000099000-0", fields: nil)
        #expect(read.afterTry.waiting(since: later).since == read.since)
        #expect(read.fromTheStart.since == nil)
        let fresh = try Self.work().waiting(since: later)
        #expect(String(decoding: fresh.bytes, as: UTF8.self).hasSuffix(" 0 1795000099000 u1"))
        #expect(!fresh.isRepeat)
        for digits in ["99999999999999", "999999999999999", "99999999999999999999999999"] {
            let text = "1 \(Self.notification) \(Self.device) 0 r\(digits) u1"
            #expect(try DeliveryWork(text.utf8).isRepeat)
        }
    }

    @Test("stays a push, an attention call or a retraction when it starts over", arguments: ["-", "a", "x"])
    func fromTheStart(flag: String) throws {
        let start = "1 \(Self.notification) \(Self.device)"
        let letters = flag == "-" ? "" : flag
        for flags in [flag, "r\(letters)", "r\(letters)1795000000123"] {
            let again = try DeliveryWork("\(start) 3 \(flags) u1".utf8).fromTheStart
            #expect(String(decoding: again.bytes, as: UTF8.self) == "\(start) 0 r\(letters) u1")
        }
        #expect(try DeliveryWork("\(start) 3 ru u1".utf8).fromTheStart.unknowns == 0)
    }

    @Test("rejects a newer format")
    func newer() {
        #expect(Self.fault("2 whatever comes") == .newerFormat)
        #expect(Self.fault("17") == .newerFormat)
    }

    @Test(
        "rejects malformed text",
        arguments: [
            "", " ", "x", "1", "1 \(notification)", "1 \(notification) \(device) 0 -", "1 no \(device) 0 - u1",
            "1 \(notification) no 0 - u1", "1 \(notification) \(device) x - u1", "-",
            "1  \(notification) \(device) 0 - u1", "1 \(notification) \(device) -1 - u1",
            // An attempt number that could not be increased.
            "1 \(notification) \(device) 9223372036854775807 - u1", "1 \(notification) \(device) 2147483647 r u1",
            // A user that PostgreSQL cannot look up.
            "1 \(notification) \(device) 0 - u\01",
        ]
    )
    func malformed(text: String) {
        #expect(Self.fault(text) == .malformed)
    }
}

/// Claims on a delivery that two stream entries hold.
@Suite(.timeLimit(.minutes(10)))
struct SendClaimsTests {
    private static let work = DeliveryWork(
        notification: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001),
        device: DeviceID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0002),
        user: "ada",
        attempt: 0,
        isRepeat: false
    )

    /// Appends the work to a lane and returns the entry's id.
    private static func append(_ redis: RedisClient, _ keys: Keyspace, _ lane: Lane) async throws -> String {
        try await redis.send(
            "XADD", .text(keys.deliveries(.fcm, lane)), "*", .text(DeliveryWork.field), .bytes(self.work.bytes)
        ).string() ?? ""
    }

    @Test("claims one of two entries, also for a dispatcher that takes it over", arguments: Lane.allCases)
    func oneOfTwo(lane: Lane) async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let claims = Live(redis, keys: keys).sendClaims
            let first = try await Self.append(redis, keys, lane)
            let second = try await Self.append(redis, keys, .normal)
            let mine = [(work: Self.work, entry: first)]
            let others = [(work: Self.work.asRepeat, entry: second)]
            #expect(try await claims.claim(mine, provider: .fcm, lane: lane) == [true])
            #expect(try await claims.claim(others, provider: .fcm, lane: .normal) == [false])
            // Another dispatcher took the entry over from a dead one.
            #expect(try await claims.claim(mine, provider: .fcm, lane: lane) == [true])
            #expect(try await claims.claim(others, provider: .fcm, lane: .normal) == [false])
        }
    }

    @Test("claims the first of two entries in a batch")
    func oneBatch() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            var entries: [(work: DeliveryWork, entry: String)] = []
            for _ in 0..<2 { entries.append((Self.work, try await Self.append(redis, keys, .bulk))) }
            let claims = Live(redis, keys: keys).sendClaims
            #expect(try await claims.claim(entries, provider: .fcm, lane: .bulk) == [true, false])
            #expect(try await claims.claim([], provider: .fcm, lane: .bulk) == [])
        }
    }

    @Test("ends a claim when it is released or its entry is settled")
    func ends() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let claims = Live(redis, keys: keys).sendClaims
            let first = try await Self.append(redis, keys, .normal)
            let second = [(work: Self.work, entry: try await Self.append(redis, keys, .normal))]
            #expect(try await claims.claim([(Self.work, first)], provider: .fcm, lane: .normal) == [true])
            var batch = RedisBatch()
            // A dispatcher without the claim, such as one whose provider is unavailable, ends
            // nothing.
            claims.release([(Self.work, second[0].entry, .normal)], provider: .fcm, in: &batch)
            try await redis.run(batch)
            #expect(try await claims.claim(second, provider: .fcm, lane: .normal) == [false])
            batch = RedisBatch()
            claims.release([(Self.work, first, .normal)], provider: .fcm, in: &batch)
            try await redis.run(batch)
            #expect(try await claims.claim(second, provider: .fcm, lane: .normal) == [true])
            #expect(try await claims.claim([(Self.work, first)], provider: .fcm, lane: .normal) == [false])
            try await redis.send("XDEL", .text(keys.deliveries(.fcm, .normal)), .text(second[0].entry))
            #expect(try await claims.claim([(Self.work, first)], provider: .fcm, lane: .normal) == [true])
        }
    }

    @Test("keeps claims apart by kind and provider")
    func others() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let claims = Live(redis, keys: keys).sendClaims
            let first = try await Self.append(redis, keys, .normal)
            #expect(try await claims.claim([(Self.work, first)], provider: .fcm, lane: .normal) == [true])
            let retraction = DeliveryWork(
                notification: Self.work.notification, device: Self.work.device, user: "ada", attempt: 0,
                isRepeat: false, isRetraction: true)
            #expect(try await claims.claim([(retraction, "9-0")], provider: .fcm, lane: .normal) == [true])
            #expect(try await claims.claim([(Self.work, "9-0")], provider: .apns, lane: .normal) == [true])
        }
    }
}
