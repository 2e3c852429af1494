// Carillon · RetractionService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Storage

/// Takes notifications that were read off the user's other devices, where their type asks for it: best effort, at a bounded
/// rate for each user.
package struct RetractionService: Sendable {
    private static let perSecond = 2
    private static let burst = 20
    private static let asked = Counter(label: "carillon.retractions.asked")
    private static let omitted = Counter(label: "carillon.retractions.omitted")

    private let catalogs: CatalogRegister
    private let deliveries: DeliveryStore
    private let buckets: TokenBuckets
    private let connection: RedisConnection
    private let keys: Keyspace
    private let logger: Logger

    package init(
        catalogs: CatalogRegister,
        deliveries: DeliveryStore,
        buckets: TokenBuckets,
        connection: RedisConnection,
        keys: Keyspace,
        logger: Logger
    ) {
        self.catalogs = catalogs
        self.deliveries = deliveries
        self.buckets = buckets
        self.connection = connection
        self.keys = keys
        self.logger = logger
    }

    /// Has the devices that were sent these notifications take them away, the newest first; what is beyond the user's rate
    /// stays there.
    func retract(_ labels: [NotificationLabel]) async {
        let catalog = self.catalogs.current
        let wanted = labels.filter { catalog[$0.type]?.isRetractedOnRead == true }
        guard let user = wanted.first?.user else { return }
        do {
            let holders = try await self.deliveries.holders(user: user, of: wanted.map(\.id))
            guard !holders.isEmpty else { return }
            let count = try await self.buckets.takeAvailable(
                holders.count, kind: "retract", user: user, perSecond: Self.perSecond, burst: Self.burst)
            if count < holders.count { Self.omitted.increment(by: holders.count - count) }
            guard count > 0 else { return }
            var batch = RedisBatch()
            for holder in holders.prefix(count) {
                let work = DeliveryWork(
                    notification: holder.notification, device: holder.device, user: user, attempt: 0, isRepeat: false,
                    isRetraction: true)
                batch.append(
                    "XADD", .text(self.keys.deliveries(holder.provider, .bulk)), "*", .text(DeliveryWork.field),
                    .text(work.text))
            }
            for reply in try await self.connection.send(batch) { _ = try reply.checked() }
            Self.asked.increment(by: count)
        } catch {
            self.logger.warning("read notifications stay on other devices", metadata: ["error": "\(error)"])
        }
    }
}
