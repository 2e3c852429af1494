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
import Transfer

/// Sends a provider's deliveries: looks up what to send, asks the gate, calls the provider.
struct DeliverySender: Sendable {
    /// A provider may take its time; APNs and FCM both answer within seconds.
    private static let timeout: Duration = .seconds(30)

    let dispatcher: Dispatcher
    let channel: any ProviderChannel
    let transfer: TransferClient
    let metrics: PipelineMetrics.Deliveries

    private struct Item: Sendable {
        let entry: StreamEntry
        let work: DeliveryWork
        let facts: DeliveryStore.Facts?
    }

    /// Sends a batch, each delivery in a task of its own, and hands every outcome to `settle`.
    ///
    /// Returns when all are started; `permits` bounds how many are under way.
    func send(
        _ batch: LaneBatch,
        areRepeats: Bool,
        permits: Permits,
        group: inout ThrowingDiscardingTaskGroup<any Error>,
        settle: @escaping @Sendable (DeliveryOutcome) async -> Void
    ) async throws {
        for item in try await self.items(batch, areRepeats: areRepeats, settle: settle) {
            await permits.acquire()
            group.addTask {
                defer { permits.release() }
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
        struct Target: Hashable {
            let notification: NotificationID
            let device: NotificationID
        }
        var works: [(StreamEntry, DeliveryWork)] = []
        var targets: Set<Target> = []
        for entry in batch.entries {
            do throws(DeliveryWork.Fault) {
                guard let text = entry[DeliveryWork.field] else { throw .malformed }
                let work = try DeliveryWork(text)
                // Appended twice because nobody knew whether the first had arrived. The attempts do not know yet either, and
                // the other entry stays until it is settled.
                guard targets.insert(Target(notification: work.notification, device: work.device)).inserted else {
                    let twin = Item(entry: entry, work: work, facts: nil)
                    await settle(self.outcome(entry, batch, twin, .refused(.underWay)))
                    continue
                }
                works.append((entry, areRepeats ? work.asRepeat : work))
            } catch .newerFormat {
                continue
            } catch {
                await settle(self.outcome(entry, batch, nil, .malformed))
            }
        }
        let keys = works.map { ($0.1.user, $0.1.notification, $0.1.device, $0.1.isRepeat) }
        let facts = try await self.dispatcher.untilDone("look up deliveries") {
            try await self.dispatcher.deliveries.facts(keys)
        }
        return zip(works, facts).map { Item(entry: $0.0, work: $0.1, facts: $1) }
    }

    private func outcome(
        _ entry: StreamEntry,
        _ batch: LaneBatch,
        _ item: Item?,
        _ result: DeliveryOutcome.Result,
        sentAt: Timestamp? = nil,
        duration: Duration = .zero
    ) -> DeliveryOutcome {
        DeliveryOutcome(
            entry: entry,
            group: batch.group,
            lane: batch.lane,
            work: item?.work,
            facts: item?.facts,
            sentAt: sentAt ?? self.dispatcher.now(),
            result: result,
            duration: duration
        )
    }

    /// Nil if this process may no longer act: somebody else takes the entry over.
    private func send(_ item: Item, _ batch: LaneBatch) async -> DeliveryOutcome? {
        guard await self.mayAct(on: item.entry, batch.group) else {
            self.dispatcher.inHand.release([item.entry.id], of: batch.group.stream)
            return nil
        }
        guard let facts = item.facts else { return self.outcome(item.entry, batch, item, .gone) }
        let now = self.dispatcher.now()
        if let refusal = self.gate(facts, now: now) {
            return self.outcome(item.entry, batch, item, .refused(refusal))
        }
        let message = PushMessage(notification: facts.notification, unread: Int64(facts.unread), now: now)
        let start = ContinuousClock.now
        var result = await self.call(message, facts.device)
        if case .answered(.staleCredential(let reason)) = result {
            // Renewed by now; a second refusal is a fault of the configuration.
            result = await self.call(message, facts.device)
            if case .answered(.staleCredential) = result { result = .answered(.configuration(reason: reason)) }
        }
        let duration = ContinuousClock.now - start
        self.metrics.duration.recordNanoseconds(duration.inMicroseconds * 1_000)
        return self.outcome(item.entry, batch, item, result, sentAt: now, duration: duration)
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

    private func gate(_ facts: DeliveryStore.Facts, now: Timestamp) -> GateRefusal? {
        let notification = facts.notification
        let gateFacts = GateFacts(
            status: notification.status,
            isRead: notification.readAt != nil,
            isDeleted: notification.deletedAt != nil,
            isReplaced: facts.isReplaced,
            expiresAt: notification.expiresAt,
            isDeviceActive: facts.device.isActive && ExactText(facts.device.user) == ExactText(notification.user),
            isOptedOut: facts.wishes.isOptedOut || facts.wishes.preference.push == false,
            isRequired: self.dispatcher.catalog[notification.type]?.isRequired ?? false,
            wasAccepted: facts.wasAccepted
        )
        return Decision.gate(gateFacts, now: now)
    }

    private func call(_ message: PushMessage, _ device: Device) async -> DeliveryOutcome.Result {
        let request: ProviderRequest
        do {
            request = try await self.channel.request(message, device: device)
        } catch {
            return .noCredential(reason: "\(error)")
        }
        switch await self.transfer.perform(TransferRequest(request, timeout: Self.timeout)) {
        case .answered(let response):
            let answer = self.channel.read(response)
            if case .staleCredential = answer { await self.channel.renewCredential(of: request) }
            return .answered(answer)
        case .unanswered(let failure):
            return .unanswered(reason: failure.reason.rawValue, mayHaveBeenSent: failure.mayHaveBeenSent)
        }
    }
}
