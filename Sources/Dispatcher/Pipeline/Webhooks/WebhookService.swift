// Carillon · WebhookService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage

/// Tells webhooks what became of notifications: hands each event to the queues of those that want it, and sends what waits
/// in the queues.
///
/// Any number of dispatchers do so. An event is acknowledged when the queues have it, and leaves a queue when its receiver
/// has answered: whoever dies in between makes some events come twice. Each webhook has a queue and requests of its own,
/// so that a slow receiver holds up nobody else.
package struct WebhookService: Service {
    private static let interval: Duration = .milliseconds(200)
    /// How long a new webhook may take to be known.
    private static let refresh: Duration = .seconds(2)
    private static let batchSize = 500
    /// Handing events to the queues takes milliseconds; whoever has not done so by then is dead.
    private static let abandoned: Duration = .seconds(30)
    private static let inFlight = 256

    private let dispatcher: Dispatcher
    private let store: WebhookStore
    private let feed: EventFeed
    private let queues: WebhookQueues
    private let sender: WebhookSender
    private let roster = WebhookRoster()

    /// - Parameter transfer: a client of its own, which connects to public addresses only unless the operator allows others.
    package init(dispatcher: Dispatcher, store: WebhookStore, transfer: TransferClient) {
        self.dispatcher = dispatcher
        self.store = store
        self.feed = dispatcher.live.eventFeed
        self.queues = dispatcher.live.webhookQueues
        self.sender = WebhookSender(dispatcher: dispatcher, store: store, queues: self.queues, transfer: transfer)
    }

    package func run() async throws {
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                await self.repeatedly("webhooks cannot be read", every: Self.refresh) { try await self.look() }
            }
            group.addTask {
                await self.repeatedly("events cannot be handed to webhooks", every: Self.interval) {
                    while goesOn, try await self.distribute() == Self.batchSize {}
                }
            }
            group.addTask { await self.send() }
        }
    }

    /// Does something again and again; says once what is wrong, and once that it is well again.
    private func repeatedly(_ fault: String, every interval: Duration, _ work: () async throws -> Void) async {
        var isFailing = false
        while goesOn {
            do {
                try await work()
                isFailing = false
            } catch {
                if !isFailing { self.dispatcher.logger.warning("\(fault)", metadata: ["error": "\(error)"]) }
                isFailing = true
            }
            // Neither PostgreSQL nor Redis says that there is something new, so they are asked.
            await pause(for: interval)
        }
    }

    private func look() async throws {
        let webhooks = try await self.store.live()
        self.roster.set(webhooks)
        guard !webhooks.isEmpty else { return try await self.feed.skip() }
        let fence = self.dispatcher.fence(for: Self.abandoned)
        let abandoned = try await self.feed.takeOver(idle: Self.abandoned, count: Self.batchSize)
        try await self.hand(abandoned, to: webhooks, within: fence)
    }

    private func distribute() async throws -> Int {
        let webhooks = self.roster.all
        guard !webhooks.isEmpty else { return 0 }
        let fence = self.dispatcher.fence(for: Self.abandoned)
        let entries = try await self.feed.take(count: Self.batchSize)
        try await self.hand(entries, to: webhooks, within: fence)
        return entries.count
    }

    /// Puts events into the queues of those that want them, then acknowledges them.
    ///
    /// - Parameter fence: around the entries; after its time, another dispatcher takes them over.
    private func hand(_ entries: [StreamEntry], to webhooks: [Webhook], within fence: Fence) async throws {
        guard !entries.isEmpty, fence.isOpen else { return }
        let events = entries.compactMap { WebhookEvent($0) }
        var lists = webhooks.map { (webhook: $0.id, json: [[UInt8]]()) }
        for event in events {
            var json: [UInt8]?
            for (place, webhook) in webhooks.enumerated()
            where event.at >= webhook.createdAt && webhook.wants(event.kind, org: event.org) {
                let text = json ?? event.json
                json = text
                lists[place].json.append(text)
            }
        }
        let lost = try await self.queues.append(lists, now: self.dispatcher.now())
        try await self.feed.acknowledge(entries.map(\.id))
        guard !lost.isEmpty else { return }
        WebhookMetrics.full.increment(by: lost.values.reduce(0, +))
        try await self.store.noteDropped(
            Array(lost.keys), reason: "more than \(WebhookQueues.bound) events waited; the oldest were dropped")
    }

    private func send() async {
        let permits = Permits(Self.inFlight)
        await withDiscardingTaskGroup { group in
            await self.repeatedly("webhooks cannot be sent", every: Self.interval) {
                while goesOn {
                    let fence = self.dispatcher.fence(for: WebhookSender.hold)
                    let due = try await self.queues.claimDue(
                        now: self.dispatcher.now(), hold: WebhookSender.hold, limit: 64)
                    guard !due.isEmpty else { return }
                    for webhook in due {
                        await permits.acquire()
                        group.addTask {
                            defer { permits.release() }
                            await self.sender.send(webhook, within: fence)
                        }
                    }
                }
            }
        }
    }
}
