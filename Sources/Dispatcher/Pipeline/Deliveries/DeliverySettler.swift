// Carillon · DeliverySettler.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Storage

/// Settles outcomes in batches: records them in PostgreSQL, then hands them over in Redis.
struct DeliverySettler: Sendable {
    let dispatcher: Dispatcher
    let provider: Provider
    let metrics: PipelineMetrics.Deliveries
    let tally: ProviderTally
    /// Jitter for deliveries that were held back together.
    var spread: @Sendable () -> Duration = { .milliseconds(Int.random(in: 0...1_000)) }

    init(dispatcher: Dispatcher, provider: Provider, metrics: PipelineMetrics.Deliveries) {
        self.dispatcher = dispatcher
        self.provider = provider
        self.metrics = metrics
        self.tally = ProviderTally(provider)
    }

    /// A batch whose calls are on record; ``finish(_:)`` does the rest.
    struct Recorded: Sendable {
        fileprivate var held: [DeliveryOutcome]
        fileprivate var builder: SettlementBuilder
        fileprivate var effects: DeliveryStore.Effects
        /// Outcomes that came after the lease expired; `deferredByEntry` has their changes except
        /// the calls.
        fileprivate var lapsed: [DeliveryOutcome]
        fileprivate var deferredByEntry: [DeliveryOutcome.EntryKey: SettlementBuilder]

        fileprivate mutating func add(_ other: Recorded) {
            self.held += other.held
            self.builder.add(other.builder)
            self.effects.add(other.effects)
            self.lapsed += other.lapsed
            self.deferredByEntry.merge(other.deferredByEntry) { $1 }
        }
    }

    func settle(_ outcomes: [DeliveryOutcome]) async throws {
        try await self.finish([try await self.record(outcomes)])
    }

    /// Records a batch in PostgreSQL, also while Redis is away, so that a dispatcher that takes an
    /// entry over finds its calls.
    ///
    /// If the lease had lapsed before an outcome came, records only its call and, if the provider
    /// accepted it, the acceptance.
    func record(_ outcomes: [DeliveryOutcome]) async throws -> Recorded {
        self.tally.record(outcomes)
        let term = self.dispatcher.leaseClock.term
        // Almost always none, so the batch is not copied.
        let lapsed = outcomes.filter { $0.term != term }
        let held = lapsed.isEmpty ? outcomes : outcomes.filter { $0.term == term }
        let empty = self.emptyBuilder()
        var builder = empty
        for outcome in held { builder.add(outcome) }
        let (now, later) = Self.splitLapsed(lapsed, empty)
        builder.add(now)
        let effects = try await self.save(builder.settlement)
        return Recorded(held: held, builder: builder, effects: effects, lapsed: lapsed, deferredByEntry: later)
    }

    /// Splits the changes of outcomes that came after the lease expired.
    ///
    /// - Returns: those to record now, which are calls and acceptances; and the others by entry, to
    ///   record later if the entry still belongs to this process.
    private static func splitLapsed(
        _ outcomes: [DeliveryOutcome],
        _ empty: SettlementBuilder
    ) -> (now: SettlementBuilder, later: [DeliveryOutcome.EntryKey: SettlementBuilder]) {
        var now = empty
        var later: [DeliveryOutcome.EntryKey: SettlementBuilder] = [:]
        for outcome in outcomes {
            var own = empty
            own.add(outcome)
            if outcome.result.isCall {
                now.settlement.attempts += own.settlement.attempts
                own.settlement.attempts = []
            }
            if case .answered(.accepted) = outcome.result {
                now.add(own)
                own = empty
            }
            later[outcome.entryKey] = own
        }
        return (now, later)
    }

    /// Finishes several recorded batches at once, for the entries that still belong to this
    /// process.
    func finish(_ batches: [Recorded]) async throws {
        guard var recorded = batches.first else { return }
        for batch in batches.dropFirst() { recorded.add(batch) }
        try await self.handOver(recorded.held, recorded.builder, recorded.effects)
        guard !recorded.lapsed.isEmpty else { return }
        let owned = try await self.handover.owned(recorded.lapsed)
        guard !owned.isEmpty else { return }
        var builder = self.emptyBuilder()
        for outcome in owned { if let own = recorded.deferredByEntry[outcome.entryKey] { builder.add(own) } }
        try await self.handOver(owned, builder, try await self.save(builder.settlement))
    }

    private func emptyBuilder() -> SettlementBuilder {
        SettlementBuilder(
            provider: self.provider, metrics: self.metrics, logger: self.dispatcher.logger, now: self.dispatcher.now(),
            spread: self.spread)
    }

    private func save(_ settlement: DeliveryStore.Settlement) async throws -> DeliveryStore.Effects {
        try await self.dispatcher.retrying("record deliveries") {
            try await self.dispatcher.database.deliveries.settle(settlement)
        }
    }

    private func handOver(
        _ outcomes: [DeliveryOutcome],
        _ builder: SettlementBuilder,
        _ effects: DeliveryStore.Effects
    ) async throws {
        var builder = builder
        let owned = try await self.handover.owned(outcomes)
        if owned.count < outcomes.count { builder.keep(Set(owned.map(\.entryKey))) }
        let deferred = try await self.postpone(builder.distinctPostponements())
        builder.lifecycle += deferred
        try await DeadLetterQueue(dispatcher: self.dispatcher).setAside(builder.dead)
        try await self.handover.scheduleAndAcknowledge(
            owned, waiting: builder.waiting,
            reporting: Self.withoutStaleTokens(builder.lifecycle, effects) + self.dispatcher.events(of: effects.ended))
    }

    /// Postpones notifications.
    ///
    /// - Returns: an event for each that another provider has not postponed yet.
    private func postpone(_ postponements: [Postponement]) async throws -> [LifecycleEvent] {
        guard !postponements.isEmpty else { return [] }
        let now = self.dispatcher.now()
        let recorded = try await self.dispatcher.retrying("look up postponements") {
            try await self.dispatcher.database.followUps.recorded(
                postponements.map { ($0.item, $0.due) }, now: now)
        }
        try await self.dispatcher.postpone(postponements, recorded: recorded)
        let new = postponements.filter { $0.kind == .release && !recorded.contains($0.notification.id) }
        return new.map { one in
            LifecycleEvent(.deferred, one.notification.label, at: now, channel: .push, reason: one.reason)
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
}
