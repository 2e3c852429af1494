// Carillon · ClockService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Metrics
import ServiceLifecycle
import Storage

/// Keeps a dispatcher's time with PostgreSQL's; while that is out of reach it goes on by itself.
package struct ClockService: Service {
    private static let interval: Duration = .seconds(1)
    /// What clocks that are kept by NTP never differ by.
    private static let noteworthy: Duration = .seconds(1)
    private static let offset = Gauge(label: "carillon.clock.offset_seconds")

    private let clock: SteadyClock
    private let notifications: NotificationStore
    /// The machine's own clock.
    private let machine: @Sendable () -> Timestamp
    private let logger: Logger

    package init(
        clock: SteadyClock,
        notifications: NotificationStore,
        machine: @escaping @Sendable () -> Timestamp,
        logger: Logger
    ) {
        self.clock = clock
        self.notifications = notifications
        self.machine = machine
        self.logger = logger
    }

    package func run() async throws {
        var wasOff = false
        while goesOn {
            // PostgreSQL that is out of reach is told about by whoever needs more of it than the time.
            try? await self.set()
            let offset = self.clock.now - self.machine()
            let isOff = max(offset, .zero - offset) > Self.noteworthy
            if isOff, !wasOff {
                self.logger.warning(
                    "this machine's clock is not PostgreSQL's, whose time counts",
                    metadata: ["clock.offset_seconds": "\(offset.inMicroseconds / 1_000_000)"]
                )
            }
            wasOff = isOff
            Self.offset.record(Double(offset.inMicroseconds) / 1_000_000)
            // A clock that is set tells nobody.
            await pause(for: Self.interval)
        }
    }

    /// Asks PostgreSQL for the time once.
    package func set() async throws {
        let asked = ContinuousClock.now
        let time = try await self.notifications.clock()
        self.clock.set(time, asked: asked, answered: .now)
    }
}
