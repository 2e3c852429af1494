// Carillon · StreamSurveyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// Surveys of waiting work in Redis.
@Suite(.timeLimit(.minutes(10)))
struct StreamSurveyTests {
    private static let now = Timestamp(seconds: 1_795_000_000)

    private static func work(_ number: UInt64, since: Timestamp?) -> DeliveryWork {
        let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number)
        return DeliveryWork(notification: id, device: id, user: "ada", attempt: 1, isRepeat: true, since: since)
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
