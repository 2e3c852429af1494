// Carillon · SteadyClock.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Metrics
import ServiceLifecycle
import Storage
import Synchronization

/// PostgreSQL's time, extrapolated by the monotonic clock.
///
/// All dispatchers share it, so a machine whose clock is set forward or back fires nothing early,
/// late or twice.
package final class SteadyClock: Sendable {
    /// A time, and the instant at which it was current.
    private struct Mark: Sendable {
        let time: Timestamp
        let at: ContinuousClock.Instant
        /// How long the other clock's answer took; nil before the first.
        let span: Duration?
    }

    /// Slower answers are too imprecise, unless none was faster.
    private static let longestAnswer: Duration = .milliseconds(500)

    private let mark: Mutex<Mark>

    /// - Parameter time: the machine's time, used until PostgreSQL has answered.
    package init(_ time: Timestamp, at: ContinuousClock.Instant = .now) {
        self.mark = Mutex(Mark(time: time, at: at, span: nil))
    }

    package var now: Timestamp { self.now(at: .now) }

    /// Whether it was set by an answer that came soon enough.
    var isPrecise: Bool { self.mark.withLock { $0.span.map { $0 <= Self.longestAnswer } ?? false } }

    func now(at instant: ContinuousClock.Instant) -> Timestamp {
        self.mark.withLock { $0.time + (instant - $0.at) }
    }

    /// Sets the clock from the answer of another one.
    ///
    /// - Parameters:
    ///   - asked: when the question was sent.
    ///   - answered: when the answer came.
    /// - Returns: how far the other clock was ahead; nil if the answer came too late to count.
    @discardableResult
    func set(_ time: Timestamp, asked: ContinuousClock.Instant, answered: ContinuousClock.Instant) -> Duration? {
        let span = answered - asked
        let at = asked + span / 2
        return self.mark.withLock { mark in
            guard span <= max(Self.longestAnswer, mark.span ?? span) else { return nil }
            let ahead = time - (mark.time + (at - mark.at))
            mark = Mark(time: time, at: at, span: span)
            return ahead
        }
    }
}

/// Synchronizes the dispatcher's clock with PostgreSQL's every five seconds.
package struct ClockService: Service {
    private static let interval: Duration = .seconds(5)
    /// Machines with NTP differ by less.
    private static let noteworthy: Duration = .seconds(1)
    /// How many late answers the start takes; the fastest counts.
    private static let mostLate = 5
    private static let offset = Gauge(label: "carillon.clock.offset_seconds")

    private let clock: SteadyClock
    private let database: Database
    private let machine: @Sendable () -> Timestamp
    private let instant: @Sendable () -> ContinuousClock.Instant
    private let logger: Logger

    package init(
        clock: SteadyClock,
        database: Database,
        machine: @escaping @Sendable () -> Timestamp,
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        logger: Logger
    ) {
        self.clock = clock
        self.database = database
        self.machine = machine
        self.instant = instant
        self.logger = logger
    }

    package func run() async throws {
        var wasOff = false
        while isRunning {
            // Other services report a PostgreSQL that does not answer.
            try? await self.set()
            let offset = self.clock.now - self.machine()
            let isOff = max(offset, .zero - offset) > Self.noteworthy
            if isOff, !wasOff {
                self.logger.warning(
                    "this machine's clock differs from PostgreSQL's, which Carillon uses; check NTP",
                    metadata: ["clock.offset_seconds": "\(offset.inMicroseconds / 1_000_000)"]
                )
            }
            wasOff = isOff
            Self.offset.record(Double(offset.inMicroseconds) / 1_000_000)
            // PostgreSQL does not signal that its clock was set, so poll.
            await pause(for: Self.interval)
        }
    }

    /// Asks PostgreSQL for the time until it answers, or until the shutdown.
    ///
    /// Asks again after a late answer: the process may have stalled, and would start with a clock
    /// that is off by half the stall.
    package func start() async {
        var hasWarned = false
        var answers = 0
        while isRunning {
            do {
                try await cancelWhenGracefulShutdown { try await self.set() }
                answers += 1
                if self.clock.isPrecise || answers == Self.mostLate { return }
            } catch {
                if !hasWarned {
                    self.logger.warning(
                        "cannot read PostgreSQL's clock; retrying every second", metadata: ["error": "\(error)"])
                }
                hasWarned = true
                // PostgreSQL does not signal that it can answer again.
                await pause(for: .seconds(1))
            }
        }
    }

    /// Asks PostgreSQL for the time once.
    package func set() async throws {
        let asked = self.instant()
        let time = try await self.database.clock()
        self.clock.set(time, asked: asked, answered: self.instant())
    }
}
