// Carillon · ClockTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// Clocks that jump: nothing is lost and nothing is sent twice.
@Suite(.timeLimit(.minutes(10)))
struct ClockTests {
    private static let catalog = """
        types:
          news: {severity: info, delivery: push}
          comment: {severity: info, delivery: push, digest: {window: 1h}}
        """
    private static let users = (0..<10).map { "u\($0)" }

    /// Starts both programs with pushes that wait for an hour: deferred, in a digest, and
    /// scheduled.
    ///
    /// - Parameter body: gets the stack, the gateway and the address of the dispatcher's metrics.
    private static func with(_ body: (Stack, Gateway, String) async throws -> Void) async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            let dispatcher = try await stack.startDispatcher(environment: environment)
            let address = String(try await dispatcher.waitForLine("ready ").dropFirst("ready ".count))
            let due = Schedules.later(.seconds(3_600))
            for user in Self.users {
                try await gateway.register(user: user, platform: "android", token: "\(user)-phone")
                try await gateway.set(QuietNow.settings, of: user)
                try await stack.append([("user", user), ("type", "news"), ("title", "deferred")])
                for _ in 0..<2 {
                    try await stack.append([("user", user), ("type", "comment"), ("title", "c"), ("digest", "post")])
                }
                try await stack.append([("user", user), ("type", "news"), ("title", "later"), ("deliver_at", due)])
            }
            try await eventually("all wait") {
                let rows = try await stack.query(
                    """
                    SELECT (SELECT count(*) FROM carillon.follow_ups), (SELECT count(*) FROM carillon.digest_items),
                        (SELECT count(*) FROM carillon.schedules)
                    """
                )
                let row = try #require(rows.first)
                return try [row.int8(0), row.int8(1), row.int8(2)] == [10, 20, 10]
            }
            try await body(stack, gateway, "\(address)/metrics")
        }
    }

    @Test("a dispatcher whose clock jumps ahead and back sends everything that waits once")
    func jumps() async throws {
        try await Self.with { stack, gateway, _ in
            try await ShiftedDispatcher.with(stack) { shifted in
                for _ in 0..<3 {
                    shifted.jump(.seconds(3 * 3_600))
                    try await eventually("everything due by that clock has left") {
                        let digests = try await stack.query("SELECT 1 FROM carillon.digests").count
                        return try await Schedules.count(stack) + Int64(digests) == 0
                    }
                    shifted.jump(.seconds(-6 * 3_600))
                    shifted.jump(.seconds(3 * 3_600))
                }
                // The gate, which has the right clock, deferred whatever left too early.
                try await eventually("all wait for the end of quiet hours") {
                    try await stack.query(
                        "SELECT 1 FROM carillon.notifications WHERE status = 'deferred'"
                    ).count == 30
                }
                try await stack.waitForPushes()
                #expect(stack.pushed().isEmpty)
            }
            for user in Self.users { try await gateway.set(QuietNow.over, of: user) }
            let expected = Dictionary(
                uniqueKeysWithValues: Self.users.map { ("\($0)-phone", ["2 notifications", "deferred", "later"]) })
            try await eventually("each user has each once") { stack.pushed().mapValues { $0.sorted() } == expected }
            try await eventually("nothing waits any more") {
                try await stack.query("SELECT 1 FROM carillon.follow_ups").isEmpty
            }
            try await stack.waitForPushes()
            #expect(stack.pushed().mapValues { $0.sorted() } == expected)
            #expect(try await stack.query("SELECT 1 FROM carillon.notifications").count == 30)
        }
    }

    @Test("a dispatcher on a machine whose clock jumps ten minutes keeps the right time and valid provider tokens")
    func machine() async throws {
        try await Stack.with { stack in
            let clock = try await MachineClock(in: stack.directory)
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            _ = try await stack.startDispatcher(environment: environment.merging(clock.environment) { $1 })
            var expected: [String: [String]] = [:]
            for (round, ahead) in [600, 0].enumerated() {
                try clock.set(ahead: Int64(ahead))
                let kinds = ["online", "offline", "unavailable-3x", "asleep", "later"]
                for kind in kinds {
                    try await gateway.register(
                        user: "\(kind)-\(round)", platform: "android", token: "\(kind)-phone-\(round)")
                }
                try await gateway.set(QuietNow.settings, of: "asleep-\(round)")
                let socket = try await TestSocket.synced(port: gateway.port, user: "online-\(round)")
                for kind in kinds {
                    // A clock ten minutes ahead would find it due or expired.
                    let moment = Schedules.later(.seconds(300))
                    try await stack.append(
                        [
                            ("user", "\(kind)-\(round)"), ("type", "news"), ("title", kind),
                            (kind == "later" ? "deliver_at" : "expires_at", moment),
                        ], stream: "carillon:jobs:critical")
                }
                for kind in ["offline", "unavailable-3x"] { expected["\(kind)-phone-\(round)"] = [kind] }
                try await eventually("the due ones arrive, once each") {
                    stack.pushed() == expected
                }
                try await eventually("the others have their statuses") {
                    let online = try await stack.statuses(user: "online-\(round)")
                    let asleep = try await stack.statuses(user: "asleep-\(round)")
                    return try await Schedules.count(stack) == Int64(round + 1)
                        && online == ["online": "delivered"] && asleep == ["asleep": "deferred"]
                }
                #expect(socket.titles == ["online"])
            }
            try await stack.waitForPushes()
            #expect(stack.pushed() == expected)
        }
    }

    @Test("a sweep with a clock ahead hides no row from later sweeps")
    func sweep() async throws {
        try await Self.with { stack, gateway, metrics in
            func mark() async throws -> Timestamp {
                let rows = try await stack.query("SELECT swept_until FROM carillon.sweep")
                return Timestamp(microseconds: try #require(try rows.first?.timestamptz(0)))
            }
            func swept() async throws -> Double {
                try await MetricsText.page(metrics, stack).samples["carillon_notifications_swept"] ?? 0
            }
            let before = try await mark()
            try await stack.connection.send("DEL", "carillon:sweep")
            try await ShiftedDispatcher.with(stack, ahead: .seconds(3 * 3_600)) { _ in
                try await eventually("it has swept") { try await mark() != before }
                #expect(try await mark() <= Schedules.now())
            }
            try await eventually("what left too early is deferred") {
                try await stack.connection.send("XLEN", "carillon:jobs").integer() == 0
            }
            try await stack.waitForPushes()
            // Otherwise they would be due at the end of quiet hours, without a sweep.
            try await stack.query("DELETE FROM carillon.follow_ups")
            for user in Self.users { try await gateway.set(QuietNow.over, of: user) }
            #expect(stack.pushed().isEmpty)
            let sweptBefore = try await swept()
            try await stack.query(
                """
                UPDATE carillon.notifications SET status = 'pending', status_reason = NULL,
                    stored_at = now() - interval '3 minutes'
                """
            )
            try await stack.query(
                "UPDATE carillon.sweep SET swept_until = least(swept_until, now() - interval '4 minutes')")
            try await stack.connection.send("DEL", "carillon:sweep")
            try await eventually("notifications without an owner are swept and pushed") {
                let count = try await swept() - sweptBefore
                return count >= Double(Self.users.count) && stack.pushed().count == Self.users.count
            }
        }
    }
}
