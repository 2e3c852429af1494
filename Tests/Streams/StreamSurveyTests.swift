// Carillon · StreamSurveyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import Model
import Redis
import Streams
import Testing

/// What is asked of Redis about what waits.
@Suite(.timeLimit(.minutes(10)))
struct StreamSurveyTests {
    private static let now = Timestamp(seconds: 1_795_000_000)
    private static let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)

    private static func add(
        _ user: String, _ lane: Lane, due: Timestamp, _ redis: RedisConnection, _ keys: Keyspace
    ) async throws {
        let work = DeliveryWork(notification: self.id, device: self.id, user: user, attempt: 1, isRepeat: true)
        var batch = RedisBatch()
        RetrySet(connection: redis, keys: keys).add(work, due: due, provider: .fcm, lane: lane, in: &batch)
        for reply in try await redis.send(batch) { _ = try reply.checked() }
    }

    @Test("what waits for its next try counts too: since it was due, and as of now before that")
    func oldestWaiting() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let survey = StreamSurvey(connection: redis, keys: keys)
            #expect(try await survey.oldestWaiting(.fcm, now: Self.now) == nil)
            try await Self.add("ada", .bulk, due: Self.now + .seconds(60), redis, keys)
            #expect(try await survey.oldestWaiting(.fcm, now: Self.now) == Self.now)
            try await Self.add("bob", .bulk, due: Self.now + .seconds(-30), redis, keys)
            #expect(try await survey.oldestWaiting(.fcm, now: Self.now) == Self.now + .seconds(-30))
            // What waits for longer in another lane's stream.
            let moment = Self.now + .seconds(-90)
            try await redis.send(
                "XADD", .text(keys.deliveries(.fcm, .normal)), .text("\(moment.milliseconds)-0"),
                .text(DeliveryWork.field), "x")
            #expect(try await survey.oldestWaiting(.fcm, now: Self.now) == moment)
            try await Self.add("eve", .critical, due: Self.now + .seconds(-120), redis, keys)
            #expect(try await survey.oldestWaiting(.fcm, now: Self.now) == Self.now + .seconds(-120))
            #expect(try await survey.oldestWaiting(.apns, now: Self.now) == nil)
        }
    }
}
