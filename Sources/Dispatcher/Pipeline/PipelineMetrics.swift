// Carillon · PipelineMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Metrics
import Storage

/// The dispatcher's metrics, each made once.
enum PipelineMetrics {
    /// Entries of the jobs streams that were finished.
    static let jobs = Counter(label: "carillon.jobs.finished")
    /// Frames published to nodes.
    static let published = Counter(label: "carillon.frames.published")
    /// Letters set aside.
    static let dead = Counter(label: "carillon.dead.letters")
    /// Jobs that were moved to their organisation's overflow.
    static let overflowed = Counter(label: "carillon.overflow.moved")
    /// Jobs that were taken from an overflow.
    static let returned = Counter(label: "carillon.overflow.returned")
    /// Dead letters that went back to their streams.
    static let replayed = Counter(label: "carillon.dead.replayed")
    /// Notifications that fell back to push because no proof came.
    static let unproven = Counter(label: "carillon.notifications.unproven")
    /// Entries taken over from dispatchers that are gone, or whose reply never arrived.
    static let claimed = Counter(label: "carillon.entries.claimed")
    /// Rows without an owner that were fanned out again.
    static let swept = Counter(label: "carillon.notifications.swept")

    /// Notifications that were stored as cancelled, as their job had been called off before it came.
    static let cancelled = Counter(label: "carillon.notifications.cancelled")
    /// What was put off: by quiet hours, for idle users, until an e-mail is due.
    static let postponed = Counter(label: "carillon.followups.postponed")
    /// What was put off and looked at again.
    static let followed = Counter(label: "carillon.followups.done")
    /// What digests hold back for a summary.
    static let held = Counter(label: "carillon.digests.held")
    /// Summaries in place of many pushes.
    static let summaries = Counter(label: "carillon.summaries")
    /// Summaries that lack items, or have plain words, as the catalog's asked for what was not there.
    static let faultySummaries = Counter(label: "carillon.summaries.faulty")
    /// Events for upstream apps.
    static let events = Events()

    /// The metrics of the events' stream.
    struct Events: Sendable {
        let written = Counter(label: "carillon.events.written")
        /// Those that Redis did not take.
        let lost = Counter(label: "carillon.events.lost")

        func note(_ replies: some Collection<RedisReply>) {
            guard !replies.isEmpty else { return }
            let refused = replies.count { if case .error = $0 { true } else { false } }
            self.written.increment(by: replies.count - refused)
            if refused > 0 { self.lost.increment(by: refused) }
        }
    }
    /// Jobs that were put aside because they are due later, a part for each zone.
    static let scheduled = Counter(label: "carillon.schedules.stored")
    /// Jobs that were put aside, and occurrences of recurring ones, that fired.
    static let fired = Counter(label: "carillon.schedules.fired")
    /// Recurring schedules that can fire no more.
    static let failedSchedules = Counter(label: "carillon.schedules.failed")
    /// Times that a user's zone was none, and the default counted.
    static let unknownZones = Counter(label: "carillon.zones.unknown")

    /// Pages of broadcasts that were stored.
    static let pages = Counter(label: "carillon.broadcasts.pages")
    /// Times that a broadcast's expansion waited for room in the deliveries streams.
    static let heldBroadcasts = Counter(label: "carillon.broadcasts.held")

    /// Times that dispatchers could not tell each other which accounts are to be left alone.
    static let unsharedPauses = Counter(label: "carillon.provider.pauses.unshared")

    /// The metrics of one provider.
    struct Deliveries: Sendable {
        let accepted: Counter
        let retry: Counter
        let failed: Counter
        let skipped: Counter
        /// How long the provider took to answer.
        let duration: Timer
        private let provider: Provider
        private let reasons = CounterSet()

        init(_ provider: Provider) {
            self.provider = provider
            func answers(_ outcome: DeliveryStore.Outcome) -> Counter {
                Counter(
                    label: "carillon.deliveries.answered",
                    dimensions: [("provider", provider.rawValue), ("outcome", outcome.rawValue)]
                )
            }
            self.accepted = answers(.accepted)
            self.retry = answers(.retry)
            self.failed = answers(.failed)
            self.skipped = answers(.skipped)
            self.duration = Timer(
                label: "carillon.deliveries.duration",
                dimensions: [("provider", provider.rawValue)]
            )
        }

        /// Failures by the provider's word for them; what is no word counts with the others.
        func failure(_ reason: String) -> Counter {
            self.reasons.counter(
                "carillon.deliveries.failures", [("provider", self.provider.rawValue)], "reason", reason)
        }

        /// Deliveries that had to wait for their turn.
        func held(_ reason: String) -> Counter {
            self.reasons.counter("carillon.deliveries.held", [("provider", self.provider.rawValue)], "reason", reason)
        }

        /// Answers, by what they meant.
        func answers(_ outcome: DeliveryStore.Outcome) -> Counter {
            switch outcome {
            case .accepted: self.accepted
            case .retry: self.retry
            case .failed: self.failed
            case .skipped: self.skipped
            }
        }
    }
}
