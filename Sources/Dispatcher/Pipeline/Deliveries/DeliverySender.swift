// Carillon · DeliverySender.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import CoreMetrics
import Decision
import JSON
import Model
import Postgres
import Providers
import Queues
import Stores
import Streams

/// Sends a provider's deliveries: looks up what to send, asks the gate, calls the provider.
struct DeliverySender: Sendable {
    /// What was looked up this long before its turn came is looked up again.
    private static let freshness: Duration = .seconds(1)
    /// So long what never left our own queue waits for another place in it.
    private static let queuePause: Duration = .seconds(1)

    let dispatcher: Dispatcher
    let provider: Provider
    let health: ProviderHealth
    let pauses: AccountPauses
    let turns: RatedTurns
    let metrics: PipelineMetrics.Deliveries

    /// A batch that was looked up, without what is settled already.
    struct Prepared: Sendable {
        fileprivate let batch: LaneBatch
        fileprivate let items: [Item]
    }

    fileprivate struct Item: Sendable {
        let entry: StreamEntry
        let work: DeliveryWork
        let facts: DeliveryStore.Facts?
        let lookedUpAt: ContinuousClock.Instant
    }

    /// Claims a batch and looks it up, and hands what is not to be sent to `settle`.
    func prepare(
        _ batch: LaneBatch,
        settle: @Sendable (DeliveryOutcome) async -> Void
    ) async throws -> Prepared {
        Prepared(batch: batch, items: try await self.items(batch, areRepeats: false, settle: settle))
    }

    /// Sends a batch, each delivery in a task of its own, and hands every outcome to `settle`.
    ///
    /// Returns when all are started; `permits` bounds how many are under way.
    func send(
        _ prepared: Prepared,
        permits: LanePermits,
        group: inout DiscardingTaskGroup,
        settle: @escaping @Sendable (DeliveryOutcome) async -> Void
    ) async {
        let batch = prepared.batch
        for item in prepared.items {
            await permits.acquire(batch.lane)
            group.addTask {
                defer { permits.release(batch.lane) }
                if let outcome = await self.send(item, batch) { await settle(outcome) }
            }
        }
    }

    /// Sends one entry alone.
    func sendAlone(_ batch: LaneBatch, settle: @escaping @Sendable (DeliveryOutcome) async -> Void) async throws {
        for item in try await self.items(batch, areRepeats: true, settle: settle) {
            if let outcome = await self.send(item, batch) { await settle(outcome) }
        }
    }

    private func items(
        _ batch: LaneBatch,
        areRepeats: Bool,
        settle: @Sendable (DeliveryOutcome) async -> Void
    ) async throws -> [Item] {
        var works: [(StreamEntry, DeliveryWork)] = []
        for entry in batch.entries {
            do throws(DeliveryWork.Fault) {
                guard let text = entry[DeliveryWork.field] else { throw .malformed }
                let work = try DeliveryWork(text)
                works.append((entry, areRepeats ? work.asRepeat : work))
            } catch .newerFormat {
                continue
            } catch {
                await settle(self.outcome(entry, batch, nil, .malformed))
            }
        }
        // What nobody can be called for needs no looking up, unless it is to be found out whose it is.
        let apps = self.dispatcher.channels.apps(of: self.provider)
        if apps.count == 1, let app = apps.first,
            case .outOfUse(let until) = self.health.standing(of: apps, now: self.dispatcher.now())
        {
            let held = DeliveryOutcome.Result.heldBack(until: until, reason: "out_of_use", app: app)
            for (entry, work) in works {
                let item = Item(entry: entry, work: work, facts: nil, lookedUpAt: .now)
                await settle(self.outcome(entry, batch, item, held))
            }
            return []
        }
        works = try await self.claimed(works, batch, settle: settle)
        let keys = works.map { ($0.1.user, $0.1.notification, $0.1.device, $0.1.isRepeat) }
        let now = ContinuousClock.now
        let facts = try await self.dispatcher.untilDone("look up deliveries") {
            try await self.dispatcher.deliveries.facts(keys, categories: self.dispatcher.catalog.categories)
        }
        return zip(works, facts).map { Item(entry: $0.0, work: $0.1, facts: $1, lookedUpAt: now) }
    }

    /// Those that no other entry is being sent for, here or by another dispatcher.
    ///
    /// Asked before the attempts are looked up: a claim is given back when what it was for is on their record.
    private func claimed(
        _ works: [(StreamEntry, DeliveryWork)],
        _ batch: LaneBatch,
        settle: @Sendable (DeliveryOutcome) async -> Void
    ) async throws -> [(StreamEntry, DeliveryWork)] {
        let claims = SendClaims(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        let isTaken = try await self.dispatcher.untilDone("claim sends") {
            try await claims.take(
                works.map { (work: $0.1, entry: $0.0.id) }, provider: self.provider, lane: batch.lane)
        }
        for ((entry, work), isTaken) in zip(works, isTaken) where !isTaken {
            let twin = Item(entry: entry, work: work, facts: nil, lookedUpAt: .now)
            await settle(self.outcome(entry, batch, twin, .refused(.underWay)))
        }
        return zip(works, isTaken).compactMap { $1 ? $0 : nil }
    }

    /// The facts as the gate must see them: what waited for its turn while the provider was slow is looked up anew.
    ///
    /// - Returns: nil if the notification or the device is gone.
    /// - Throws: `CancellationError`.
    private func freshFacts(_ item: Item) async throws -> DeliveryStore.Facts? {
        guard item.facts != nil, ContinuousClock.now - item.lookedUpAt > Self.freshness else { return item.facts }
        let key = (item.work.user, item.work.notification, item.work.device, item.work.isRepeat)
        let found = try await self.dispatcher.untilDone("look up a delivery") {
            try await self.dispatcher.deliveries.facts([key], categories: self.dispatcher.catalog.categories)
        }
        return found.first ?? nil
    }

    private func outcome(
        _ entry: StreamEntry,
        _ batch: LaneBatch,
        _ item: Item?,
        _ result: DeliveryOutcome.Result,
        app: String? = nil,
        sentAt: Timestamp? = nil,
        duration: Duration = .zero
    ) -> DeliveryOutcome {
        DeliveryOutcome(
            entry: entry,
            group: batch.group,
            lane: batch.lane,
            work: item?.work,
            facts: item?.facts,
            app: app,
            sentAt: sentAt ?? self.dispatcher.now(),
            result: result,
            duration: duration
        )
    }

    /// Nil if this process may no longer act: somebody else takes the entry over.
    private func send(_ item: Item, _ batch: LaneBatch) async -> DeliveryOutcome? {
        guard await self.mayAct(on: item.entry, batch.group) else { return self.giveUp(item, batch) }
        let found: DeliveryStore.Facts?
        do {
            found = try await self.freshFacts(item)
        } catch {
            // The process ends: the entry stays pending, and somebody else takes it over.
            return self.giveUp(item, batch)
        }
        guard let facts = found else { return self.outcome(item.entry, batch, item, .gone) }
        let now = self.dispatcher.now()
        if let refusal = self.gate(facts, item.work, now: now) {
            return self.outcome(item.entry, batch, item, refusal)
        }
        guard let way = self.dispatcher.channels.way(to: facts.device) else {
            return self.outcome(item.entry, batch, item, .noProvider)
        }
        let service = way.channel.service(of: facts.device)
        if let held = await self.hold(way, service, now: now) { return self.outcome(item.entry, batch, item, held) }
        let start = ContinuousClock.now
        let reply = await DeliverySpan.send(
            self.message(facts, item.work, batch.lane, by: way.channel, now: now), to: facts.device, by: way.channel,
            attempt: item.work.attempt)
        let duration = ContinuousClock.now - start
        let end = self.dispatcher.now()
        self.health.note(reply, app: way.channel.app, service: service, since: now, now: end)
        if case .answered(.slowDown(_, let after)) = reply.result {
            await self.slowDown(way.channel.account, service, until: end + after, now: end)
        }
        let result = DeliveryOutcome.Result(reply, app: way.channel.app, again: end + Self.queuePause)
        if result.isCall { self.metrics.duration.recordNanoseconds(duration.inMicroseconds * 1_000) }
        return self.outcome(
            item.entry, batch, item, result, app: way.channel.app, sentAt: now, duration: duration)
    }

    /// Why a call is not made now; nil if it is, and is under way then.
    private func hold(_ way: ChannelDirectory.Way, _ service: String?, now: Timestamp) async -> DeliveryOutcome.Result?
    {
        let app = way.channel.app
        let isShared = self.dispatcher.channels.isShared(self.provider)
        if case .no(let until) = self.health.admit(app, service: service, isShared: isShared, now: now) {
            return .heldBack(until: until, reason: "out_of_use", app: app)
        }
        guard let rate = self.dispatcher.channels.messagesPerSecond(of: way),
            let until = await self.turns.take(app, account: way.channel.account, perSecond: rate)
        else { return nil }
        self.health.withdraw(app, service: service)
        return .heldBack(until: until, reason: "rate", app: app)
    }

    /// Lets all that counts against an account's quota wait, here and, unless they know, in other dispatchers.
    private func slowDown(_ account: String, _ service: String?, until: Timestamp, now: Timestamp) async {
        guard let pause = self.pauses.note(account, service: service, until: until, now: now) else { return }
        let shared = SendingPauses(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        do {
            _ = try await shared.exchange([pause], of: [], now: now)
        } catch {
            self.pauses.takeBack([pause])
            PipelineMetrics.unsharedPauses.increment()
        }
    }

    private func message(
        _ facts: DeliveryStore.Facts,
        _ work: DeliveryWork,
        _ lane: Lane,
        by channel: any ProviderChannel,
        now: Timestamp
    ) -> PushMessage {
        let type = self.dispatcher.catalog[facts.notification.type]
        var message = PushMessage(
            notification: facts.notification,
            unread: Int64(facts.unread),
            code: type?.code,
            now: now
        )
        message.lane = lane
        message.isRefusable = type?.isRequired != true
        message.buttonCategory = self.dispatcher.catalog.buttonCategory(of: facts.notification)
        if work.isRetraction { message.purpose = .retract }
        // What was read has no number of its own any more.
        let own = work.isRetraction ? nil : facts.notification.extras.badge
        message.badge = own
        // The board is asked only for a count that goes out; if there is a newer one, that is on its way already.
        let hasCount = type?.hasBadge != false && (!work.isRetraction || channel.retractionsHaveBadge)
        let isNewest = hasCount && self.dispatcher.badges.isNewest(facts.inboxVersion, for: facts.device.id)
        if isNewest, own == nil {
            message.badge = Int64(facts.unread)
            message.badgeVersion = facts.inboxVersion
        }
        return message
    }

    /// Leaves an entry to whoever takes it over.
    private func giveUp(_ item: Item, _ batch: LaneBatch) -> DeliveryOutcome? {
        self.dispatcher.inHand.release([item.entry.id], of: batch.group.stream)
        return nil
    }

    /// Whether the entry is this process's.
    ///
    /// One whose lease had lapsed waits until it is held again, and then looks.
    private func mayAct(on entry: StreamEntry, _ group: ConsumerGroup) async -> Bool {
        if self.dispatcher.leaseClock.isHeld { return true }
        while !Task.isCancelled {
            if self.dispatcher.leaseClock.isHeld, let isOwned = try? await group.owns(entry.id) { return isOwned }
            // The lease is renewed every few seconds; until then there is nothing to ask.
            try? await Task.sleep(for: .milliseconds(500))
        }
        return false
    }

    /// Asks once more, now that the call would be made; nil lets it pass.
    private func gate(
        _ facts: DeliveryStore.Facts,
        _ work: DeliveryWork,
        now: Timestamp
    ) -> DeliveryOutcome.Result? {
        let notification = facts.notification
        let type = self.dispatcher.catalog[notification.type]
        var gateFacts = GateFacts(
            status: facts.isCancelled ? .cancelled : notification.status,
            isRead: notification.readAt != nil,
            isDeleted: notification.deletedAt != nil,
            isReplaced: facts.isReplaced,
            expiresAt: notification.expiresAt,
            isDeviceActive: facts.device.isActive && !facts.device.isSilenced
                && ExactText(facts.device.user) == ExactText(notification.user),
            isOptedOut: facts.wishes.settings.isOptedOut || !self.isWanted(facts.wishes.preference, type),
            isRequired: type?.isRequired ?? false,
            wasAccepted: facts.wasAccepted
        )
        if self.provider == .email {
            // Nothing rings, so that quiet hours do not matter.
            gateFacts.purpose = .email
        } else {
            gateFacts.purpose = work.isRetraction ? .retraction : work.callsForAttention ? .attention : .reach
            gateFacts.releaseAt = self.dispatcher.releaseMoment(of: notification, wishes: facts.wishes, now: now)
        }
        guard let refusal = Decision.gate(gateFacts, now: now) else { return nil }
        if refusal == .quietHours, let moment = gateFacts.releaseAt { return .putOff(until: moment) }
        return .refused(refusal)
    }

    /// Whether the user has not switched the channel off since; mail is what one asks for.
    private func isWanted(_ preference: TypePreference, _ type: NotificationType?) -> Bool {
        guard self.provider == .email else { return preference.push != false }
        return preference.email ?? type?.isEmailOnByDefault ?? true
    }
}

extension DeliveryOutcome.Result {
    /// - Parameter moment: when what never left our own queue is to be looked at again.
    init(_ reply: ProviderReply, app: String, again moment: Timestamp) {
        switch reply.result {
        // Renewed by now; a second refusal is a fault of the configuration.
        case .answered(.staleCredential(let reason)): self = .answered(.configuration(reason: reason))
        case .answered(let answer): self = .answered(answer)
        case .unanswered(let reason, let mayHaveBeenSent):
            self = .unanswered(reason: reason, mayHaveBeenSent: mayHaveBeenSent)
        case .noCredential(let reason): self = .noCredential(reason: reason)
        case .unsendable(let reason): self = .unsendable(reason: reason)
        case .noTurn: self = .heldBack(until: moment, reason: "no_turn", app: app)
        }
    }
}
