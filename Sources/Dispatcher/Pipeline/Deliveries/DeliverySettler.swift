// Carillon · DeliverySettler.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Decision
import Logging
import Model
import Providers
import Redis
import Stores
import Streams

/// Records outcomes in batches: PostgreSQL first, then retries and dead letters, then the acknowledgement.
struct DeliverySettler: Sendable {
    private static let configurationDelay: Duration = .seconds(60)

    /// What a batch of outcomes comes to.
    private struct Ledger {
        var settlement = DeliveryStore.Settlement()
        var postponed: [(item: FollowUpStore.Item, due: Timestamp, reason: String)] = []
        var retries: [(work: DeliveryWork, due: Timestamp, lane: Lane)] = []
        var dead: [DeadLetter] = []
        var finished: [String: (group: ConsumerGroup, ids: [String])] = [:]
        var told: [LifecycleEvent] = []
    }

    let dispatcher: Dispatcher
    let provider: Provider
    let metrics: PipelineMetrics.Deliveries

    func settle(_ outcomes: [DeliveryOutcome]) async throws {
        var ledger = Ledger()
        for outcome in outcomes { self.note(outcome, in: &ledger) }
        let settlement = ledger.settlement
        try await self.dispatcher.untilDone("record deliveries") {
            try await self.dispatcher.deliveries.settle(settlement)
        }
        let postponed = ledger.postponed
        try await self.dispatcher.untilDone("put off") { try await self.dispatcher.followUps.put(postponed) }
        try await DeadLetterOffice(dispatcher: self.dispatcher).setAside(ledger.dead)
        try await self.schedule(ledger.retries)
        for outcome in outcomes {
            if let work = outcome.work, !outcome.isTwin { self.dispatcher.sends.end(work) }
        }
        var told = ledger.told
        for (group, ids) in ledger.finished.values {
            try await self.dispatcher.acknowledge(ids, group, telling: told)
            told = []
        }
    }

    /// The member of the retry set is the work itself, so that doing this twice schedules it once.
    private func schedule(_ retries: [(work: DeliveryWork, due: Timestamp, lane: Lane)]) async throws {
        guard !retries.isEmpty else { return }
        let set = RetrySet(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        var batch = RedisBatch()
        for retry in retries {
            set.add(retry.work, due: retry.due, provider: self.provider, lane: retry.lane, in: &batch)
        }
        let request = batch
        try await self.dispatcher.untilDone("schedule retries") {
            for reply in try await self.dispatcher.redis.send(request) { _ = try reply.checked() }
        }
    }

    private func note(_ outcome: DeliveryOutcome, in ledger: inout Ledger) {
        ledger.finished[outcome.group.stream, default: (outcome.group, [])].ids.append(outcome.entry.id)
        guard let work = outcome.work else {
            ledger.dead.append(self.letter(outcome, reason: "the entry is not a delivery"))
            return
        }
        switch outcome.result {
        case .malformed, .gone:
            self.record(outcome, work, .skipped, "gone", in: &ledger)
        case .refused(let refusal):
            self.record(outcome, work, .skipped, refusal.rawValue, in: &ledger)
            if refusal == .expired || refusal == .deviceInactive || refusal == .optedOut {
                self.fail(outcome, work, refusal.rawValue, as: refusal == .expired ? .expired : .failed, in: &ledger)
            }
        case .putOff(let end):
            self.record(outcome, work, .skipped, GateRefusal.quietHours.rawValue, in: &ledger)
            let kind: FollowUp = work.callsForAttention ? .attention : .release
            let item = FollowUpStore.Item(user: work.user, notification: work.notification, kind: kind)
            ledger.postponed.append((item, end, GateRefusal.quietHours.rawValue))
            if kind == .release { self.tell(.deferred, outcome, GateRefusal.quietHours.rawValue, in: &ledger) }
        case .answered(let answer):
            self.note(answer, outcome, work, in: &ledger)
        case .unanswered(let reason, let mayHaveBeenSent):
            // Whether it arrived is not known; a repeat carries the same ids, so that the client can tell.
            let suffix = mayHaveBeenSent ? "unknown_outcome" : "not_sent"
            self.retry(outcome, work, reason: "\(suffix):\(reason)", after: nil, in: &ledger)
        case .noCredential(let reason):
            self.dispatcher.logger.error(
                "provider has no credential",
                metadata: ["provider": "\(self.provider.rawValue)", "error": "\(reason)"]
            )
            self.park(outcome, work, reason: "no_credential", in: &ledger)
        }
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
            ledger.settlement.accepted.append((work.user, work.notification, self.provider.rawValue))
            self.tell(.sent, outcome, nil, in: &ledger)
        case .retry(let reason, let after):
            self.retry(outcome, work, reason: reason, after: after, in: &ledger)
        case .deadToken(let reason, let evidence):
            self.record(outcome, work, .failed, reason, in: &ledger)
            ledger.settlement.deadTokens.append((work.device, reason, evidence ?? outcome.sentAt))
            self.tell(.tokenInvalid, outcome, reason, in: &ledger)
            self.fail(outcome, work, reason, in: &ledger)
        case .refused(let reason):
            self.record(outcome, work, .failed, reason, in: &ledger)
            self.fail(outcome, work, reason, in: &ledger)
            ledger.dead.append(self.letter(outcome, reason: "\(self.provider.rawValue) refused it: \(reason)"))
        case .configuration(let reason), .staleCredential(let reason):
            self.dispatcher.logger.error(
                "provider does not accept our configuration",
                metadata: ["provider": "\(self.provider.rawValue)", "reason": "\(reason)"]
            )
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
        self.metrics.answers(result).increment()
        ledger.settlement.attempts.append(
            DeliveryStore.Attempt(
                at: outcome.sentAt,
                user: work.user,
                notification: work.notification,
                device: work.device,
                provider: self.provider,
                kind: "push",
                attempt: work.attempt + 1,
                outcome: result,
                reason: reason,
                providerID: providerID,
                milliseconds: Int32(clamping: outcome.duration.inMicroseconds / 1_000)
            )
        )
    }

    private func retry(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        reason: String,
        after: Duration?,
        in ledger: inout Ledger
    ) {
        var generator = SystemRandomNumberGenerator()
        let due = RetryPolicy.of(outcome.lane).next(
            tried: work.attempt + 1,
            minimum: after,
            now: self.dispatcher.now(),
            expiresAt: outcome.expiresAt,
            using: &generator
        )
        guard let due else {
            self.record(outcome, work, .failed, reason, in: &ledger)
            self.fail(outcome, work, reason, in: &ledger)
            ledger.dead.append(self.letter(outcome, reason: "gave up after \(work.attempt + 1) tries: \(reason)"))
            return
        }
        self.record(outcome, work, .retry, reason, in: &ledger)
        ledger.retries.append((work.afterTry, due, outcome.lane))
    }

    /// Keeps work that is not at fault until its provider can be used again, without counting tries.
    private func park(_ outcome: DeliveryOutcome, _ work: DeliveryWork, reason: String, in ledger: inout Ledger) {
        let due = self.dispatcher.now() + Self.configurationDelay
        if let expiresAt = outcome.expiresAt, due >= expiresAt {
            self.record(outcome, work, .failed, reason, in: &ledger)
            self.fail(outcome, work, reason, as: .expired, in: &ledger)
            ledger.dead.append(self.letter(outcome, reason: "expired while its provider was out of use: \(reason)"))
            return
        }
        self.record(outcome, work, .retry, reason, in: &ledger)
        ledger.retries.append((work, due, outcome.lane))
    }

    /// Records that it does not reach the device.
    private func fail(
        _ outcome: DeliveryOutcome,
        _ work: DeliveryWork,
        _ reason: String,
        as kind: LifecycleEvent.Kind = .failed,
        in ledger: inout Ledger
    ) {
        ledger.settlement.failed.append((work.user, work.notification, reason))
        self.tell(kind, outcome, reason, in: &ledger)
    }

    private func tell(
        _ kind: LifecycleEvent.Kind,
        _ outcome: DeliveryOutcome,
        _ reason: String?,
        in ledger: inout Ledger
    ) {
        guard self.dispatcher.events.isOn, let facts = outcome.facts else { return }
        ledger.told.append(
            LifecycleEvent(
                kind,
                facts.notification.label,
                at: self.dispatcher.now(),
                channel: .push,
                device: facts.device,
                reason: reason
            )
        )
    }

    private func letter(_ outcome: DeliveryOutcome, reason: String) -> DeadLetter {
        DeadLetter(
            stream: outcome.group.stream,
            entry: outcome.entry.id,
            reason: reason,
            at: self.dispatcher.now(),
            fields: outcome.entry.fields ?? []
        )
    }
}

extension DeliveryOutcome {
    /// Whether another entry makes the same delivery.
    var isTwin: Bool {
        if case .refused(.underWay) = self.result { return true }
        return false
    }
}
