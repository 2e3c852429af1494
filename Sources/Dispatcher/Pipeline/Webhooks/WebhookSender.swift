// Carillon · WebhookSender.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Providers
import Storage

/// Sends one webhook what waits for it, a request at a time.
struct WebhookSender: Sendable {
    /// How long a claim on a webhook lasts; longer than a request and all that goes with it.
    static let hold: Duration = .seconds(60)
    private static let timeout: Duration = .seconds(15)
    private static let batchSize = 100
    private static let backoff = Backoff(base: .seconds(2), limit: .seconds(15 * 60))
    /// Events that are older are given up.
    private static let patience: Duration = .seconds(24 * 3_600)
    /// After this long without one good answer a webhook is switched off.
    private static let endurance: Duration = .seconds(5 * 24 * 3_600)

    let dispatcher: Dispatcher
    let store: WebhookStore
    let queues: WebhookQueues
    let transfer: TransferClient

    /// Sends a request, and settles what came of it.
    ///
    /// What fails on our side is tried again when the claim has lapsed.
    ///
    /// - Parameter fence: around the claim; a request that might outlast it is left to the next
    ///   claim.
    func send(_ id: NotificationID, within fence: Fence) async {
        do {
            guard let webhook = try await self.store.find(id), webhook.status != .off else {
                WebhookMetrics.off.increment(by: try await self.queues.forget(id))
                return
            }
            let events = try await self.queues.oldest(of: id, limit: Self.batchSize)
            guard !events.isEmpty else {
                return try await self.queues.finish(id, entries: [], now: self.dispatcher.now())
            }
            let body = WebhookEvent.body(events.map(\.json))
            guard fence.rest > Self.timeout else { return }
            switch await self.transfer.perform(self.request(webhook, body)) {
            case .answered(let response) where (200..<300).contains(response.status):
                WebhookMetrics.accepted.increment()
                WebhookMetrics.told.increment(by: events.count)
                if webhook.status == .failing { try await self.store.noteSuccess(id) }
                try await self.queues.finish(id, entries: events.map(\.entry), now: self.dispatcher.now())
            case .answered(let response) where response.status == 410:
                WebhookMetrics.gone.increment()
                try await self.store.remove(id)
                WebhookMetrics.off.increment(by: try await self.queues.forget(id))
                let metadata: Logger.Metadata = ["webhook": "\(id)"]
                self.dispatcher.logger.notice("webhook removed, as its receiver is gone", metadata: metadata)
            case .answered(let response):
                let reason = "answered with status \(response.status)"
                try await self.noteFailure(
                    id, reason: reason, retryAfter: response.retryAfter(now: self.dispatcher.now()))
            case .unanswered(let failure):
                try await self.noteFailure(id, reason: "no answer: \(failure.reason.rawValue)", retryAfter: nil)
            }
        } catch {
            self.dispatcher.logger.warning(
                "webhook cannot be settled", metadata: ["webhook": "\(id)", "error": "\(error)"])
        }
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

    private func noteFailure(_ id: NotificationID, reason: String, retryAfter: Duration?) async throws {
        WebhookMetrics.failed.increment()
        let now = self.dispatcher.now()
        guard let failures = try await self.store.noteFailure(id, reason: reason, at: now) else {
            WebhookMetrics.off.increment(by: try await self.queues.forget(id))
            return
        }
        guard now - failures.since < Self.endurance else {
            let reason = "failed since \(failures.since.rfc3339), \(failures.count) times; last: \(reason)"
            try await self.store.switchOff(id, reason: reason)
            WebhookMetrics.off.increment(by: try await self.queues.forget(id))
            self.dispatcher.logger.warning("webhook switched off", metadata: ["webhook": "\(id)"])
            return
        }
        let own = Self.backoff.ceiling(attempt: failures.count - 1)
        let jittered = own / 2 + Self.backoff.delay(attempt: failures.count - 1) / 2
        let delay = max(jittered, min(retryAfter ?? .zero, .seconds(3_600)))
        let oldest = Timestamp(microseconds: now.microseconds - Self.patience.inMicroseconds)
        let dropped = try await self.queues.putOff(id, until: now + delay, droppingBefore: oldest)
        if dropped > 0 { WebhookMetrics.old.increment(by: dropped) }
    }
}
