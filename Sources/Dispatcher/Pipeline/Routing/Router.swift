// Carillon · Router.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import Providers
import Storage

/// Sends stored notifications to sockets and to the deliveries streams, or leaves them in the
/// inbox.
struct Router: Sendable {
    /// The most waiting deliveries that a repeated job is compared with.
    private static let mostWaiting = 10_000

    /// Mail is due again after this long unless it is in its stream by then.
    private static let mailPatience: Duration = .seconds(120)

    /// Frames that take longer to go out have waited for Redis.
    private static let promptness: Duration = .seconds(1)

    let dispatcher: Dispatcher
    /// The deliveries that wait for a retry or are held back; nil to look them up for each call.
    var waiting: WaitingRetries?

    /// Routes a batch, and acknowledges it once the next stage has all of it.
    func routeAndAcknowledge(_ batch: StoredBatch) async throws {
        try await self.acknowledge(try await self.route(batch))
    }

    /// Acknowledges a routed batch, and reports its events.
    func acknowledge(_ batch: StoredBatch) async throws {
        try await self.dispatcher.acknowledge(batch.toAcknowledge, batch.group, reporting: batch.lifecycle)
        PipelineMetrics.jobs.increment(by: batch.toAcknowledge.count)
    }

    /// Routes a batch, and returns it with its events, ready to be acknowledged.
    func route(_ batch: StoredBatch) async throws -> StoredBatch {
        var batch = try await self.owned(batch)
        let unowned = try await self.unowned(among: batch.unowned)
        // These come first, because they were stored before the others.
        if !unowned.isEmpty { batch.toRoute = unowned + batch.toRoute }
        batch.lifecycle += try await self.advance(batch.toRoute, batch.catalog, within: batch.fence)
        try await self.redo(batch.toRedo)
        try await self.publish(batch.replaced)
        try await self.publish(batch.events.flatMap(\.frames))
        try await DeadLetterQueue(dispatcher: self.dispatcher).setAside(batch.dead)
        return batch
    }

    /// Drops the entries that other dispatchers have taken over.
    private func owned(_ batch: StoredBatch) async throws -> StoredBatch {
        // Schedules fire without a stream entry.
        guard !batch.toAcknowledge.isEmpty, !self.dispatcher.leaseClock.holds(batch.fence.term) else { return batch }
        return batch.keeping(try await self.dispatcher.keep(batch.toAcknowledge, of: batch.group).ids)
    }

    /// Returns the notifications among these that have no owner, as they are stored, in the order
    /// of versions.
    ///
    /// A dispatcher stored them and died. The stored row counts, although a new decision might
    /// differ, for example after an opt-out. The gate checks for opt-outs before each push.
    func unowned(among notifications: [Notification]) async throws -> [RoutedNotification] {
        guard !notifications.isEmpty else { return [] }
        let stored = try await self.dispatcher.retrying("look up notifications without an owner") {
            try await self.dispatcher.database.sweep.unowned(among: notifications)
        }
        return stored.sorted { $0.notification.version < $1.notification.version }
            .map { RoutedNotification($0.notification, .stored, unread: $0.unread, isRepeat: true) }
    }

    /// Routes notifications that were just stored, or found without an owner.
    ///
    /// - Parameters:
    ///   - catalog: the catalog that they were stored with; nil for the current catalog, or a newer
    ///     one if the current one lacks a type.
    ///   - fence: around the rows; nil if each may have been sent before.
    func route(_ open: [RoutedNotification], catalog: Catalog? = nil, within fence: Fence? = nil) async throws {
        let lifecycle = try await self.advance(open, catalog, within: fence)
        await self.dispatcher.report(lifecycle)
    }

    /// Falls back to push for notifications without proof of receipt.
    func fallBack(_ unproven: [Notification]) async throws {
        let lifecycle = try await self.advance(
            unproven.map { RoutedNotification($0, .unproven, isRepeat: true) }, nil)
        await self.dispatcher.report(lifecycle)
    }

    /// Decides about each notification and carries out the decisions.
    ///
    /// - Returns: the events for upstream apps.
    private func advance(
        _ items: [RoutedNotification],
        _ catalog: Catalog?,
        within fence: Fence? = nil
    ) async throws -> [LifecycleEvent] {
        guard !items.isEmpty else { return [] }
        let types = items.lazy.map(\.notification.type)
        let catalog = if let catalog { catalog } else { await self.dispatcher.catalog(forTypes: types) }
        let facts = try await RouteFacts(items, catalog: catalog, dispatcher: self.dispatcher)
        let open = try await self.stillOpen(items, within: fence)
        var plan = RoutePlan(for: self.dispatcher)
        let now = self.dispatcher.now()
        for (index, item) in items.enumerated() where open?.contains(item.notification.id) ?? true {
            let known = facts.facts(at: index, now: now)
            plan.add(decide(known), item, known, facts.devices(at: index))
        }
        try await self.carryOut(plan, within: fence)
        return plan.lifecycle
    }

    /// Returns the notifications that are still stored without an owner; nil, for all, while the
    /// fence holds.
    ///
    /// After the fence has ended, other dispatchers may have routed some, or users may have been
    /// erased. A late decision could contradict what was sent and reported.
    private func stillOpen(
        _ items: [RoutedNotification],
        within fence: Fence?
    ) async throws -> Set<NotificationID>? {
        guard let fence, !self.dispatcher.holds(fence) else { return nil }
        let open = try await self.dispatcher.retrying("look up notifications after a stall") {
            try await self.dispatcher.database.sweep.unowned(among: items.map(\.notification))
        }
        return Set(open.map(\.notification.id))
    }

    // MARK: Doing

    /// Carries out a plan.
    ///
    /// Stores mail and postponements first. A crash could lose them later, once something is sent
    /// or the notification is no longer pending.
    ///
    /// - Parameter fence: around the plan's rows; nil if each may have been sent before.
    func carryOut(_ plan: RoutePlan, within fence: Fence? = nil) async throws {
        let remembered = plan.remembered
        let mailDue = self.dispatcher.now() + Self.mailPatience
        if !remembered.isEmpty {
            try await self.dispatcher.retrying("store mail") {
                try await self.dispatcher.database.followUps.expect(remembered, until: mailDue)
            }
        }
        try await self.dispatcher.postpone(plan.postponed, recorded: plan.recorded)
        let releases = plan.releases
        if !releases.isEmpty {
            try await self.dispatcher.retrying("release notifications") {
                try await self.dispatcher.database.notifications.mark(releases, areReleases: true)
            }
        }
        try await self.publish(plan)
        // Before the deliveries: the last delivery to end also ends the notification, but only if
        // every device has an attempt by then.
        let settlement = plan.settlement
        if !settlement.attempts.isEmpty || !settlement.leftToMail.isEmpty {
            let effects = try await self.dispatcher.retrying("record attempts") {
                try await self.dispatcher.database.deliveries.settle(settlement)
            }
            await self.dispatcher.report(self.dispatcher.events(of: effects.ended))
        }
        let session = self.dispatcher.redis.session
        try await self.deliver(plan.deliveries, within: fence)
        let (marks, notes) = (plan.marks, plan.notes)
        if !marks.isEmpty || !notes.isEmpty {
            try await self.dispatcher.retrying("mark notifications") {
                try await self.dispatcher.database.notifications.mark(marks, notes: notes)
            }
        }
        if self.dispatcher.redis.session != session {
            // Redis may have come back without the deliveries. A repair that ran before the marks
            // were stored did not find them.
            try await self.deliver(plan.deliveries.map { $0.again }, within: nil)
        }
        if !remembered.isEmpty {
            try await self.dispatcher.retrying("remember mail") {
                // With a time after the append, so that a repair finds mail that Redis has lost.
                try await self.dispatcher.database.followUps.remember(
                    remembered, claimedUntil: mailDue, now: self.dispatcher.now())
            }
        }
    }

    /// Stores the proof deadlines, then publishes the frames, so a crash in between loses no
    /// fallback.
    ///
    /// Each try counts the deadlines from its own time, because Redis may have been away since the
    /// decision. A deadline that is set stays. A retry publishes only the messages that failed,
    /// because a node sends an event as often as it gets it.
    private func publish(_ plan: RoutePlan) async throws {
        guard !plan.awaited.isEmpty || plan.messages.frameCount > 0 else { return }
        let start = self.dispatcher.now()
        var messages = plan.messages.all
        try await self.dispatcher.retrying("publish frames") {
            var batch = RedisBatch()
            self.dispatcher.live.proofDeadlines.add(plan.deadlines(at: self.dispatcher.now()), in: &batch)
            let firstPublish = batch.count
            for message in messages { plan.messages.publish(message, in: &batch) }
            let replies = try await self.dispatcher.redis.send(batch)
            let receivers = replies.dropFirst(firstPublish)
            for case (let message, .integer(0)) in zip(messages, receivers) {
                self.dispatcher.presence.forgetLease(of: message.node)
            }
            messages.keepFailed(by: receivers)
            for reply in replies { _ = try reply.checked() }
        }
        if let shortest = plan.awaited.lazy.map(\.within).min() {
            let end = self.dispatcher.now()
            let isLate = end - start > Self.promptness
            self.dispatcher.share.visit(plan.awaited.lazy.map(\.0.user))
            self.dispatcher.alarms.proofs.schedule(at: (isLate ? end : start) + shortest)
            if isLate { try await self.extendDeadlines(of: plan, from: end) }
        }
        PipelineMetrics.published.increment(by: plan.messages.frameCount)
    }

    /// Gives sockets the full time for proofs after frames that waited for Redis.
    ///
    /// A try that failed here may still have run in Redis, and its earlier deadlines stay.
    ///
    /// - Parameter end: when the frames were out.
    private func extendDeadlines(of plan: RoutePlan, from end: Timestamp) async throws {
        var batch = RedisBatch()
        self.dispatcher.live.proofDeadlines.extend(plan.deadlines(at: end), in: &batch)
        let request = batch
        try await self.dispatcher.retrying("extend deadlines of proofs") {
            _ = try await self.dispatcher.redis.run(request)
        }
    }

    /// Appends deliveries again that Redis may have lost, for the devices that a provider serves.
    ///
    /// They are repeats, because a provider may have accepted some; the attempts show which.
    func deliverAgain(_ lost: [DeliveryStore.Lost]) async throws {
        let deliveries = lost.filter { self.dispatcher.channels.serves($0.device) }.map { one in
            RoutePlan.Delivery(
                provider: one.device.provider,
                lane: one.lane,
                work: DeliveryWork(
                    notification: one.notification, device: one.device.id, user: one.user, attempt: 0, isRepeat: true),
                mayWait: true
            )
        }
        try await self.deliver(deliveries, within: nil)
    }

    /// Appends pushes again that waited for a provider when Redis lost its last writes.
    ///
    /// Their users get the push even if they are online by now, but not a push that a cap or quiet
    /// hours held back: then only the mail is queued.
    func pushAgain(_ queued: [Notification]) async throws {
        try await self.fallBack(queued.filter { $0.isQueued && $0.decision == nil && $0.channels.contains(.push) })
    }

    /// Publishes the frames of repeated jobs again, and appends their pushes again.
    ///
    /// Redis lost their acknowledgement, so it may have lost the frames and pushes before it as
    /// well.
    private func redo(_ repeated: [RoutedNotification]) async throws {
        guard !repeated.isEmpty else { return }
        let keys = repeated.map { $0.notification.key }
        let stored = try await self.dispatcher.retrying("look up repeated notifications") {
            try await self.dispatcher.database.notifications.load(keys)
        }
        // Sockets already have the notifications that were read or deleted: their rows have the
        // version of that change.
        let unseen = Set(stored.filter { $0.readAt == nil && $0.deletedAt == nil }.map(\.id))
        try await self.publishAgain(repeated.filter { unseen.contains($0.notification.id) })
        try await self.pushAgain(stored)
    }

    /// Drops repeated deliveries that already wait or have failed.
    ///
    /// A delivery that waits for a retry or is held back would come too early. A delivery that has
    /// failed is over, although its notification may still be open for another device.
    private func stillDue(_ deliveries: [RoutePlan.Delivery]) async throws -> [RoutePlan.Delivery] {
        // Most batches have no repeats, so skip the lookups.
        guard deliveries.contains(where: { $0.mayWait }) else { return deliveries }
        var rest = deliveries.filter { !$0.mayWait }
        let open = try await self.withoutFailed(deliveries.filter(\.mayWait), among: deliveries)
        let groups = Dictionary(grouping: open) { [$0.provider.rawValue, $0.lane.rawValue] }
        let waiting =
            self.waiting
            ?? WaitingRetries(self.dispatcher.live, most: Self.mostWaiting)
        for group in groups.values {
            let areWaiting = try await self.dispatcher.retrying("look for retries") {
                try await waiting.contain(group.map(\.work), provider: group[0].provider, lane: group[0].lane)
            }
            rest += zip(group, areWaiting).compactMap { $1 ? nil : $0 }
        }
        return rest
    }

    /// Drops pushes that have failed for their device.
    ///
    /// A notification without another delivery would never end, so its push fails now. The device
    /// for which it stayed open may have been switched off since.
    ///
    /// - Parameter all: all deliveries of these notifications.
    private func withoutFailed(
        _ repeats: [RoutePlan.Delivery],
        among all: [RoutePlan.Delivery]
    ) async throws -> [RoutePlan.Delivery] {
        let pushes = repeats.map { (key: $0.work.key, device: $0.work.device) }
        let failures = try await self.dispatcher.retrying("look for failed pushes") {
            try await self.dispatcher.database.deliveries.failures(of: pushes)
        }
        guard failures.contains(where: { $0 != nil }) else { return repeats }
        let open: [RoutePlan.Delivery] = zip(repeats, failures).compactMap { $1 == nil ? $0 : nil }
        let goingOn = Set((all.filter { !$0.mayWait } + open).map(\.work.notification))
        var settlement = DeliveryStore.Settlement()
        for (delivery, reason) in zip(repeats, failures) {
            let work = delivery.work
            guard let reason, !work.callsForAttention, !goingOn.contains(work.notification) else { continue }
            settlement.failed.append((work.key, reason, isPush: true))
        }
        let failed = settlement
        _ = try await self.dispatcher.retrying("end failed notifications") {
            try await self.dispatcher.database.deliveries.settle(failed)
        }
        return open
    }

    private func deliver(_ all: [RoutePlan.Delivery], within fence: Fence?) async throws {
        var rest = try await self.stillDue(all)
        guard !rest.isEmpty else { return }
        var isSecondTry = false
        try await self.dispatcher.retrying("append deliveries") {
            var batch = RedisBatch()
            for delivery in rest {
                // After a failed append, some may be in the stream; after the lease has lapsed,
                // another dispatcher may have sent them.
                let isUnsure = isSecondTry || !(fence.map { self.dispatcher.holds($0) } ?? false)
                let work = isUnsure ? delivery.work.asRepeat : delivery.work
                let keys = self.dispatcher.keys.part(of: work.user)
                batch.append(work, to: keys.deliveries(delivery.provider, delivery.lane))
            }
            isSecondTry = true
            let replies = try await self.dispatcher.redis.send(batch)
            // While a master of a cluster is away, the others have their deliveries already.
            rest.keepFailed(by: replies)
            for reply in replies { _ = try reply.checked() }
        }
    }

    /// Publishes frames of the inbox again that a dead dispatcher may not have published.
    ///
    /// Nodes drop repeats. No push follows from here, because these notifications have an owner.
    private func publishAgain(_ repeated: [RoutedNotification]) async throws {
        let shown = repeated.filter { $0.notification.version > 0 }
        guard !shown.isEmpty else { return }
        let presence = try await RouteFacts.presence(of: shown.map(\.notification.user), self.dispatcher)
        var plan = RoutePlan(for: self.dispatcher)
        for item in shown {
            plan.publish(
                item.notification, unread: item.unread, code: self.dispatcher.catalog[item.notification.type]?.code,
                isSilent: true, now: self.dispatcher.now(),
                to: presence[ExactText(item.notification.user), default: .unknown])
        }
        try await self.publish(plan)
    }

    /// Removes replaced notifications from sockets.
    ///
    /// Replacements of one transaction share a version. Several transactions may have stored a
    /// batch.
    func publish(_ replaced: [NotificationStore.Replacement]) async throws {
        let listed = replaced.filter { $0.version > 0 }
        let now = self.dispatcher.now()
        let groups = Dictionary(grouping: listed) { ExactText($0.user) }.values
            .flatMap { Dictionary(grouping: $0, by: \.version).values }
            .sorted { $0[0].version < $1[0].version }
        try await self.publish(
            groups.map { group in
                NodeFrame.change(
                    .deleted, user: group[0].user, version: group[0].version, unread: group[0].unread,
                    .ids(group.map(\.id)), at: now)
            }
        )
    }

    /// Publishes frames to the sockets of their users, then the events for everyone.
    func publish(_ frames: [NodeFrame]) async throws {
        let own = frames.filter { $0.everyoneBut == nil }
        if !own.isEmpty {
            let presence = try await RouteFacts.presence(of: own.map(\.user.text), self.dispatcher)
            var plan = RoutePlan(for: self.dispatcher)
            for frame in own { plan.publish(frame, to: presence[frame.user, default: .unknown]) }
            try await self.publish(plan)
        }
        try await self.publishToAllNodes(frames.filter { $0.everyoneBut != nil })
    }

    private func publishToAllNodes(_ events: [NodeFrame]) async throws {
        guard !events.isEmpty else { return }
        var batch = RedisBatch()
        for event in events {
            var frames = NodeFrameBatch()
            frames.append(event)
            batch.append("PUBLISH", .text(self.dispatcher.keys.allNodesChannel), .bytes(frames.bytes))
        }
        let request = batch
        try await self.dispatcher.retrying("publish events") {
            _ = try await self.dispatcher.redis.run(request)
        }
        PipelineMetrics.published.increment(by: events.count)
    }
}
