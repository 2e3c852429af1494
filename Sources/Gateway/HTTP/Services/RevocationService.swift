// Carillon · RevocationService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import ServiceLifecycle
import Sockets
import Storage

/// Keeps this gateway's copy of revocations, and closes the sockets whose tokens they end.
package struct RevocationService: Service {
    private static let interval: Duration = .seconds(2)
    /// A token that was being checked when its revocation came may have become a socket afterwards: so each is applied again
    /// with every look for this long.
    private static let aftermath: Duration = .seconds(30)
    /// How often what was kept for erased users is looked through.
    private static let cleaning: Duration = .seconds(3_600)
    /// How many are applied again; of more at once, the oldest are applied once.
    private static let mostRecent = 10_000

    private let register: RevocationRegister
    private let hub: SocketHub
    private let logger: Logger

    package init(register: RevocationRegister, hub: SocketHub, logger: Logger) {
        self.register = register
        self.hub = hub
        self.logger = logger
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            var recent: [(revocation: RevocationStore.Revocation, until: ContinuousClock.Instant)] = []
            var isFailing = false
            var cleanAt = ContinuousClock.now
            while !Task.isCancelled {
                let now = ContinuousClock.now
                do {
                    if now >= cleanAt {
                        try await self.register.forgetErased()
                        cleanAt = now + Self.cleaning
                    }
                    recent += try await self.load().map { ($0, now + Self.aftermath) }
                    isFailing = false
                } catch {
                    if !isFailing { self.logger.warning("revocations not read", metadata: ["error": "\(error)"]) }
                    isFailing = true
                }
                recent = recent.suffix(Self.mostRecent).filter { $0.until > now }
                if !recent.isEmpty { self.hub.revoke(recent.map { ($0.revocation.user, $0.revocation.before) }) }
                await self.register.wait(atMost: Self.interval)
            }
        }
    }

    private func load() async throws -> [RevocationStore.Revocation] {
        var all: [RevocationStore.Revocation] = []
        while true {
            let (revocations, isLast) = try await self.register.load()
            // Each page closes its sockets at once; what is kept for later is bounded.
            self.hub.revoke(revocations.map { ($0.user, $0.before) })
            all = (all + revocations).suffix(Self.mostRecent)
            if isLast { return all }
        }
    }
}
