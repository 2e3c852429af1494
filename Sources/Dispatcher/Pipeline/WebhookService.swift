// Carillon · WebhookService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Operations
import Providers
import ServiceLifecycle
import Storage
import Synchronization

/// Sends lifecycle events to webhooks.
///
/// Each event goes to the queue of every webhook that wants it, is acknowledged, and leaves a queue
/// when its receiver has answered. Any number of dispatchers may do this; a crash in between
/// repeats some events. Each webhook has its own queue and requests, so a slow receiver delays no
/// other.
package struct WebhookService: Service {
    private static let interval: Duration = .milliseconds(200)
    /// The interval after a look that found no events.
    private static let idleInterval: Duration = .seconds(1)
    /// Finds webhooks that other dispatchers postponed.
    private static let longestInterval: Duration = .seconds(5)
    /// A new webhook gets events after at most this long.
    private static let refresh: Duration = .seconds(2)
    /// A list older than this may lack webhooks, so it neither queues nor skips events.
    private static let validity: Duration = .seconds(5)
    /// The number of refreshes between two looks for events that were abandoned or are not wanted.
    private static let refreshesPerCheck = 5
    private static let batchSize = 500
    /// Queueing takes milliseconds; a dispatcher that has not finished by then is dead.
    private static let abandoned: Duration = .seconds(30)
    private static let inFlight = 256

    private let dispatcher: Dispatcher
    private let feed: EventFeed
    private let queues: WebhookQueues
    private let sender: WebhookSender
    private let cache = WebhookCache()
    private let lossWarnings = LogLimit<WebhookID>(every: .seconds(60))
    private var store: WebhookStore { self.dispatcher.database.webhooks }

    /// - Parameter transfer: a client that connects to public addresses only, unless the operator
    ///   allows others.
    package init(dispatcher: Dispatcher, transfer: TransferClient) {
        self.dispatcher = dispatcher
        self.feed = dispatcher.live.eventFeed
        self.queues = dispatcher.live.webhookQueues
        self.sender = WebhookSender(dispatcher: dispatcher, transfer: transfer)
    }

    package func run() async throws {
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                var round = 0
                await self.dispatcher.untilShutdown("cannot read webhooks; retrying every 2 s") {
                    defer { round += 1 }
                    try await self.refresh(isCheck: round % Self.refreshesPerCheck == 0)
                } wait: {
                    await pause(for: Self.refresh)
                }
            }
            group.addTask {
                var interval = Self.idleInterval
                await self.dispatcher.untilShutdown("cannot queue events for webhooks; retrying") {
                    interval = Self.idleInterval
                    while isRunning {
                        let count = try await self.distribute(self.dispatcher.share.parts)
                        if count > 0 { interval = Self.interval }
                        if count < Self.batchSize { break }
                    }
                } wait: {
                    // A read that waits for events would need its own connection, so poll.
                    await pause(for: interval)
                }
            }
            group.addTask { await self.send() }
        }
    }

    /// Reads the webhooks.
    ///
    /// - Parameter isCheck: whether to look for events that were abandoned or are not wanted, too.
    func refresh(isCheck: Bool) async throws {
        // Before the read: the list is only as fresh as the start of its read.
        let fence = self.dispatcher.fence(for: Self.abandoned)
        let validity = self.dispatcher.fence(for: Self.validity)
        let webhooks = try await self.store.live()
        self.cache.set(webhooks, validity)
        guard isCheck else { return }
        let parts = self.dispatcher.share.parts
        guard !webhooks.isEmpty else {
            if validity.isOpen { try await self.feed.skip(parts) }
            return
        }
        // Events from before the installation grew. Only the dispatchers of the first part read
        // them, so that more dispatchers do not mean more commands.
        let former = parts.contains { $0.index == 0 } ? self.dispatcher.keys.otherSources : []
        let abandoned = try await self.feed.takeOver(
            from: parts + former, idle: Self.abandoned, count: Self.batchSize)
        try await self.hand(abandoned, to: webhooks, within: fence)
        while isRunning, try await self.distribute(former) >= Self.batchSize {}
    }

    /// Hands on new events of these parts.
    ///
    /// - Returns: the largest number of events in a part.
    func distribute(_ parts: [Keyspace]) async throws -> Int {
        guard let known = self.cache.current, !known.isEmpty else { return 0 }
        let fence = self.dispatcher.fence(for: Self.abandoned)
        let batches = try await self.feed.read(from: parts, count: Self.batchSize)
        // Ask for the list again, because the read may take seconds. After a stall it has expired,
        // and another dispatcher takes the events over.
        guard let webhooks = self.cache.current else { return 0 }
        try await self.hand(batches, to: webhooks, within: fence)
        return batches.map(\.entries.count).max() ?? 0
    }

    /// Appends events to the queues of the webhooks that want them, then acknowledges them.
    ///
    /// - Parameter fence: around the entries; another dispatcher takes them over after it.
    func hand(_ batches: [EventFeed.Batch], to webhooks: [Webhook], within fence: Fence) async throws {
        var lossy: Set<WebhookID> = []
        for batch in batches {
            guard fence.isOpen else { break }
            let events = batch.entries.compactMap { WebhookEvent($0, name: batch.name(of: $0)) }
            var lists = webhooks.map { (webhook: $0.id, json: [[UInt8]]()) }
            for event in events {
                var json: [UInt8]?
                for (index, webhook) in webhooks.enumerated()
                where event.at >= webhook.createdAt && webhook.wants(event.kind, org: event.org) {
                    let text = json ?? event.json
                    json = text
                    lists[index].json.append(text)
                }
            }
            var session: Int
            repeat {
                session = self.dispatcher.redis.session
                // Retry until another dispatcher takes them over, because the next read would go
                // past them.
                let lost = try await self.dispatcher.retrying(
                    "queue webhook events", isFinal: { _ in !fence.isOpen }
                ) {
                    let now = self.dispatcher.now()
                    self.dispatcher.alarms.webhooks.schedule(at: now + WebhookQueues.gathering)
                    return try await self.queues.append(lists, now: now)
                }
                try await self.dispatcher.retrying("acknowledge events", isFinal: { _ in !fence.isOpen }) {
                    try await self.feed.acknowledge(batch)
                }
                self.report(lost)
                lossy.formUnion(lost.keys)
                // Redis may have come back with the stream's entries, but without the queues'.
            } while self.dispatcher.redis.session != session
        }
        guard !lossy.isEmpty else { return }
        do {
            try await self.store.recordDropped(
                Array(lossy), reason: "more than \(WebhookQueues.bound) events waited; the oldest were dropped")
        } catch {
            // The events are queued, so the next ones need not wait for PostgreSQL.
            self.dispatcher.logger.warning("cannot record that webhooks lost events", metadata: ["error": "\(error)"])
        }
    }

    /// Counts dropped events, and logs their webhooks.
    ///
    /// The webhook's status in PostgreSQL shows the loss only until its next request succeeds.
    private func report(_ lost: [WebhookID: Int]) {
        WebhookMetrics.full.increment(by: lost.values.reduce(0, +))
        let now = self.dispatcher.now()
        for webhook in lost.keys where self.lossWarnings.isDue(for: webhook, at: now) {
            self.dispatcher.logger.warning(
                "webhook queue is full; dropped its oldest events because the receiver is too slow",
                metadata: ["webhook": "\(webhook)"])
        }
    }

    private func send() async {
        let permits = Permits(Self.inFlight)
        let alarm = self.dispatcher.alarms.webhooks
        await withDiscardingTaskGroup { group in
            await self.dispatcher.untilShutdown("cannot send webhooks; retrying") {
                do {
                    while isRunning, let next = try await self.queues.nextDue() {
                        let now = self.dispatcher.now()
                        guard next <= now else { return alarm.schedule(at: next) }
                        let fence = self.dispatcher.fence(for: WebhookSender.hold)
                        for webhook in try await self.queues.claimDue(now: now, hold: WebhookSender.hold, limit: 64) {
                            await permits.acquire()
                            group.addTask {
                                defer { permits.release() }
                                await self.sender.send(webhook, within: fence) { !permits.isAwaited }
                            }
                        }
                    }
                } catch {
                    // Look again after the shortest interval, as Redis may be back by then.
                    alarm.schedule(at: self.dispatcher.now())
                    throw error
                }
            } wait: {
                await alarm.wait(
                    atLeast: Self.interval, atMost: Self.longestInterval, now: self.dispatcher.clock.now)
            }
        }
    }
}

/// The webhooks that get events, refreshed every two seconds.
final class WebhookCache: Sendable {
    private let list = Mutex<(webhooks: [Webhook], validity: Fence)?>(nil)

    func set(_ webhooks: [Webhook], _ validity: Fence) {
        self.list.withLock { $0 = (webhooks, validity) }
    }

    /// The webhooks; nil if the list is too old, and before the first read.
    var current: [Webhook]? {
        guard let (webhooks, validity) = self.list.withLock({ $0 }), validity.isOpen else { return nil }
        return webhooks
    }
}

/// Sends one webhook its queued events, one request at a time.
struct WebhookSender: Sendable {
    static let hold = WebhookQueues.hold
    private static let timeout: Duration = .seconds(15)
    private static let batchSize = 100
    /// How long a webhook waits after its request got no turn in our own queue.
    private static let queuePause: Duration = .seconds(1)
    private static let backoff = Backoff(base: .seconds(2), limit: .seconds(15 * 60))
    /// Older events are dropped.
    private static let patience: Duration = .seconds(24 * 3_600)
    /// A webhook is switched off after failing for this long and at least ``fewestFailures`` times.
    private static let endurance: Duration = .seconds(5 * 24 * 3_600)
    /// Keeps a webhook that failed rarely: if Redis loses its queue, its next event may come days
    /// later.
    ///
    /// Even with the longest `Retry-After`, more requests than this fit into ``endurance``.
    private static let fewestFailures = 100
    private static let longestRetryAfter: Duration = .seconds(3_600)

    let dispatcher: Dispatcher
    let transfer: TransferClient
    private var store: WebhookStore { self.dispatcher.database.webhooks }
    private var queues: WebhookQueues { self.dispatcher.live.webhookQueues }

    /// Sends requests one after the other until no event is left, one fails, or the claim nears its
    /// end.
    ///
    /// A failure on our side is retried after the claim has expired.
    ///
    /// - Parameters:
    ///   - fence: around the claim; a request that might outlast it is left to the next claim.
    ///   - mayGoOn: whether another request may follow; if not, the rest is due at once.
    func send(
        _ id: WebhookID,
        within fence: Fence,
        while mayGoOn: @Sendable () -> Bool = { true }
    ) async {
        do {
            while try await self.sendBatch(id, within: fence, mayGoOn) {}
        } catch {
            self.dispatcher.logger.warning(
                "cannot settle a webhook; retrying within 60 s", metadata: ["webhook": "\(id)", "error": "\(error)"])
        }
    }

    /// Sends one request and settles its outcome.
    ///
    /// - Returns: whether events are left and the webhook is still claimed for them.
    private func sendBatch(
        _ id: WebhookID,
        within fence: Fence,
        _ mayGoOn: @Sendable () -> Bool
    ) async throws -> Bool {
        guard let webhook = try await self.store.find(id), webhook.status != .off else {
            WebhookMetrics.off.increment(by: try await self.queues.forget(id))
            return false
        }
        let events = try await self.queues.oldest(of: id, limit: Self.batchSize)
        guard !events.isEmpty else {
            // All were too old. The time without requests must not count as failing.
            if webhook.status == .failing { try await self.store.forgetFailures(id) }
            try await self.queues.finish(id, entries: [], due: fence.isOpen ? self.dispatcher.now() : nil)
            return false
        }
        let body = WebhookEvent.body(events.map(\.json))
        guard fence.timeLeft > Self.timeout else { return false }
        switch await self.transfer.perform(self.request(webhook, body)) {
        case .answered(let response) where (200..<300).contains(response.status):
            WebhookMetrics.accepted.increment()
            if webhook.status == .failing { try await self.store.recordSuccess(id) }
            // The next request may take its whole time, and must be settled within the claim.
            let goesOn = isRunning && fence.timeLeft > Self.timeout * 2 && mayGoOn()
            let now = self.dispatcher.now()
            // Until the end of the claim, no other dispatcher may send to this webhook; after it,
            // another may have claimed it.
            let due: Timestamp? = goesOn ? now + fence.timeLeft : fence.isOpen ? now : nil
            let left = try await self.queues.finish(id, entries: events.map(\.entry), due: due)
            if left > 0, !goesOn { self.dispatcher.alarms.webhooks.schedule(at: now) }
            return left > 0 && goesOn
        case _ where !fence.isOpen:
            // Our own stall may be the reason, and another dispatcher may have the claim.
            break
        case .answered(let response) where response.status == 410:
            WebhookMetrics.gone.increment()
            try await self.store.remove(id)
            WebhookMetrics.off.increment(by: try await self.queues.forget(id))
            let metadata: Logger.Metadata = ["webhook": "\(id)"]
            self.dispatcher.logger.notice("webhook removed: its receiver answered 410", metadata: metadata)
        case .answered(let response):
            let reason = "answered with status \(response.status)"
            try await self.recordFailure(
                id, reason: reason, retryAfter: response.retryAfter(now: self.dispatcher.now()))
        case .unanswered(let failure) where failure.neverHadTurn:
            // It waited in our own queue, which says nothing about its receiver.
            try await self.postpone(id, for: Self.queuePause)
        case .unanswered(let failure):
            try await self.recordFailure(id, reason: "no answer: \(failure.reason.rawValue)", retryAfter: nil)
        }
        return false
    }

    private func request(_ webhook: Webhook, _ body: [UInt8]) -> TransferRequest {
        let signature = WebhookSignature.make(secret: webhook.secret, body: body, at: self.dispatcher.now())
        return TransferRequest(
            .post,
            url: webhook.url,
            headers: [
                ("content-type", "application/json"), ("carillon-webhook", webhook.id.description),
                (WebhookSignature.header, signature),
            ],
            body: body,
            timeout: Self.timeout
        )
    }

    private func recordFailure(_ id: WebhookID, reason: String, retryAfter: Duration?) async throws {
        WebhookMetrics.failed.increment()
        let now = self.dispatcher.now()
        guard let failures = try await self.store.recordFailure(id, reason: reason, at: now) else {
            WebhookMetrics.off.increment(by: try await self.queues.forget(id))
            return
        }
        if now - failures.since >= Self.endurance, failures.count >= Self.fewestFailures {
            let reason = "failed since \(failures.since.rfc3339), \(failures.count) times; last: \(reason)"
            // Otherwise it was renewed meanwhile, and is due when the claim ends.
            guard try await self.store.switchOff(id, failingSince: failures.since, reason: reason) else { return }
            WebhookMetrics.off.increment(by: try await self.queues.forget(id))
            self.dispatcher.logger.warning(
                "webhook switched off after 5 days of failures; register it again", metadata: ["webhook": "\(id)"])
            return
        }
        let own = Self.backoff.ceiling(attempt: failures.count - 1)
        let jittered = own / 2 + Self.backoff.delay(attempt: failures.count - 1) / 2
        try await self.postpone(id, for: max(jittered, min(retryAfter ?? .zero, Self.longestRetryAfter)))
    }

    /// Lets a webhook wait, and drops its events that are too old by now.
    private func postpone(_ id: WebhookID, for delay: Duration) async throws {
        let now = self.dispatcher.now()
        let oldest = now - Self.patience
        let dropped = try await self.queues.postpone(id, until: now + delay, droppingBefore: oldest)
        self.dispatcher.alarms.webhooks.schedule(at: now + delay)
        if dropped > 0 { WebhookMetrics.old.increment(by: dropped) }
    }
}

/// An event of the stream, in the form that webhooks get.
struct WebhookEvent {
    /// The entry's name, by which receivers recognise a repeat.
    let id: String
    let kind: String
    let org: String
    let at: Timestamp
    private let entry: StreamEntry

    /// Nil for an entry that was deleted.
    init?(_ entry: StreamEntry, name: String) {
        guard entry.fields != nil else { return nil }
        self.entry = entry
        self.id = name
        self.kind = Self.text(entry, "event")
        self.org = Self.text(entry, "org")
        self.at = Timestamp(milliseconds: StreamEntry.milliseconds(ofID: entry.id) ?? 0)
    }

    private static func text(_ entry: StreamEntry, _ name: String) -> String {
        String(decoding: entry[name] ?? [], as: UTF8.self)
    }

    /// `{"id":…, "event":…, …}`, with null for empty fields.
    var json: [UInt8] {
        var writer = JSONWriter(capacity: 512)
        writer.beginObject()
        writer.member("id", self.id)
        for field in self.entry.fields ?? [] {
            writer.key(escaping: field.name)
            if field.value.isEmpty {
                writer.null()
            } else {
                writer.string(String(decoding: field.value, as: UTF8.self))
            }
        }
        writer.endObject()
        return writer.bytes
    }

    /// Returns the body of a request.
    static func body(_ events: some Sequence<ArraySlice<UInt8>>) -> [UInt8] {
        var writer = JSONWriter(capacity: 4_096)
        writer.beginObject()
        writer.array("events", events) { $0.raw($1) }
        writer.endObject()
        return writer.bytes
    }
}

/// Counts requests to webhooks, and their events.
enum WebhookMetrics {
    static let accepted = Self.requests("accepted")
    static let failed = Self.requests("failed")
    /// Answers with 410, which remove the webhook.
    static let gone = Self.requests("gone")
    /// Events dropped because too many waited.
    static let full = Self.dropped("full")
    /// Events dropped after a day.
    static let old = Self.dropped("old")
    /// Events of webhooks that were switched off or removed.
    static let off = Self.dropped("off")

    private static func requests(_ outcome: String) -> Counter {
        Counter(label: "carillon.webhooks.requests", dimensions: [("outcome", outcome)])
    }

    private static func dropped(_ reason: String) -> Counter {
        Counter(label: "carillon.webhooks.dropped", dimensions: [("reason", reason)])
    }
}
