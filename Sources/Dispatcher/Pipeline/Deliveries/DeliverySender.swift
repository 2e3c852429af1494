// Carillon · DeliverySender.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import Providers
import Storage

/// Sends a provider's deliveries: looks up their facts, asks the gate, calls the provider.
///
/// A class, so that the task of each delivery holds one reference to it.
final class DeliverySender: Sendable {
    /// Facts that are older than this when the call is due are looked up again.
    private static let freshness: Duration = .seconds(1)
    /// How long a delivery waits after it got no turn in our own queue.
    private static let queuePause: Duration = .seconds(1)

    let dispatcher: Dispatcher
    let provider: Provider
    let health: ProviderHealth
    let pauses: AccountPauses
    let rateLimiter: AccountRateLimiter
    let metrics: PipelineMetrics.Deliveries
    /// Lets one log line about entries of a newer format through.
    private let firstNewerEntry = FirstTime()

    /// - Parameter calls: the most calls to the provider in flight.
    init(dispatcher: Dispatcher, provider: Provider, calls: Int) {
        self.dispatcher = dispatcher
        self.provider = provider
        self.health = ProviderHealth(provider, calls: calls, logger: dispatcher.logger)
        self.pauses = AccountPauses(provider, health: self.health, channels: dispatcher.channels)
        self.rateLimiter = AccountRateLimiter(
            provider, buckets: dispatcher.live.buckets, instant: dispatcher.clock.instant)
        self.metrics = PipelineMetrics.Deliveries(provider)
    }

    /// A claimed batch with its facts.
    struct Prepared: Sendable {
        /// The deliveries to send.
        fileprivate let items: [Item]
        /// The outcomes of the others.
        let ended: [DeliveryOutcome]
    }

    fileprivate struct Item: Sendable {
        let entry: StreamEntry
        let group: ConsumerGroup
        let lane: Lane
        var work: DeliveryWork
        var facts: DeliveryStore.Facts?
        var lookedUpAt = ContinuousClock.now
        /// The lease term in which the entry belongs to this process.
        var term: LeaseClock.Term

        init(_ entry: StreamEntry, _ work: DeliveryWork, in batch: LaneBatch) {
            self.entry = entry
            self.group = batch.group
            self.lane = batch.lane
            self.work = work
            self.term = batch.term
        }
    }

    /// A call to admit; once the breaker admits it, it must be recorded or withdrawn.
    private struct Call {
        let entry: ChannelDirectory.Entry
        let scope: BreakerScope
        let lane: Lane
        let admittedAt: Timestamp
    }

    /// Claims the deliveries of a batch that belong to this process, and looks up their facts.
    func prepare(_ batch: LaneBatch) async throws -> Prepared {
        try await self.prepareOwned(try await self.dispatcher.owned(batch))
    }

    /// Starts a task per delivery and passes every outcome to `settle`.
    ///
    /// Returns once all are started; `permits` limits how many are in flight.
    func send(
        _ prepared: Prepared,
        permits: LanePermits,
        group: inout DiscardingTaskGroup,
        settle: @escaping @Sendable (DeliveryOutcome) async -> Void
    ) async {
        for item in prepared.items {
            await permits.acquire(item.lane)
            group.addTask {
                defer { permits.release(item.lane) }
                if let outcome = await self.send(item) { await settle(outcome) }
            }
        }
    }

    /// Sends the entries of a batch one after the other, and returns the outcomes.
    func sendAlone(_ batch: LaneBatch) async throws -> [DeliveryOutcome] {
        var batch = batch
        batch.areRepeats = true
        let prepared = try await self.prepareOwned(batch)
        var outcomes = prepared.ended
        for item in prepared.items {
            if let outcome = await self.send(item) { outcomes.append(outcome) }
        }
        return outcomes
    }

    /// Returns the outcomes of entries that killed their dispatchers; no provider is called.
    ///
    /// A delivery that is no longer needed ends as it would otherwise.
    func poisonOutcomes(_ batch: LaneBatch, looksUp: Bool) async throws -> [DeliveryOutcome] {
        var outcomes: [DeliveryOutcome] = []
        for entry in batch.entries {
            let work: DeliveryWork
            do throws(DeliveryWork.Fault) {
                work = try Self.work(of: entry).asRepeat
            } catch .newerFormat {
                self.leave(entry, batch)
                continue
            } catch {
                outcomes.append(self.outcome(entry, batch, .poison))
                continue
            }
            var item = Item(entry, work, in: batch)
            var result = DeliveryOutcome.Result.poison
            if looksUp {
                item.facts = try await self.lookUp([work]).first ?? nil
                if let facts = item.facts {
                    if case .refused(let refusal) = self.refusal(facts, work, now: self.dispatcher.now()) {
                        result = .refused(refusal)
                    }
                } else {
                    result = .gone
                }
            }
            outcomes.append(self.outcome(item, result))
        }
        return outcomes
    }

    /// Claims the deliveries of a batch, and looks up their facts.
    private func prepareOwned(_ batch: LaneBatch) async throws -> Prepared {
        var items: [Item] = []
        var ended: [DeliveryOutcome] = []
        for entry in batch.entries {
            do throws(DeliveryWork.Fault) {
                let work = try Self.work(of: entry)
                let isRepeat = batch.areRepeats || batch.mayBeRepeat(entry)
                items.append(Item(entry, isRepeat ? work.asRepeat : work, in: batch))
            } catch .newerFormat {
                self.leave(entry, batch)
            } catch {
                ended.append(self.outcome(entry, batch, .malformed))
            }
        }
        // If the only app's breaker is open, holds deliveries back without a lookup. One that has
        // waited before is looked up, because it may have expired.
        let apps = self.dispatcher.channels.apps(of: self.provider)
        if apps.count == 1, let app = apps.first,
            case .open(let until) = self.health.state(of: apps, now: self.dispatcher.now())
        {
            let reason = RecordedReason.outOfUse.rawValue
            let held = DeliveryOutcome.Result.heldBack(until: until, reason: reason, scope: BreakerScope(app))
            for item in items where !item.work.hasWaited { ended.append(self.outcome(item, held)) }
            items.removeAll { !$0.work.hasWaited }
            guard !items.isEmpty else { return Prepared(items: [], ended: ended) }
        }
        let areClaimed = try await self.claim(items, batch)
        for (item, isClaimed) in zip(items, areClaimed) where !isClaimed {
            ended.append(self.outcome(item, .refused(.underWay)))
        }
        items = zip(items, areClaimed).compactMap { $1 ? $0 : nil }
        let now = self.dispatcher.clock.instant()
        for (index, facts) in try await self.lookUp(items.map(\.work)).enumerated() {
            items[index].facts = facts
            items[index].lookedUpAt = now
        }
        return Prepared(items: items, ended: ended)
    }

    private static func work(of entry: StreamEntry) throws(DeliveryWork.Fault) -> DeliveryWork {
        guard let text = entry[DeliveryWork.field] else { throw .malformed }
        return try DeliveryWork(text)
    }

    /// Leaves an entry of a newer format pending.
    ///
    /// A dispatcher of a newer release takes it over once this one stops.
    private func leave(_ entry: StreamEntry, _ batch: LaneBatch) {
        guard self.firstNewerEntry.take() else { return }
        self.dispatcher.logger.warning(
            "deliveries of a newer release wait until this dispatcher stops; finish the upgrade",
            metadata: ["redis.stream": "\(batch.group.stream)", "redis.entry": "\(entry.id)"])
    }

    /// Looks up deliveries, and reads the catalog's files if it lacks one of their types.
    ///
    /// In that case a second lookup gets the preferences for the type's category.
    private func lookUp(_ works: [DeliveryWork]) async throws -> [DeliveryStore.Facts?] {
        let catalog = self.dispatcher.catalog
        let facts = try await self.facts(works)
        let newer = await self.dispatcher.catalog(forTypes: facts.lazy.compactMap { $0?.notification.type })
        guard newer.digest != catalog.digest else { return facts }
        return try await self.facts(works)
    }

    private func facts(_ works: [DeliveryWork]) async throws -> [DeliveryStore.Facts?] {
        let deliveries = works.map { ($0.key, $0.device, $0.isRepeat) }
        return try await self.dispatcher.retrying("look up deliveries") {
            try await self.dispatcher.database.deliveries.facts(
                deliveries, categories: self.dispatcher.catalog.categories)
        }
    }

    /// Claims deliveries for their entries.
    ///
    /// Claims come before the lookup of attempts, because a claim is released once its attempt is
    /// on record.
    ///
    /// - Returns: whether each was claimed. For the others, this or another dispatcher is sending
    ///   another entry of the same delivery.
    private func claim(_ items: [Item], _ batch: LaneBatch) async throws -> [Bool] {
        let claims = self.dispatcher.live.with(batch.group.keys).sendClaims
        return try await self.dispatcher.retrying("claim sends") {
            try await claims.claim(
                items.map { (work: $0.work, entry: $0.entry.id) }, provider: self.provider, lane: batch.lane)
        }
    }

    /// Returns a delivery with facts that are fresh enough for the gate.
    ///
    /// After the lease expired, asks the stream who owns the entry, and reads the attempts that
    /// others recorded.
    ///
    /// - Returns: nil if the entry belongs to another dispatcher.
    /// - Throws: `CancellationError`.
    private func current(_ item: Item) async throws -> Item? {
        var item = item
        var isOld = item.facts != nil && self.dispatcher.clock.instant() - item.lookedUpAt > Self.freshness
        while true {
            if !self.dispatcher.leaseClock.holds(item.term) {
                let kept = try await self.dispatcher.keep([item.entry.id], of: item.group)
                guard kept.ids.contains(item.entry.id) else { return nil }
                item.term = kept.term
                item.work = item.work.asRepeat
                isOld = true
            }
            guard isOld else { return item }
            item.lookedUpAt = self.dispatcher.clock.instant()
            item.facts = try await self.lookUp([item.work]).first ?? nil
            isOld = false
        }
    }

    private func outcome(
        _ item: Item,
        _ result: DeliveryOutcome.Result,
        app: String? = nil,
        sentAt: Timestamp? = nil,
        duration: Duration = .zero
    ) -> DeliveryOutcome {
        DeliveryOutcome(
            entry: item.entry,
            group: item.group,
            lane: item.lane,
            term: item.term,
            work: item.work,
            facts: item.facts,
            app: app,
            sentAt: sentAt ?? self.dispatcher.now(),
            result: result,
            duration: duration
        )
    }

    /// Returns the outcome of an entry that is not a delivery.
    private func outcome(
        _ entry: StreamEntry,
        _ batch: LaneBatch,
        _ result: DeliveryOutcome.Result
    ) -> DeliveryOutcome {
        DeliveryOutcome(
            entry: entry,
            group: batch.group,
            lane: batch.lane,
            term: batch.term,
            work: nil,
            facts: nil,
            app: nil,
            sentAt: self.dispatcher.now(),
            result: result,
            duration: .zero
        )
    }

    /// Returns nil if another dispatcher takes the entry over.
    private func send(_ item: Item) async -> DeliveryOutcome? {
        var item = item
        while true {
            do {
                guard let current = try await self.current(item) else { return self.leaveToOwner(item) }
                item = current
            } catch {
                // The process ends: the entry stays pending and is taken over.
                return self.leaveToOwner(item)
            }
            guard let facts = item.facts else { return self.outcome(item, .gone) }
            let now = self.dispatcher.now()
            if let refusal = self.refusal(facts, item.work, now: now) {
                return self.outcome(item, refusal)
            }
            guard let entry = self.dispatcher.channels.entry(for: facts.device) else {
                return self.outcome(item, .noProvider)
            }
            let scope = BreakerScope(entry.channel.app, service: entry.channel.service(of: facts.device))
            let call = Call(entry: entry, scope: scope, lane: item.lane, admittedAt: now)
            if let held = await self.hold(call) { return self.outcome(item, held) }
            // Waiting for the rate limit may have outlasted the lease.
            guard self.dispatcher.leaseClock.holds(item.term) else {
                self.health.withdraw(scope, since: call.admittedAt)
                continue
            }
            if let outcome = await self.make(call, item, facts) { return outcome }
            guard self.dispatcher.leaseClock.holds(item.term) else { continue }
            // If the breaker is open, hold the delivery back without another lookup of its facts.
            if let held = self.admit(call, now: self.dispatcher.now()) { return self.outcome(item, held) }
            self.health.withdraw(scope)
        }
    }

    /// Makes an admitted call.
    ///
    /// - Returns: nil if the lease expired or the breaker opened while the call waited for its turn
    ///   in our own queue; it was not made.
    private func make(_ call: Call, _ item: Item, _ facts: DeliveryStore.Facts) async -> DeliveryOutcome? {
        let channel = call.entry.channel
        let (scope, admittedAt) = (call.scope, call.admittedAt)
        let (leaseClock, health, term) = (self.dispatcher.leaseClock, self.health, item.term)
        var message = PushMessage(
            facts, item.work, item.lane, by: channel, self.dispatcher.catalog, self.dispatcher.badges, now: admittedAt)
        message.mayStart = { leaseClock.holds(term) && !health.isPaused(scope, since: admittedAt) }
        let start = ContinuousClock.now
        let reply = call.entry.judged(
            await DeliverySpan.send(message, to: facts.device, by: channel, attempt: item.work.attempt),
            of: facts.device)
        let duration = ContinuousClock.now - start
        let end = self.dispatcher.now()
        self.health.record(reply, scope, since: admittedAt, now: end)
        if case .answered(.slowDown(_, let after)) = reply.result {
            await self.slowDown(channel.account, scope.service, until: end + after, now: end)
        }
        // If held back here, it would compete with the dispatcher that took the entry over.
        if case .noTurn = reply.result, !leaseClock.holds(term) { return nil }
        guard let result = DeliveryOutcome.Result(reply, app: channel.app, again: end + Self.queuePause) else {
            return nil
        }
        if result.isCall { self.metrics.duration.recordNanoseconds(duration.inMicroseconds * 1_000) }
        return self.outcome(item, result, app: channel.app, sentAt: admittedAt, duration: duration)
    }

    /// Returns why a call must wait; nil if it was admitted and is in flight.
    private func hold(_ call: Call) async -> DeliveryOutcome.Result? {
        if let held = self.admit(call, now: call.admittedAt) { return held }
        guard let rate = self.dispatcher.channels.messagesPerSecond(of: call.entry),
            let wait = await self.rateLimiter.take(call.entry.channel.account, perSecond: rate, lane: call.lane)
        else { return nil }
        self.health.withdraw(call.scope, since: call.admittedAt)
        return .heldBack(
            until: self.dispatcher.now() + wait, reason: RecordedReason.rate.rawValue,
            scope: BreakerScope(call.scope.app))
    }

    /// Returns why a breaker holds a call back; nil if it admitted the call, which is in flight.
    private func admit(_ call: Call, now: Timestamp) -> DeliveryOutcome.Result? {
        let isShared = self.dispatcher.channels.isShared(self.provider)
        let admission = self.health.admit(call.scope, lane: call.lane, isShared: isShared, now: now)
        guard case .no(let until) = admission else { return nil }
        let scope = self.health.heldScope(call.scope, now: now)
        return .heldBack(until: until, reason: RecordedReason.outOfUse.rawValue, scope: scope)
    }

    /// Pauses an account here and, unless they know already, in the other dispatchers.
    private func slowDown(_ account: String, _ service: String?, until: Timestamp, now: Timestamp) async {
        guard let pause = self.pauses.record(account, service: service, until: until, now: now) else { return }
        let shared = self.dispatcher.live.sendingPauses
        do {
            _ = try await shared.exchange([pause], of: [], now: now)
        } catch {
            self.pauses.unshare([pause])
            PipelineMetrics.unsharedPauses.increment()
        }
    }

    /// Leaves an entry to the dispatcher that takes it over.
    private func leaveToOwner(_ item: Item) -> DeliveryOutcome? {
        self.dispatcher.inFlight.release([item.entry.id], of: item.group.stream)
        return nil
    }

    /// Returns why a delivery may not go out right before its call; nil if it may.
    private func refusal(
        _ facts: DeliveryStore.Facts,
        _ work: DeliveryWork,
        now: Timestamp
    ) -> DeliveryOutcome.Result? {
        let notification = facts.notification
        let isMail = self.provider == .email
        var gateFacts = GateFacts(
            isMail ? .email : work.isRetraction ? .retraction : work.callsForAttention ? .attention : .reach,
            of: notification,
            type: self.dispatcher.catalog[notification.type],
            preference: facts.preferences.preference,
            settings: facts.preferences.settings,
            isReplaced: facts.isReplaced
        )
        if facts.isCancelled { gateFacts.status = .cancelled }
        // The notifications that a summary stands for are in the inbox, so they have been seen too.
        if facts.unseen == 0, ReleaseSummary.isSummary(notification) { gateFacts.isRead = true }
        gateFacts.isDeviceActive =
            facts.device.getsPushes && ExactText(facts.device.user) == ExactText(notification.user)
        gateFacts.wasAccepted = facts.wasAccepted
        // Mail does not ring, so quiet hours do not matter.
        if !isMail {
            gateFacts.releaseAt = self.dispatcher.releaseMoment(
                of: notification, preferences: facts.preferences, now: now)
        }
        guard let refusal = gate(gateFacts, now: now) else { return nil }
        if refusal == .quietHours, let moment = gateFacts.releaseAt { return .postponed(until: moment) }
        return .refused(refusal)
    }
}

extension DeliveryOutcome.Result {
    /// Nil if the call was not made because the lease had expired or the breaker was open.
    ///
    /// - Parameter moment: when a delivery without a turn in our own queue is tried again.
    init?(_ reply: ProviderReply, app: String, again moment: Timestamp) {
        switch reply.result {
        case .answered(let answer): self = .answered(answer)
        case .unanswered(let reason, let mayHaveBeenSent):
            self = .unanswered(reason: reason, mayHaveBeenSent: mayHaveBeenSent)
        case .noCredential(let reason): self = .noCredential(reason: reason)
        case .unsendable(let reason): self = .unsendable(reason: reason)
        case .noTurn:
            self = .heldBack(until: moment, reason: RecordedReason.noTurn.rawValue, scope: BreakerScope(app))
        case .fenced: return nil
        }
    }
}
