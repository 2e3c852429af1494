// Carillon · LeaseService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Operations
import ServiceLifecycle
import Storage
import Synchronization

/// Renews the dispatcher's lease until all other services have ended.
package final class LeaseService: Service {
    private let dispatcher: Dispatcher
    private let lease: Lease
    /// When the last successful read of the register began.
    private let lookedAt = Mutex(ContinuousClock.now)

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
        self.lease = Lease(
            key: dispatcher.keys.dispatcherLease(dispatcher.name),
            value: ProcessNote(version: Release.version, startedAt: dispatcher.now()).leaseValue("dispatcher"),
            register: Lease.Register(
                key: dispatcher.keys.dispatchers, name: dispatcher.name, now: dispatcher.clock.now),
            lifetime: dispatcher.clock.lease,
            connection: dispatcher.redis
        )
    }

    /// Checks that Redis has no work of another database, before the lease is taken.
    ///
    /// The first dispatcher on a Redis claims it.
    ///
    /// - Throws: ``RedisError`` with code `configuration` if another database has claimed it.
    package func claimRedis() async throws {
        try await self.dispatcher.retrying(
            "claim Redis for the database", isFinal: { ($0 as? RedisError)?.code == .configuration }
        ) {
            guard let identity = try await self.dispatcher.database.layout.identity() else { return }
            try await self.dispatcher.live.claim(for: identity)
        }
    }

    /// Takes the lease, before any work is taken.
    ///
    /// - Throws: `RedisError` with the code `configuration` if Redis has more parts than PostgreSQL
    ///   records.
    package func acquire() async throws {
        let unknown = try await self.dispatcher.retrying("read the number of parts") {
            try await self.dispatcher.live.unknownPartCount()
        }
        if let unknown {
            throw RedisError(
                .configuration,
                "Redis has \(unknown) parts, but PostgreSQL records \(self.dispatcher.keys.parts.count); "
                    + "stop all gateways and dispatchers, run dispatcher parts grow \(unknown), then start them")
        }
        try await self.dispatcher.retrying("take the lease") {
            try await self.renew()
            // For apps and commands; each sweep writes it again.
            var notes = RedisBatch()
            self.dispatcher.live.writeParts(in: &notes)
            try await self.dispatcher.redis.run(notes)
        }
    }

    private func renew() async throws {
        let start = ContinuousClock.now
        let isWithoutGap = try await self.lease.renew(
            isListed: !self.dispatcher.share.isLeaving, timeout: self.lease.patience)
        self.dispatcher.leaseClock.renewed(at: start, withoutGap: isWithoutGap)
        guard self.dispatcher.keys.isSpread else { return }
        do {
            let names = try await Lease.holders(
                in: self.dispatcher.keys.dispatchers, at: self.dispatcher.now(), lifetime: self.lease.lifetime,
                connection: self.dispatcher.redis, timeout: self.lease.patience)
            self.dispatcher.share.update(names)
            self.lookedAt.withLock { $0 = start }
        } catch {
            // While the register is away, nothing tells which leases have ended, so read all parts.
            if start - self.lookedAt.withLock({ $0 }) >= self.lease.lifetime { self.dispatcher.share.update([]) }
            throw error
        }
    }

    /// Renews until shutdown, which ends this service after those that were started later.
    package func run() async throws {
        var interval = self.lease.renewal
        // The lease was just taken.
        await pause(for: interval)
        await self.dispatcher.untilShutdown("cannot renew the lease; retrying; others take over when it expires") {
            // Soon after a failure, while the lease still holds.
            interval = min(Lease.retry, self.lease.renewal)
            try await self.renew()
            interval = self.lease.renewal
        } wait: {
            await pause(for: interval)
        }
    }

    /// Releases the lease if it is held, once no work is left.
    package func release() async {
        // An expired lease needs no release, and Redis may be unreachable.
        guard self.dispatcher.leaseClock.term != nil else { return }
        try? await self.lease.release()
    }
}
