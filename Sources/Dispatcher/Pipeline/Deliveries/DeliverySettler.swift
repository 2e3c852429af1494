// Carillon · DeliverySettler.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Providers
import Storage

/// Settles outcomes in batches: records them in PostgreSQL, then hands them over in Redis.
struct DeliverySettler: Sendable {
    private static let configurationDelay: Duration = .seconds(60)
    /// A token that is rejected this long after its registration is dead, however old the evidence:
    /// an imported token may have died before the import.
    private static let registrationDelay: Duration = .seconds(24 * 3_600)

    /// The changes that a batch of outcomes makes.
    fileprivate struct Ledger {
        var settlement = DeliveryStore.Settlement()
        var postponed: [(place: DeliveryOutcome.Place, item: Postponement)] = []
        var waiting: [DeliveryHandover.Waiting] = []
        var dead: [DeadLetter] = []
        var lifecycle: [LifecycleEvent] = []

        mutating func add(_ other: Ledger) {
            self.settlement.add(other.settlement)
            self.postponed += other.postponed
            self.waiting += other.waiting
            self.dead += other.dead
            self.lifecycle += other.lifecycle
        }

        /// Drops the steps of other entries than these, but for dead letters: nobody else may write
        /// those of deliveries that have ended.
        mutating func keep(_ places: Set<DeliveryOutcome.Place>) {
            self.postponed.removeAll { !places.contains($0.place) }
            self.waiting.removeAll { !places.contains($0.outcome.place) }
        }

        /// One postponement for each notification, as it may have reached the gate for several
        /// devices.
        func distinctPostponements() -> [Postponement] {
            var seen: [FollowUp: Set<NotificationID>] = [:]
            return self.postponed.map(\.item).filter { item in
                seen[item.kind, default: []].insert(item.notification.id).inserted
            }
        }
    }

    let dispatcher: Dispatcher
    let provider: Provider
    let metrics: PipelineMetrics.Deliveries
    let tally: ProviderTally
    /// Jitter for deliveries that were held back together.
    var spread: @Sendable () -> Duration = { .milliseconds(Int.random(in: 0...1_000)) }

    private var isMail: Bool { self.provider == .email }

    init(dispatcher: Dispatcher, provider: Provider, metrics: PipelineMetrics.Deliveries) {
        self.dispatcher = dispatcher
        self.provider = provider
        self.metrics = metrics
        self.tally = ProviderTally(provider)
    }

    /// A batch whose calls are on record; ``finish(_:)`` does the rest.
    struct Recorded: Sendable {
        fileprivate var held: [DeliveryOutcome]
        fileprivate var ledger: Ledger
        fileprivate var effects: DeliveryStore.Effects
        /// The outcomes that came after the lease had lapsed, and their changes but for the calls.
        fileprivate var lapsed: [DeliveryOutcome]
        fileprivate var rest: [DeliveryOutcome.Place: Ledger]

        fileprivate mutating func add(_ other: Recorded) {
            self.held += other.held
            self.ledger.add(other.ledger)
            self.effects.add(other.effects)
            self.lapsed += other.lapsed
            self.rest.merge(other.rest) { $1 }
        }
    }

    func settle(_ outcomes: [DeliveryOutcome]) async throws {
        try await self.finish([try await self.record(outcomes)])
    }

    /// Records a batch in PostgreSQL, also while Redis is away: a dispatcher that takes over an
    /// entry looks for its calls.
    ///
    /// If the lease had lapsed before an outcome came, only its call is recorded.
    func record(_ outcomes: [DeliveryOutcome]) async throws -> Recorded {
        self.tally.note(outcomes)
        let term = self.dispatcher.leaseClock.term
        // Almost always none, so the batch is not copied.
        let lapsed = outcomes.filter { $0.term != term }
        let held = lapsed.isEmpty ? outcomes : outcomes.filter { $0.term == term }
        var ledger = Ledger()
        for outcome in held { self.note(outcome, in: &ledger) }
        var rest: [DeliveryOutcome.Place: Ledger] = [:]
        for outcome in lapsed {
            var own = Ledger()
            self.note(outcome, in: &own)
            if outcome.result.isCall {
                ledger.settlement.attempts += own.settlement.attempts
                own.settlement.attempts = []
            }
            if case .answered(.accepted) = outcome.result {
                ledger.add(own)
                own = Ledger()
            }
            rest[outcome.place] = own
        }
        let effects = try await self.record(ledger.settlement)
        return Recorded(held: held, ledger: ledger, effects: effects, lapsed: lapsed, rest: rest)
    }

    /// Does the rest of some batches at once, for the entries that still belong to this process.
    func finish(_ batches: [Recorded]) async throws {
        guard var recorded = batches.first else { return }
        for batch in batches.dropFirst() { recorded.add(batch) }
        try await self.finish(recorded.held, recorded.ledger, recorded.effects)
        guard !recorded.lapsed.isEmpty else { return }
        let owned = try await self.handover.owned(recorded.lapsed)
        guard !owned.isEmpty else { return }
        var ledger = Ledger()
        for outcome in owned { if let own = recorded.rest[outcome.place] { ledger.add(own) } }
        try await self.finish(owned, ledger, try await self.record(ledger.settlement))
    }

    private func record(_ settlement: DeliveryStore.Settlement) async throws -> DeliveryStore.Effects {
        try await self.dispatcher.untilDone("record deliveries") {
            try await self.dispatcher.database.deliveries.settle(settlement)
        }
    }

    private func finish(
        _ outcomes: [DeliveryOutcome],
        _ ledger: Ledger,
        _ effects: DeliveryStore.Effects
    ) async throws {
        var ledger = ledger
        let owned = try await self.handover.owned(outcomes)
        if owned.count < outcomes.count { ledger.keep(Set(owned.map(\.place))) }
        try await self.postpone(ledger.distinctPostponements(), in: &ledger)
        try await DeadLetterQueue(dispatcher: self.dispatcher).setAside(ledger.dead)
        try await self.handover.finish(
            owned, waiting: ledger.waiting,
            reporting: Self.withoutStaleTokens(ledger.lifecycle, effects) + self.dispatcher.events(of: effects.ended))
    }

    /// Postpones notifications, with an event for each that another provider has not postponed yet.
    private func postpone(_ postponements: [Postponement], in ledger: inout Ledger) async throws {
        guard !postponements.isEmpty else { return }
        let now = self.dispatcher.now()
        let recorded = try await self.dispatcher.untilDone("look up postponements") {
            try await self.dispatcher.database.followUps.recorded(
                postponements.map { ($0.item, $0.due) }, now: now)
        }
        try await self.dispatcher.postpone(postponements, recorded: recorded)
        for one in postponements where one.kind == .release && !recorded.contains(one.notification.id) {
            ledger.lifecycle.append(
                LifecycleEvent(.deferred, one.notification.label, at: now, channel: .push, reason: one.reason))
        }
    }

    private var handover: DeliveryHandover { DeliveryHandover(dispatcher: self.dispatcher, provider: self.provider) }

    /// Drops `tokenInvalid` events of tokens and addresses that were registered since, or reported
    /// before.
    private static func withoutStaleTokens(
        _ events: [LifecycleEvent],
        _ effects: DeliveryStore.Effects
    ) -> [LifecycleEvent] {
        var current = effects
        return events.filter { event in
            guard event.kind == .tokenInvalid else { return true }
            if let device = event.device { return current.devices.remove(device) != nil }
            return current.addresses.remove(ExactText(event.label.user)) != nil
        }
    }

    private func note(_ outcome: DeliveryOutcome, in ledger: inout Ledger) {
        if case .poison = outcome.result {
            self.setAside(outcome, ClaimService.deadlyReason, in: &ledger)
        }
        guard let work = outcome.work else {
            if case .malformed = outcome.result {
                self.setAside(outcome, "the entry is not a delivery", in: &ledger)
            }
            return
        }
        guard !work.isRetraction else { return self.noteRetraction(outcome, work, in: &ledger) }
        switch outcome.result {
        case .malformed, .gone:
            self.record(outcome, work, .skipped, GateRefusal.deviceInactive.rawValue, in: &ledger)
            ledger.settlement.dropped.append((work.user, work.notification, Reason.noDevice.rawValue))
        case .refused(let refusal):
            self.record(outcome, work, .skipped, refusal.rawValue, in: &ledger)
            switch refusal {
            case .expired: self.fail(outcome, work, refusal.rawValue, as: .expired, in: &ledger)
            case .deviceInactive: self.fail(outcome, work, refusal.rawValue, in: &ledger)
            // A socket or a push may still have the notification.
            case .optedOut where self.isMail || work.callsForAttention:
                self.fail(outcome, work, refusal.rawValue, in: &ledger)
            // A repeat of mail that went out does not end what waits for proof or a push.
            case .alreadyAccepted where self.isMail: break
            case .read, .deleted, .replaced, .cancelled, .alreadyDelivered, .alreadyAccepted, .typeDisabled, .optedOut:
                ledger.settlement.dropped.append((work.user, work.notification, refusal.rawValue))
            case .notInQuietHours:
                // An idle user's push says nothing about the notification, which sockets have.
                guard !work.callsForAttention else { break }
                ledger.settlement.dropped.append((work.user, work.notification, Reason.quietHours.rawValue))
            case .unread, .underWay, .quietHours: break
            }
        case .postponed(let end):
            self.record(outcome, work, .skipped, GateRefusal.quietHours.rawValue, in: &ledger)
            let kind: FollowUp = work.callsForAttention ? .attention : .release
            guard let notification = outcome.facts?.notification else {
                // Without the notification, retry rather than lose it.
                ledger.waiting.append(self.waiting(outcome, work.asRepeat, due: end))
                return
            }
            let postponement = Postponement(
                notification: notification, kind: kind, due: end, reason: GateRefusal.quietHours.rawValue)
            ledger.postponed.append((outcome.place, postponement))
        case .answered(let answer):
            self.note(answer, outcome, work, in: &ledger)
        case .unanswered(let reason, mayHaveBeenSent: true):
            self.noteUnknown(outcome, work, reason, in: &ledger)
        case .unanswered(let reason, mayHaveBeenSent: false):
            self.retry(outcome, work.afterTry, reason: "not_sent:\(reason)", after: nil, in: &ledger)
        case .noCredential(let reason):
            self.park(outcome, work, reason: reason, in: &ledger)
        case .unsendable(let reason):
            let letter = "\(self.place(outcome)) cannot send it: \(reason)"
            self.giveUp(outcome, work, reason, letter: letter, in: &ledger)
        case .poison:
            self.record(outcome, work, .failed, RecordedReason.dispatchersDied.rawValue, in: &ledger)
            self.fail(outcome, work, RecordedReason.dispatchersDied.rawValue, in: &ledger)
        case .noProvider:
            self.record(outcome, work, .skipped, RecordedReason.noProvider.rawValue, in: &ledger)
            self.fail(outcome, work, RecordedReason.noProvider.rawValue, in: &ledger)
        case .heldBack(let until, let reason, let app):
            // It was not tried, so no attempt is recorded.
            self.metrics.held(reason).increment()
            let next = until + self.spread()
            let due = outcome.expiresAt.map { min(next, $0) } ?? next
            // As a repeat, so that a takeover before the acknowledgement adds the same member.
            ledger.waiting.append(self.waiting(outcome, work.asRepeat, due: due, app: app))
        }
    }

    /// Retractions are tried once: a read notification on a device does little harm.
    private func noteRetraction(_ outcome: DeliveryOutcome, _ work: DeliveryWork, in ledger: inout Ledger) {
        switch outcome.result {
        case .answered(.accepted(let id)): self.record(outcome, work, .accepted, nil, providerID: id, in: &ledger)
        case .answered(let answer):
            self.record(outcome, work, .failed, answer.reason, in: &ledger)
            if case .deadToken(let reason, let evidence) = answer {
                let token = outcome.facts?.device.token ?? ""
                ledger.settlement.deadTokens.append((work.device, token, reason, Self.moment(evidence, outcome)))
                self.addEvent(.tokenInvalid, outcome, reason, in: &ledger)
            }
        case .refused(let refusal): self.record(outcome, work, .skipped, refusal.rawValue, in: &ledger)
        case .unanswered(let reason, _), .unsendable(let reason):
            self.record(outcome, work, .failed, reason, in: &ledger)
        case .poison: self.record(outcome, work, .failed, RecordedReason.dispatchersDied.rawValue, in: &ledger)
        case .malformed, .gone:
            self.record(outcome, work, .skipped, GateRefusal.deviceInactive.rawValue, in: &ledger)
        case .postponed: self.record(outcome, work, .skipped, GateRefusal.quietHours.rawValue, in: &ledger)
        case .noCredential(let reason), .heldBack(_, let reason, _):
            self.record(outcome, work, .skipped, reason, in: &ledger)
        case .noProvider: self.record(outcome, work, .skipped, RecordedReason.noProvider.rawValue, in: &ledger)
        }
    }

    /// Returns the moment after which a registration outweighs the evidence of a dead token.
    private static func moment(_ evidence: Timestamp?, _ outcome: DeliveryOutcome) -> Timestamp {
        max(evidence ?? outcome.sentAt, outcome.sentAt - Self.registrationDelay)
    }

    private func note(
        _ answer: ProviderAnswer,
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        in ledger: inout Ledger
    ) {
        switch answer {
        case .accepted(let id):
            self.record(outcome, work, .accepted, nil, providerID: id, in: &ledger)
            ledger.settlement.accepted.append((work.user, work.notification, self.provider.rawValue, work.device))
            self.addEvent(.sent, outcome, nil, in: &ledger)
        case .retry(let reason, let after):
            self.retry(outcome, work.afterTry, reason: reason, after: after, in: &ledger)
        case .retryDevice(let reason, let after):
            self.retry(outcome, work.afterTry, reason: reason, after: after, in: &ledger)
        case .slowDown(let reason, let after):
            // No longer than its account pauses.
            let delay = min(after, AccountPauses.longest)
            self.retry(outcome, work.afterTry, reason: reason, after: delay, in: &ledger)
        case .deadToken(let reason, let evidence):
            self.record(outcome, work, .failed, reason, in: &ledger)
            let moment = Self.moment(evidence, outcome)
            let token = outcome.facts?.device.token ?? ""
            if self.isMail {
                ledger.settlement.deadAddresses.append((work.user, token, reason, moment))
            } else {
                ledger.settlement.deadTokens.append((work.device, token, reason, moment))
            }
            self.addEvent(.tokenInvalid, outcome, reason, in: &ledger)
            self.fail(outcome, work, reason, in: &ledger)
        case .refused(let reason):
            let letter = "\(self.place(outcome)) refused it: \(reason)"
            self.giveUp(outcome, work, reason, letter: letter, in: &ledger)
        case .configuration(let reason, concernsAll: false):
            // No breaker stops these calls, because other devices are served with the same
            // configuration.
            let delay = RetryPolicy.configurationDelay(tried: work.attempt + 1)
            self.retry(outcome, work.afterTry, reason: reason, after: delay, in: &ledger)
        case .configuration(let reason, _), .staleCredential(let reason):
            self.park(outcome, work, reason: reason, in: &ledger)
        }
    }

    private func record(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ result: DeliveryStore.Outcome,
        _ reason: String?,
        providerID: String? = nil,
        in ledger: inout Ledger
    ) {
        self.metrics.count(result)
        self.log(outcome, work, result, reason)
        if result == .failed || result == .retry, let reason { self.metrics.failure(reason).increment() }
        ledger.settlement.attempts.append(
            DeliveryStore.Attempt(
                at: outcome.sentAt,
                user: work.user,
                notification: work.notification,
                device: work.device,
                provider: self.provider,
                kind: self.isMail ? "email" : work.isRetraction ? "retract" : "push",
                attempt: work.attempt + 1,
                outcome: result,
                reason: reason,
                providerID: providerID,
                milliseconds: Int32(clamping: outcome.duration.inMilliseconds)
            )
        )
        guard self.isMail || work.callsForAttention, !work.isRetraction, Self.isEnd(result, reason) else { return }
        ledger.settlement.ended.append(
            (work.user, work.notification, self.isMail ? .email : .attention, result == .accepted))
    }

    /// Whether a delivery is over: it will not be retried or postponed, and no other entry has it.
    private static func isEnd(_ result: DeliveryStore.Outcome, _ reason: String?) -> Bool {
        switch result {
        case .retry: false
        case .skipped: reason != GateRefusal.quietHours.rawValue && reason != GateRefusal.underWay.rawValue
        case .accepted, .failed: true
        }
    }

    private func log(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ result: DeliveryStore.Outcome,
        _ reason: String?
    ) {
        guard self.dispatcher.logger.logLevel <= .debug else { return }
        var metadata: Logger.Metadata = [
            "provider": "\(self.provider.rawValue)", "outcome": "\(result.rawValue)",
            "notification.id": "\(work.notification)", "attempt": "\(work.attempt + 1)",
        ]
        metadata["reason"] = reason.map { "\($0)" }
        metadata["job.id"] = outcome.facts?.notification.jobID.map { "\($0)" }
        // Without the stream, because the sender knows the entry only.
        let entry = outcome.facts?.notification.jobEntry.split(separator: "/").last
        metadata["job.entry"] = entry.map { "\($0)" }
        metadata["app"] = (outcome.app ?? outcome.facts?.device.app).map { "\($0)" }
        self.dispatcher.logger.debug("delivery ended", metadata: metadata)
    }

    /// Repeats a delivery whose outcome is unknown once, with the same ids and keys, so that the
    /// device shows one.
    ///
    /// Critical ones are repeated more often, because a lost alert is worse than a double one. A
    /// connection that ended with GOAWAY does not count as such a repeat: the server has usually
    /// not processed the request (RFC 9113, section 6.8), and servers that are replaced one by one
    /// send many.
    private func noteUnknown(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ cause: String,
        in ledger: inout Ledger
    ) {
        let reason = "unknown_outcome:\(cause)"
        if cause == TransferFailure.Reason.goAway.rawValue {
            self.retry(outcome, work.afterTry, reason: reason, after: nil, in: &ledger)
            return
        }
        let mostRepeats = outcome.lane == .critical ? RetryPolicy.of(.critical, self.provider).tries : 1
        guard work.unknowns >= mostRepeats else {
            self.retry(outcome, work.afterUnknown, reason: reason, after: nil, in: &ledger)
            return
        }
        let letter = "no answer more than once, so it may have arrived: \(reason)"
        self.giveUp(outcome, work, reason, letter: letter, in: &ledger)
    }

    /// - Parameter next: the work of the next try.
    private func retry(
        _ outcome: DeliveryOutcome,
        _ next: DeliveryWork,
        reason: String,
        after: Duration?,
        in ledger: inout Ledger
    ) {
        guard let work = outcome.work else { return }
        var generator = SystemRandomNumberGenerator()
        let due = RetryPolicy.of(outcome.lane, self.provider).next(
            tried: work.attempt + 1,
            minimum: after,
            now: self.dispatcher.now(),
            expiresAt: outcome.expiresAt,
            using: &generator
        )
        guard let due else {
            let letter = "gave up after \(work.attempt + 1) tries: \(reason)"
            return self.giveUp(outcome, work, reason, letter: letter, in: &ledger)
        }
        self.record(outcome, work, .retry, reason, in: &ledger)
        ledger.waiting.append(self.waiting(outcome, next, due: due))
    }

    private func waiting(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        due: Timestamp,
        app: String? = nil
    ) -> DeliveryHandover.Waiting {
        DeliveryHandover.Waiting(outcome: outcome, work: work.waiting(since: outcome.entry), due: due, app: app)
    }

    /// Keeps work until its provider can be used again or it expires, without counting a try.
    private func park(_ outcome: DeliveryOutcome, _ work: DeliveryWork, reason: String, in ledger: inout Ledger) {
        let next = self.dispatcher.now() + Self.configurationDelay
        let due = outcome.expiresAt.map { min(next, $0) } ?? next
        self.record(outcome, work, .retry, reason, in: &ledger)
        // As a repeat, so that a takeover adds the same member.
        ledger.waiting.append(self.waiting(outcome, work.asRepeat, due: due))
    }

    /// Ends a delivery that is not tried again, with a dead letter.
    ///
    /// - Parameter letter: the reason in words.
    private func giveUp(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ reason: String,
        letter: String,
        in ledger: inout Ledger
    ) {
        self.record(outcome, work, .failed, reason, in: &ledger)
        self.fail(outcome, work, reason, in: &ledger)
        self.setAside(outcome, letter, in: &ledger)
    }

    /// Records that a device or mailbox was not reached.
    ///
    /// A notification in the inbox does not fail with its mail, nor with a call for attention: a
    /// socket has it and may prove it. With a push it fails only once no other device may get one.
    private func fail(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ reason: String,
        as kind: LifecycleEvent.Kind = .failed,
        in ledger: inout Ledger
    ) {
        let isAside =
            self.isMail ? outcome.facts?.notification.channels.contains(.inApp) != false : work.callsForAttention
        if isAside {
            ledger.settlement.secondary.append((work.user, work.notification, reason, hasFailed: true))
        } else {
            ledger.settlement.failed.append((work.user, work.notification, reason, isPush: !self.isMail))
        }
        self.addEvent(kind, outcome, reason, in: &ledger)
    }

    private func addEvent(
        _ kind: LifecycleEvent.Kind,
        _ outcome: DeliveryOutcome,
        _ reason: String?,
        in ledger: inout Ledger
    ) {
        guard let facts = outcome.facts else { return }
        ledger.lifecycle.append(
            LifecycleEvent(
                kind,
                facts.notification.label,
                at: self.dispatcher.now(),
                channel: self.isMail ? .email : .push,
                device: self.isMail ? nil : facts.device,
                reason: reason
            )
        )
    }

    /// The provider, and its app unless that is the default one, as operators configure them.
    private func place(_ outcome: DeliveryOutcome) -> String {
        guard let app = outcome.app, app != "default" else { return self.provider.rawValue }
        return "\(self.provider.rawValue) of app \(app)"
    }

    /// Adds a dead letter.
    private func setAside(_ outcome: DeliveryOutcome, _ reason: String, in ledger: inout Ledger) {
        let letter = DeadLetter(
            stream: outcome.group.stream,
            entry: outcome.entry.id,
            reason: reason,
            at: self.dispatcher.now(),
            fields: outcome.entry.fields ?? []
        )
        ledger.dead.append(letter)
    }
}
