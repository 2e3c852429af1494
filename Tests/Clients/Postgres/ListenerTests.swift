// Carillon · ListenerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Support
import Synchronization
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct ListenerTests {
    /// Records a listener's events as text.
    private final class Heard: Sendable {
        private let words = Mutex<[String]>([])

        var all: [String] { self.words.withLock { $0 } }

        func note(_ event: PostgresListener.Event) {
            let word =
                switch event {
                case .listening: "listening"
                case .lost: "lost"
                case .notification(let channel, let payload): "\(channel)=\(payload)"
                }
            self.words.withLock { $0.append(word) }
        }
    }

    private static func with(
        _ body: (_ pool: PostgresPool, _ heard: Heard) async throws -> Void
    ) async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let heard = Heard()
            let listener = try PostgresListener(
                database.configuration(applicationName: "listener"), channels: ["news", "more"], logger: TestLog.logger
            ) { heard.note($0) }
            defer { listener.close() }
            try await eventually("it listens") { heard.all == ["listening"] }
            try await body(database.pool, heard)
        }
    }

    @Test("a thread that failed to start is retried, and equal failures are logged once")
    func failedThread() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let heard = Heard()
            let lines = LogRecorder(from: .info) { "\($0.level) \($0.message)" }
            let starts = Mutex(0)
            let thread = try #require(PollingThread())
            var configuration = database.configuration(applicationName: "patient")
            configuration.startThread = { name, body in
                let number = starts.withLock { starts in
                    starts += 1
                    return starts
                }
                return number > 2 && DetachedThread.run(name: name, body)
            }
            let state = ListenerState(
                configuration, channels: ["news"], thread: thread, logger: lines.logger, handle: { heard.note($0) })
            try #require(thread.start(name: "pg-listen", owner: state))
            defer { thread.run { state.close() } }
            try await eventually("it listens") { heard.all == ["listening"] }
            #expect(starts.withLock { $0 } == 3)
            #expect(
                lines.all == ["warning postgres listener failed; reconnecting", "info postgres listener connected"])
        }
    }

    @Test("notifications of the channels arrive in order")
    func order() async throws {
        try await Self.with { pool, heard in
            for number in 0..<20 as Range<Int64> {
                let channel = number.isMultiple(of: 2) ? "news" : "more"
                try await pool.query("SELECT pg_notify($1, $2)", .text(channel), .text("\(number)"))
            }
            try await pool.query("SELECT pg_notify('other', 'not ours')")
            try await pool.query("SELECT pg_notify('news', '')")
            try await eventually("all notifications arrive") { heard.all.count == 22 }
            let expected = (0..<20).map { "\($0.isMultiple(of: 2) ? "news" : "more")=\($0)" }
            #expect(heard.all == ["listening"] + expected + ["news="])
        }
    }

    @Test("a notification arrives only if its transaction commits")
    func transaction() async throws {
        try await Self.with { pool, heard in
            let notify = "SELECT pg_notify('news', $1)"
            let refused = [PostgresStatement(notify, [.text("rolled back")]), PostgresStatement("SELECT 1 / 0")]
            #expect(await pool.failure(of: refused) != nil)
            try await pool.query(notify, .text("committed"))
            try await eventually("the committed one arrives") { heard.all.count > 1 }
            #expect(heard.all == ["listening", "news=committed"])
        }
    }

    @Test("dropping a listener ends its session and its thread")
    func dropped() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            weak var held: Heard?
            do {
                let heard = Heard()
                held = heard
                let listener = try PostgresListener(
                    database.configuration(applicationName: "dropped"), channels: ["news"], logger: TestLog.logger
                ) { heard.note($0) }
                try await eventually("it listens") { heard.all == ["listening"] }
                withExtendedLifetime(listener) {}
            }
            let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dropped'"
            try await eventually("the session has ended") { try await database.pool.number(sessions) == 0 }
            // The thread retains what the listener's handler captures.
            try await eventually("the thread has ended") { held == nil }
        }
    }

    @Test("a loss is reported and the channels are listened to again")
    func loss() async throws {
        try await Self.with { pool, heard in
            let terminated = try await pool.number(
                """
                SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'listener'
                """)
            #expect(terminated == 1)
            try await eventually("it listens again") { heard.all == ["listening", "lost", "listening"] }
            try await pool.query("SELECT pg_notify('more', 'hello')")
            try await eventually("a notification arrives") { heard.all.last == "more=hello" }
        }
    }
}
