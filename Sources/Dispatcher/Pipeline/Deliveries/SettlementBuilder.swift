// Carillon · SettlementBuilder.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Providers
import Storage

/// Decides which changes outcomes make in PostgreSQL and Redis; the settler makes them.
struct SettlementBuilder {
    private static let configurationDelay: Duration = .seconds(60)
    /// A token that is rejected this long after its registration is dead, however old the
    /// evidence: an imported token may have died before the import.
    private static let registrationDelay: Duration = .seconds(24 * 3_600)

    let provider: Provider
    let metrics: PipelineMetrics.Deliveries
    let logger: Logger
    let now: Timestamp
    let spread: @Sendable () -> Duration
    var settlement = DeliveryStore.Settlement()
    var postponed: [(entry: DeliveryOutcome.EntryKey, item: Postponement)] = []
    var waiting: [DeliveryHandover.Waiting] = []
    var dead: [DeadLetter] = []
    var lifecycle: [LifecycleEvent] = []

    private var isMail: Bool { self.provider == .email }

    mutating func add(_ other: SettlementBuilder) {
        self.settlement.add(other.settlement)
        self.postponed += other.postponed
        self.waiting += other.waiting
        self.dead += other.dead
        self.lifecycle += other.lifecycle
    }

    /// Keeps only these entries' steps, and all dead letters: no other dispatcher writes a
    /// letter for a delivery that has ended.
    mutating func keep(_ entries: Set<DeliveryOutcome.EntryKey>) {
        self.postponed.removeAll { !entries.contains($0.entry) }
        self.waiting.removeAll { !entries.contains($0.outcome.entryKey) }
    }

    /// Returns one postponement per notification and kind: the gate may have postponed it for
    /// several devices.
    func distinctPostponements() -> [Postponement] {
        var seen: [FollowUp: Set<NotificationID>] = [:]
        return self.postponed.map(\.item).filter { item in
            seen[item.kind, default: []].insert(item.notification.id).inserted
        }
    }

    mutating func add(_ outcome: DeliveryOutcome) {
        // A retraction or an entry that is no delivery gets a dead letter here, too.
        if case .poison = outcome.result { self.setAside(outcome, ClaimService.deadlyReason) }
        guard let work = outcome.work else {
            if case .malformed = outcome.result { self.setAside(outcome, "the entry is not a delivery") }
            return
        }
        guard !work.isRetraction else { return self.addRetraction(outcome, work) }
        switch outcome.result {
        case .malformed, .gone:
            self.addAttempt(outcome, work, .skipped, GateRefusal.deviceInactive.rawValue)
            // A socket may still prove the notification of an attention call; else a push follows.
            if work.callsForAttention {
                self.fail(outcome, work, Reason.noDevice.rawValue)
            } else {
                self.settlement.obsolete.append((work.key, Reason.noDevice.rawValue))
            }
        case .refused(let refusal): self.addRefusal(refusal, outcome, work)
        case .postponed(let end): self.addPostponement(until: end, outcome, work)
        case .answered(let answer): self.addAnswer(answer, outcome, work)
        case .unanswered(let reason, mayHaveBeenSent: true):
            self.addUnknown(outcome, work, reason)
        case .unanswered(let reason, mayHaveBeenSent: false):
            self.retry(outcome, work.afterTry, reason: "not_sent:\(reason)")
        case .noCredential(let reason):
            self.park(outcome, work, reason: reason)
        case .unsendable(let reason):
            let letter = "\(self.providerName(outcome)) cannot send it: \(reason)"
            self.giveUp(outcome, work, reason, letter: letter)
        case .poison:
            self.addAttempt(outcome, work, .failed, RecordedReason.dispatchersDied.rawValue)
            self.fail(outcome, work, RecordedReason.dispatchersDied.rawValue)
        case .noProvider:
            self.addAttempt(outcome, work, .skipped, RecordedReason.noProvider.rawValue)
            self.fail(outcome, work, RecordedReason.noProvider.rawValue)
        case .heldBack(let until, let reason, let scope):
            // It was not tried, so no attempt is recorded.
            self.metrics.countHeld(reason)
            self.hold(outcome, work, until: until + self.spread(), scope: scope)
        }
    }

    private mutating func addRefusal(_ refusal: GateRefusal, _ outcome: DeliveryOutcome, _ work: DeliveryWork) {
        // For mail, the device is an address.
        let reason = self.isMail && refusal == .deviceInactive ? RecordedReason.noAddress.rawValue : refusal.rawValue
        self.addAttempt(outcome, work, .skipped, reason)
        switch refusal {
        case .expired: self.fail(outcome, work, reason, as: .expired)
        case .deviceInactive: self.fail(outcome, work, reason)
        // A socket or a push may still have the notification.
        case .optedOut where self.isMail || work.callsForAttention: self.fail(outcome, work, reason)
        // The first mail went out. The notification may still wait for a proof or a push.
        case .alreadyAccepted where self.isMail: break
        case .read, .deleted, .replaced, .cancelled, .alreadyDelivered, .alreadyAccepted, .typeDisabled, .optedOut:
            self.settlement.obsolete.append((work.key, reason))
        // A skipped attention call ends nothing: sockets have the notification.
        case .notInQuietHours where work.callsForAttention: break
        case .notInQuietHours: self.settlement.obsolete.append((work.key, Reason.quietHours.rawValue))
        case .unread, .underWay, .quietHours: break
        }
    }

    private mutating func addPostponement(until end: Timestamp, _ outcome: DeliveryOutcome, _ work: DeliveryWork) {
        self.addAttempt(outcome, work, .skipped, GateRefusal.quietHours.rawValue)
        // Without the notification, retry rather than lose it.
        guard let notification = outcome.facts?.notification else { return self.hold(outcome, work, until: end) }
        let postponement = Postponement(
            notification: notification, kind: work.callsForAttention ? .attention : .release, due: end,
            reason: GateRefusal.quietHours.rawValue)
        self.postponed.append((outcome.entryKey, postponement))
    }

    /// Retractions are tried once: a read notification on a device does little harm.
    private mutating func addRetraction(_ outcome: DeliveryOutcome, _ work: DeliveryWork) {
        switch outcome.result {
        case .answered(.accepted(let id)): self.addAttempt(outcome, work, .accepted, nil, providerID: id)
        case .answered(let answer):
            self.addAttempt(outcome, work, .failed, answer.reason)
            if case .deadToken(let reason, let evidence) = answer {
                self.addDeadToken(outcome, work, reason, evidence)
            }
        case .refused(let refusal): self.addAttempt(outcome, work, .skipped, refusal.rawValue)
        case .unanswered(let reason, _), .unsendable(let reason):
            self.addAttempt(outcome, work, .failed, reason)
        case .poison: self.addAttempt(outcome, work, .failed, RecordedReason.dispatchersDied.rawValue)
        case .malformed, .gone:
            self.addAttempt(outcome, work, .skipped, GateRefusal.deviceInactive.rawValue)
        case .postponed: self.addAttempt(outcome, work, .skipped, GateRefusal.quietHours.rawValue)
        case .noCredential(let reason), .heldBack(_, let reason, _):
            self.addAttempt(outcome, work, .skipped, reason)
        case .noProvider: self.addAttempt(outcome, work, .skipped, RecordedReason.noProvider.rawValue)
        }
    }

    /// Adds the token or address that a provider rejected, with its event.
    private mutating func addDeadToken(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ reason: String,
        _ evidence: Timestamp?
    ) {
        // A later registration outweighs the evidence.
        let moment = max(evidence ?? outcome.sentAt, outcome.sentAt - Self.registrationDelay)
        let token = outcome.facts?.device.token ?? ""
        if self.isMail {
            self.settlement.deadAddresses.append((work.user, token, reason, moment))
        } else {
            self.settlement.deadTokens.append((work.device, token, reason, moment))
        }
        self.addEvent(.tokenInvalid, outcome, reason)
    }

    private mutating func addAnswer(_ answer: ProviderAnswer, _ outcome: DeliveryOutcome, _ work: DeliveryWork) {
        switch answer {
        case .accepted(let id):
            self.addAttempt(outcome, work, .accepted, nil, providerID: id)
            self.settlement.accepted.append((work.key, self.provider.rawValue, work.device))
            self.addEvent(.sent, outcome, nil)
        case .retry(let reason, let after):
            self.retry(outcome, work.afterTry, reason: reason, after: after)
        case .retryDevice(let reason, let after):
            self.retry(outcome, work.afterTry, reason: reason, after: after)
        case .slowDown(let reason, let after):
            // No longer than its account pauses.
            let delay = min(after, AccountPauses.longest)
            self.retry(outcome, work.afterTry, reason: reason, after: delay)
        case .deadToken(let reason, let evidence):
            self.addAttempt(outcome, work, .failed, reason)
            self.addDeadToken(outcome, work, reason, evidence)
            self.fail(outcome, work, reason)
        case .refused(let reason):
            let letter = "\(self.providerName(outcome)) refused it: \(reason)"
            self.giveUp(outcome, work, reason, letter: letter)
        case .configuration(let reason, concernsAll: false):
            // No breaker stops these calls, because other devices are served with the same
            // configuration.
            let delay = RetryPolicy.configurationDelay(tried: work.attempt + 1)
            self.retry(outcome, work.afterTry, reason: reason, after: delay)
        case .configuration(let reason, _), .staleCredential(let reason):
            self.park(outcome, work, reason: reason)
        }
    }

    private mutating func addAttempt(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ result: DeliveryStore.Outcome,
        _ reason: String?,
        providerID: String? = nil
    ) {
        self.metrics.count(result)
        self.log(outcome, work, result, reason)
        if result == .failed || result == .retry, let reason { self.metrics.failure(reason).increment() }
        self.settlement.attempts.append(
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
        self.settlement.finishedFollowUps.append((work.key, self.isMail ? .email : .attention, result == .accepted))
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
        guard self.logger.logLevel <= .debug else { return }
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
        self.logger.debug("delivery ended", metadata: metadata)
    }

    /// Repeats a delivery with an unknown outcome once, with the same ids and keys, so that the
    /// device shows it once.
    ///
    /// Critical pushes are repeated more often, because a lost alert is worse than a double one. A
    /// mail is not, because few mail programs merge repeats. A connection that ended with GOAWAY
    /// does not count as such a repeat: the server has usually not processed the request (RFC 9113,
    /// section 6.8), and servers that are replaced one by one send many.
    private mutating func addUnknown(_ outcome: DeliveryOutcome, _ work: DeliveryWork, _ cause: String) {
        let reason = "unknown_outcome:\(cause)"
        if cause == TransferFailure.Reason.goAway.rawValue {
            return self.retry(outcome, work.afterTry, reason: reason)
        }
        let isOften = outcome.lane == .critical && !self.isMail
        let mostRepeats = isOften ? RetryPolicy.of(.critical, self.provider).tries : 1
        guard work.unknowns >= mostRepeats else {
            return self.retry(outcome, work.afterUnknown, reason: reason)
        }
        let letter = "no answer more than once, so it may have arrived: \(reason)"
        self.giveUp(outcome, work, reason, letter: letter)
    }

    /// - Parameter next: the work of the next try.
    private mutating func retry(
        _ outcome: DeliveryOutcome,
        _ next: DeliveryWork,
        reason: String,
        after: Duration? = nil
    ) {
        guard let work = outcome.work else { return }
        var generator = SystemRandomNumberGenerator()
        let due = RetryPolicy.of(outcome.lane, self.provider).next(
            tried: work.attempt + 1,
            since: work.waiting(since: outcome.entry).since,
            minimum: after,
            now: self.now,
            expiresAt: outcome.expiresAt,
            using: &generator
        )
        guard let due else {
            let letter = "gave up after \(work.attempt + 1) tries: \(reason)"
            return self.giveUp(outcome, work, reason, letter: letter)
        }
        self.addAttempt(outcome, work, .retry, reason)
        self.schedule(outcome, next, due: due)
    }

    private mutating func schedule(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        due: Timestamp,
        scope: BreakerScope? = nil
    ) {
        self.waiting.append(
            DeliveryHandover.Waiting(
                outcome: outcome, work: work.waiting(since: outcome.entry), due: due, scope: scope))
    }

    /// Schedules a delivery without counting a try, at the latest when it expires.
    private mutating func hold(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        until moment: Timestamp,
        scope: BreakerScope? = nil
    ) {
        let due = outcome.expiresAt.map { min(moment, $0) } ?? moment
        // As a repeat, so that a takeover before the acknowledgement adds the same member.
        self.schedule(outcome, work.asRepeat, due: due, scope: scope)
    }

    /// Retries a delivery every minute until its provider works again or it expires, without
    /// counting tries.
    private mutating func park(_ outcome: DeliveryOutcome, _ work: DeliveryWork, reason: String) {
        self.addAttempt(outcome, work, .retry, reason)
        self.hold(outcome, work, until: self.now + Self.configurationDelay)
    }

    /// Ends a delivery that is not tried again, with a dead letter.
    ///
    /// - Parameter letter: the reason in words.
    private mutating func giveUp(_ outcome: DeliveryOutcome, _ work: DeliveryWork, _ reason: String, letter: String) {
        self.addAttempt(outcome, work, .failed, reason)
        self.fail(outcome, work, reason)
        self.setAside(outcome, letter)
    }

    /// Records that a device or mailbox was not reached.
    ///
    /// A failed mail does not fail a notification in the inbox. Nor does a failed attention call,
    /// because a socket has the notification and may prove it. A failed push does so only once no
    /// other device may get one.
    private mutating func fail(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ reason: String,
        as kind: LifecycleEvent.Kind = .failed
    ) {
        let isAside =
            self.isMail ? outcome.facts?.notification.channels.contains(.inApp) != false : work.callsForAttention
        if isAside {
            self.settlement.unsentSecondary.append((work.key, reason, hasFailed: true))
        } else {
            self.settlement.failed.append((work.key, reason, isPush: !self.isMail))
        }
        self.addEvent(kind, outcome, reason)
    }

    private mutating func addEvent(_ kind: LifecycleEvent.Kind, _ outcome: DeliveryOutcome, _ reason: String?) {
        guard let facts = outcome.facts else { return }
        self.lifecycle.append(
            LifecycleEvent(
                kind,
                facts.notification.label,
                at: self.now,
                channel: self.isMail ? .email : .push,
                device: self.isMail ? nil : facts.device,
                reason: reason
            )
        )
    }

    /// The provider, and its app unless that is the default one, as operators configure them.
    private func providerName(_ outcome: DeliveryOutcome) -> String {
        guard let app = outcome.app, app != "default" else { return self.provider.rawValue }
        return "\(self.provider.rawValue) of app \(app)"
    }

    /// Adds a dead letter.
    private mutating func setAside(_ outcome: DeliveryOutcome, _ reason: String) {
        let letter = DeadLetter(
            stream: outcome.group.stream,
            entry: outcome.entry.id,
            reason: reason,
            at: self.now,
            fields: outcome.entry.fields ?? []
        )
        self.dead.append(letter)
    }
}
