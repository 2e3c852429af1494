// Carillon · ProviderBoardTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

/// Counts that dispatchers publish about their providers, on a real Redis.
@Suite(.timeLimit(.minutes(10)))
struct ProviderBoardTests {
    private static let now = Timestamp(seconds: 1_795_000_000)

    private static func counts(_ failures: [String?], app: String = "my app", took: Duration) -> ProviderCounts {
        var counts = ProviderCounts(provider: .fcm, app: app)
        for failure in failures { counts.record(failure: failure, took: took) }
        return counts
    }

    @Test("adds up the counts of live dispatchers by provider and app")
    func sums() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let board = Live(redis, keys: keys).providerBoard
            let one = Self.counts([nil, "UNREGISTERED", "not_sent:connect"], took: .milliseconds(5))
            let two = Self.counts([nil, nil, "UNREGISTERED"], took: .seconds(31))
            let other = Self.counts([nil], app: "other", took: .milliseconds(6))
            let state = ProviderState(
                provider: .fcm, app: "my app", dispatcher: "d1", breaker: .closed, until: nil, inFlight: 1)
            try await board.publish([state], counts: [one, other], dispatcher: "d1", now: Self.now)
            try await board.publish([], counts: [two], dispatcher: "d2", now: Self.now)
            let report = try await board.report(now: Self.now, removesStale: false)
            #expect(report.states == [state])
            #expect(report.counts.map(\.app) == ["my app", "other"])
            let sums = try #require(report.counts.first)
            #expect(sums.sent == 6 && sums.accepted == 3 && sums.failed == 3)
            #expect(sums.reasons == ["UNREGISTERED": 2, "not_sent:connect": 1])
            #expect(sums.latencies.first == 3 && sums.latencies.last == 3)
            #expect(report.counts.last == other)
            // Looking does not forget.
            #expect(try await board.report(now: Self.now + .seconds(30), removesStale: false).dispatchers.isEmpty)
            #expect(try await board.report(now: Self.now, removesStale: false).dispatchers == ["d1", "d2"])
            // Only the second is recent enough.
            try await board.publish([], counts: [two], dispatcher: "d2", now: Self.now + .seconds(30))
            let later = try await board.report(now: Self.now + .seconds(30), removesStale: true)
            #expect(later.states.isEmpty && later.counts == [two])
            // A dispatcher without providers serves nothing; without a dispatcher, it is not known.
            #expect(report.serves(.fcm, app: "my app") && report.serves(.fcm))
            #expect(!report.serves(.fcm, app: "other") && !report.serves(.email))
            #expect(!later.serves(.fcm))
            let stale = try await board.report(now: Self.now + .seconds(60), removesStale: true)
            #expect(stale.serves(.fcm, app: "my app"))
        }
    }

    @Test("counts invalid and surplus reasons as other")
    func reasons() {
        var counts = ProviderCounts(provider: .apns, app: "a")
        for reason in ["two words", "a=1,b", "", String(repeating: "x", count: 65)] {
            counts.record(failure: reason, took: .zero)
        }
        #expect(counts.reasons == ["other": 4])
        for number in 0..<100 { counts.record(failure: "R\(number)", took: .zero) }
        #expect(counts.reasons.count <= ProviderCounts.mostReasons)
        #expect(counts.reasons.values.reduce(0, +) == 104 && counts.failed == 104)
        let before = counts.reasons["other"] ?? 0
        counts.record(failure: "R100", took: .zero)
        counts.record(failure: "R0", took: .zero)
        #expect(counts.reasons["other"] == before + 1 && counts.reasons["R0"] == 2)
    }

    @Test("skips unknown lines and reads fields without counts")
    func strangers() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let moment = Self.now.milliseconds
            try await redis.send(
                "HSET", .text("\(prefix)providers"), "d1",
                .text("1 \(moment)\nfcm closed - 3 my app\n* something new\n+ fcm 1 1 0,1 - short\n+ fcm x 1 0 - a"))
            let report = try await Live(redis, keys: keys).providerBoard.report(now: Self.now, removesStale: false)
            #expect(report.states.map(\.app) == ["my app"])
            #expect(report.counts.isEmpty)
        }
    }

    @Test("skips counts that no dispatcher reaches")
    func overflows() async throws {
        try await TestRedis.with { redis, prefix in
            let most = "\(Int.max)"
            func line(_ sent: String, _ accepted: String, latency: String = "0", reasons: String = "-") -> String {
                "+ fcm \(sent) \(accepted) \(latency),0,0,0,0,0,0,0,0,0,0,0,0 \(reasons) app"
            }
            let lines = [
                line("0", "\(Int.min)"), line("-1", "-2"), line("1", "2"), line(most, "0"), line(most, "0"),
                line("1", "1", latency: most), line("1", "1", latency: most),
                line("9", "0", reasons: "a=\(most),a=1"), line("1", "0", reasons: "a=1,a=1"),
                line("3", "1", latency: "3", reasons: "a=2"),
            ]
            let text = "1 \(Self.now.milliseconds)\n" + lines.joined(separator: "\n")
            try await redis.send("HSET", .text("\(prefix)providers"), "d1", .text(text))
            let board = Live(redis, keys: Keyspace(prefix: prefix)).providerBoard
            let report = try await board.report(now: Self.now, removesStale: false)
            let counts = try #require(report.counts.first)
            #expect(report.counts.count == 1 && counts.sent == 3 && counts.failed == 2)
            #expect(counts.reasons == ["a": 2] && counts.latencies.first == 3)
        }
    }
}
