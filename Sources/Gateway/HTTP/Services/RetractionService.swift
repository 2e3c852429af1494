// Carillon · RetractionService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Operations
import Storage

/// Removes read notifications from the user's other devices if their type asks for it.
///
/// This is best effort and rate-limited per user.
struct RetractionService: Sendable {
    private static let perSecond = 2.0
    private static let burst = 20
    /// A provider with this many queued deliveries, over all parts, gets no retractions: it is far
    /// behind, or no dispatcher serves it any more.
    private static let mostDeliveries = 1_000_000
    private static let omitted = Counter(label: "carillon.retractions.omitted")

    private let catalogs: CatalogRegister
    private let deliveries: DeliveryStore
    private let live: Live
    private let logger: Logger

    init(_ base: GatewayBase) {
        self.catalogs = base.catalogs
        self.deliveries = base.database.deliveries
        self.live = base.live
        self.logger = base.logger
    }

    /// Queues the removal of notifications from the devices that received them, newest first.
    ///
    /// Removals beyond the user's rate limit, or for a provider with too many queued deliveries,
    /// are dropped.
    ///
    /// - Parameter isPatient: whether to wait for an unreachable Redis server.
    func retract(_ labels: [NotificationLabel], isPatient: Bool) async {
        let catalog = self.catalogs.current
        let wanted = labels.filter { catalog[$0.type]?.isRetractedOnRead == true }
        guard let user = wanted.first?.user else { return }
        do {
            if !isPatient { try self.live.connection.failIfAway() }
            let holders = try await self.deliveries.holders(user: user, of: wanted.map(\.id))
            guard !holders.isEmpty else { return }
            let keys = self.live.keys.part(of: user)
            let open = try await self.open(Set(holders.map(\.provider)), keys)
            let reachable = holders.filter { open.contains($0.provider) }
            let count = try await self.live.buckets.takeAvailable(
                reachable.count, kind: .retractions, user: user, perSecond: Self.perSecond, burst: Self.burst
            ).taken
            if count < holders.count { Self.omitted.increment(by: holders.count - count) }
            guard count > 0 else { return }
            var batch = RedisBatch()
            for holder in reachable.prefix(count) {
                let work = DeliveryWork(
                    notification: holder.notification, device: holder.device, user: user, attempt: 0, isRepeat: false,
                    isRetraction: true)
                batch.append(work, to: keys.deliveries(holder.provider, .bulk))
            }
            try await self.live.connection.run(batch, isPatient: isPatient)
        } catch {
            self.logger.warning("cannot retract read notifications from other devices", metadata: ["error": "\(error)"])
        }
    }

    /// Returns the providers whose streams have room.
    private func open(_ providers: Set<Provider>, _ keys: Keyspace) async throws(RedisError) -> Set<Provider> {
        var batch = RedisBatch()
        for provider in providers { batch.append("XLEN", .text(keys.deliveries(provider, .bulk))) }
        let most = Self.mostDeliveries / self.live.keys.parts.count
        var open: Set<Provider> = []
        for (provider, reply) in zip(providers, try await self.live.connection.send(batch, isPatient: false)) {
            // A server that does not answer counts as open; the append to it then fails.
            if (try? reply.integer()) ?? 0 < most { open.insert(provider) }
        }
        return open
    }
}
