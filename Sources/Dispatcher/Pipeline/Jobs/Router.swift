// Carillon · Router.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import CoreMetrics
import Decision
import JSON
import Logging
import Model
import Redis
import Shapes
import Stores
import Streams

/// Sends stored notifications on their way: to sockets, to the deliveries streams, or to rest in the inbox.
struct Router: Sendable {
    private static let publishLimit = 512

    let dispatcher: Dispatcher

    /// Fans a batch out and, when all of it is in the next stage's hands, acknowledges it.
    func finish(_ batch: StoredBatch) async throws {
        try await self.route(batch.open)
        try await self.publish(batch.events)
        try await self.publish(batch.eventsForEveryone)
        try await DeadLetterOffice(dispatcher: self.dispatcher).setAside(batch.dead)
        try await self.dispatcher.acknowledge(batch.finished, batch.group)
        PipelineMetrics.jobs.increment(by: batch.finished.count)
    }

    /// Routes notifications that were just stored, or found without an owner.
    func route(_ open: [StoredBatch.Open]) async throws {
        guard !open.isEmpty else { return }
        let users = ExactText.distinct(open.map(\.notification.user))
        let presences = try await self.presences(users)
        let presence = Dictionary(uniqueKeysWithValues: zip(users.map { ExactText($0) }, presences))
        let mayNeedPush = open.filter { item in
            guard item.notification.channels.contains(.push) else { return false }
            guard case .online = presence[ExactText(item.notification.user)] else { return true }
            return !item.notification.channels.contains(.inApp)
        }
        let devices = try await self.devices(mayNeedPush.map(\.notification.user))
        var plan = RoutePlan()
        for item in open {
            let found = presence[ExactText(item.notification.user)] ?? .unknown
            self.add(item, presence: found, devices: devices, to: &plan)
        }
        try await self.carryOut(plan)
    }

    /// Falls back to push where no socket proved receipt.
    func fallBack(_ unproven: [Notification]) async throws {
        let devices = try await self.devices(unproven.filter { $0.channels.contains(.push) }.map(\.user))
        var plan = RoutePlan()
        for notification in unproven {
            let item = StoredBatch.Open(notification: notification, unread: 0, isRepeat: true)
            self.add(item, presence: .offline, devices: devices, progress: .unproven, to: &plan)
        }
        try await self.carryOut(plan)
    }

    // MARK: Looking up

    private func presences(_ users: [String]) async throws -> [Presence] {
        do {
            return try await self.dispatcher.untilDone(
                "look up presence",
                isFinal: { ($0 as? RedisError)?.code == .server }
            ) {
                try await self.dispatcher.presence.lookUp(users)
            }
        } catch let error as RedisError where error.code == .server {
            self.dispatcher.logger.error("presence unknown", metadata: ["error": "\(error)"])
            return users.map { _ in .unknown }
        }
    }

    private func devices(_ users: [String]) async throws -> [ExactText: [Device]] {
        guard !users.isEmpty else { return [:] }
        let distinct = ExactText.distinct(users)
        return try await self.dispatcher.untilDone("look up devices") {
            try await self.dispatcher.recipients.activeDevices(distinct)
        }
    }

    // MARK: Planning

    private func add(
        _ item: StoredBatch.Open,
        presence: Presence,
        devices: [ExactText: [Device]],
        progress: DecisionFacts.Progress = .stored,
        to plan: inout RoutePlan
    ) {
        let notification = item.notification
        // A type that has left the catalog since keeps what its notifications were stored with.
        let type = self.dispatcher.catalog[notification.type] ?? NotificationType(name: notification.type)
        let all = devices[ExactText(notification.user)] ?? []
        let usable = all.filter { self.dispatcher.providers.contains($0.provider) }
        var facts = DecisionFacts(
            notification: notification,
            type: type,
            progress: progress,
            now: self.dispatcher.now()
        )
        facts.presence = presence
        facts.deviceCount = usable.count
        for step in decide(facts) {
            switch step {
            case .publish:
                plan.publish(notification, unread: item.unread, code: type.code, now: facts.now, to: presence)
            case .awaitProof(let deadline):
                plan.awaitProof(notification, deadline: facts.now + deadline)
            case .push:
                for device in usable { plan.deliver(notification, to: device, isRepeat: item.isRepeat) }
                plan.mark(notification, .pending, reason: "queued", via: nil)
            case .settle(let status, let reason, let via):
                plan.mark(notification, status, reason: reason.rawValue, via: via)
            case .wait, .store:
                break
            }
        }
        if notification.channels.contains(.push) {
            for device in all where !self.dispatcher.providers.contains(device.provider) {
                plan.skip(notification, device: device, reason: "no_provider", at: facts.now)
            }
        }
    }

    // MARK: Doing

    private func carryOut(_ plan: RoutePlan) async throws {
        try await self.publish(plan)
        try await self.deliver(plan.deliveries)
        let marks = plan.marks
        if !marks.isEmpty {
            try await self.dispatcher.untilDone("mark notifications") {
                try await self.dispatcher.notifications.mark(marks)
            }
        }
        let skipped = plan.skipped
        if !skipped.isEmpty {
            try await self.dispatcher.untilDone("record attempts") {
                var settlement = DeliveryStore.Settlement()
                settlement.attempts = skipped
                try await self.dispatcher.deliveries.settle(settlement)
            }
        }
    }

    /// Deadlines first, so that no frame is out whose missing proof nobody would notice.
    ///
    /// Repeating all of it is harmless: nodes drop what is not newer than what they sent.
    private func publish(_ plan: RoutePlan) async throws {
        let unconfirmed = UnconfirmedSet(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        var batch = RedisBatch()
        for (notification, deadline) in plan.awaited { unconfirmed.add(notification, deadline: deadline, in: &batch) }
        let firstPublish = batch.count
        let messages = plan.messages
        for message in messages {
            batch.append(
                "PUBLISH", .text(self.dispatcher.keys.nodeChannel(message.node)), .bytes(message.frames.bytes)
            )
        }
        guard !batch.isEmpty else { return }
        let request = batch
        let receivers = try await self.dispatcher.untilDone("publish frames") {
            var receivers: [Int64] = []
            for reply in try await self.dispatcher.redis.send(request) { receivers.append(try reply.integer()) }
            return receivers
        }
        for (message, count) in zip(messages, receivers.dropFirst(firstPublish)) where count == 0 {
            self.dispatcher.presence.doubt(node: message.node)
        }
        PipelineMetrics.published.increment(by: plan.frameCount)
    }

    private func deliver(_ deliveries: [RoutePlan.Delivery]) async throws {
        guard !deliveries.isEmpty else { return }
        var isSecondTry = false
        try await self.dispatcher.untilDone("append deliveries") {
            var batch = RedisBatch()
            for delivery in deliveries {
                // Whoever tries again does not know what arrived the first time; whoever stood still so long that others took
                // over does not know what they sent.
                let isUnsure = isSecondTry || !self.dispatcher.leaseClock.isHeld
                let work = isUnsure ? delivery.work.asRepeat : delivery.work
                batch.append(
                    "XADD", .text(self.dispatcher.keys.deliveries(delivery.provider, delivery.lane)), "*",
                    .text(DeliveryWork.field), .text(work.text)
                )
            }
            isSecondTry = true
            for reply in try await self.dispatcher.redis.send(batch) { _ = try reply.checked() }
        }
    }

    private func publish(_ events: [StoredBatch.EventForEveryone]) async throws {
        guard !events.isEmpty else { return }
        var batch = RedisBatch()
        for event in events {
            let message = RedisArgument.bytes(RoutePlan.frames(event).bytes)
            batch.append("PUBLISH", .text(self.dispatcher.keys.allNodesChannel), message)
        }
        let request = batch
        try await self.dispatcher.untilDone("publish events") {
            for reply in try await self.dispatcher.redis.send(request) { _ = try reply.checked() }
        }
        PipelineMetrics.published.increment(by: events.count)
    }

    /// Publishes events to the sockets of their users.
    func publish(_ events: [StoredBatch.Event]) async throws {
        guard !events.isEmpty else { return }
        let users = ExactText.distinct(events.map(\.user))
        let presence = Dictionary(
            uniqueKeysWithValues: zip(users.map { ExactText($0) }, try await self.presences(users))
        )
        var plan = RoutePlan()
        for event in events { plan.publish(event, to: presence[ExactText(event.user)] ?? .unknown) }
        try await self.publish(plan)
    }
}
