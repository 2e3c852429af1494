// Carillon · PipelineMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Metrics
import Storage
import Synchronization

/// The dispatcher's metrics.
enum PipelineMetrics {
    /// Finished entries of the jobs streams.
    static let jobs = Counter(label: "carillon.jobs.finished")
    /// Frames published to gateway nodes.
    static let published = Counter(label: "carillon.frames.published")
    /// Dead letters stored.
    static let dead = Counter(label: "carillon.dead.letters")
    /// Jobs moved to their organisation's overflow.
    static let overflowed = Counter(label: "carillon.overflow.moved")
    /// Notifications without proof in time.
    static let unproven = Counter(label: "carillon.notifications.unproven")
    /// Notifications and deliveries that the sweep enqueued again, but not those that only lacked
    /// the proof of a socket.
    static let swept = Counter(label: "carillon.notifications.swept")

    /// Notifications stored as cancelled, because their job was cancelled before it came.
    static let cancelled = Counter(label: "carillon.notifications.cancelled")
    /// Follow-ups stored: for quiet hours, idle users, and delayed e-mail.
    static let postponed = Counter(label: "carillon.followups.postponed")
    /// Follow-ups that came due and were handled.
    static let followed = Counter(label: "carillon.followups.done")
    /// Notifications held by digests.
    static let held = Counter(label: "carillon.digests.held")
    /// Summaries without some items, or with plain text, because a variable of the template was
    /// missing.
    static let faultySummaries = Counter(label: "carillon.summaries.faulty")
    /// Scheduled jobs and occurrences that fired.
    static let fired = Counter(label: "carillon.schedules.fired")
    /// Recurring schedules that have stopped because of a fault.
    static let failedSchedules = Gauge(label: "carillon.schedules.failed")
    /// Users whose zone does not exist; the default zone was used.
    static let unknownZones = Counter(label: "carillon.zones.unknown")

    /// Stored pages of broadcasts.
    static let pages = Counter(label: "carillon.broadcasts.pages")
    /// Times that a broadcast waited because too many deliveries of its lane waited.
    static let heldBroadcasts = Counter(label: "carillon.broadcasts.held")

    /// Records how many broadcasts wait for an operator.
    static func record(waiting: [Broadcast.State: Int64]) {
        for (state, count) in waiting {
            Gauge(label: "carillon.broadcasts.waiting", dimensions: [("state", state.rawValue)]).record(count)
        }
    }

    /// Times that pauses of accounts could not be shared between dispatchers.
    static let unsharedPauses = Counter(label: "carillon.provider.pauses.unshared")

    /// The metrics of one provider.
    struct Deliveries: Sendable {
        /// The response time of the provider.
        let duration: Timer
        private let provider: Provider
        private let answered: [DeliveryStore.Outcome: Counter]
        private let held: [String: Counter]
        private let failures = CounterSet()

        init(_ provider: Provider) {
            self.provider = provider
            var answered: [DeliveryStore.Outcome: Counter] = [:]
            for outcome in DeliveryStore.Outcome.allCases {
                answered[outcome] = Counter(
                    label: "carillon.deliveries.answered",
                    dimensions: [("provider", provider.rawValue), ("outcome", outcome.rawValue)]
                )
            }
            self.answered = answered
            var held: [String: Counter] = [:]
            for reason in [RecordedReason.outOfUse, .rate, .noTurn].map(\.rawValue) {
                held[reason] = Counter(
                    label: "carillon.deliveries.held",
                    dimensions: [("provider", provider.rawValue), ("reason", reason)]
                )
            }
            self.held = held
            self.duration = Timer(
                label: "carillon.deliveries.duration",
                dimensions: [("provider", provider.rawValue)]
            )
        }

        /// Returns the counter of failures with a reason.
        func failure(_ reason: String) -> Counter {
            self.failures.counter(
                "carillon.deliveries.failures", [("provider", self.provider.rawValue)], "reason", reason)
        }

        /// Counts a delivery that was held back for a reason.
        func countHeld(_ reason: String) { self.held[reason]?.increment() }

        /// Counts an attempt by its outcome.
        func count(_ outcome: DeliveryStore.Outcome) { self.answered[outcome]?.increment() }
    }
}

/// Counters of one metric that differ in one label, whose values come from outside.
///
/// The number of values is bounded; further ones count as `other`.
final class CounterSet: Sendable {
    private static let capacity = 100

    private let counters = Mutex<[String: Counter]>([:])

    func counter(_ label: String, _ dimensions: [(String, String)], _ name: String, _ value: String) -> Counter {
        let value = value.utf8.allSatisfy { Self.isWord($0) } && value.utf8.count <= 64 ? value : "other"
        return self.counters.withLock { counters in
            if let counter = counters[value] { return counter }
            let shown = counters.count < Self.capacity ? value : "other"
            if let counter = counters[shown] { return counter }
            let counter = Counter(label: label, dimensions: dimensions + [(name, shown)])
            counters[shown] = counter
            return counter
        }
    }

    private static func isWord(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
            || byte == UInt8(ascii: "_") || byte == UInt8(ascii: ":") || byte == UInt8(ascii: ".")
    }
}
