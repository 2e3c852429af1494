// Carillon · LeaseService.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import ServiceLifecycle
import Storage

/// Keeps the dispatcher's lease.
package final class LeaseService: Service {
    private let dispatcher: Dispatcher
    private let lease: Lease

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
        self.lease = Lease(
            key: dispatcher.keys.dispatcherLease(dispatcher.name),
            value: "dispatcher",
            connection: dispatcher.redis
        )
    }

    /// Takes the lease before any work is taken.
    package func acquire() async throws {
        try await self.dispatcher.untilDone("take the lease") { try await self.renew() }
    }

    private func renew() async throws {
        let start = ContinuousClock.now
        let isWithoutGap = try await self.lease.renew()
        self.dispatcher.leaseClock.renewed(at: start, withoutGap: isWithoutGap)
    }

    /// Renews until it is told to stop, which happens after the services that were started later have ended.
    package func run() async throws {
        while goesOn {
            // The time until the next renewal, cut short by the shutdown.
            await pause(for: Lease.renewal)
            do {
                try await self.renew()
            } catch {
                self.dispatcher.logger.warning("lease not renewed", metadata: ["error": "\(error)"])
            }
        }
    }

    /// Gives the lease up when nothing is left to be done.
    package func release() async {
        try? await self.lease.release()
    }
}
