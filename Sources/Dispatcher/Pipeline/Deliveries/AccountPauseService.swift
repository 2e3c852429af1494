// Carillon · AccountPauseService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Providers
import ServiceLifecycle
import Storage

/// Hears which accounts other dispatchers were asked to leave alone, and tells them of ours.
package struct AccountPauseService: Service {
    private static let interval: Duration = .seconds(1)

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
    }

    package func run() async throws {
        while goesOn {
            await self.look()
            // Whoever is asked to wait says so at once; a second of sending on is little beside a provider's quota.
            await pause(for: Self.interval)
        }
    }

    /// Looks once, in one round trip.
    ///
    /// While Redis is out of reach each dispatcher goes by what it was told itself.
    package func look() async {
        let now = self.dispatcher.now()
        let told = self.deliveries.flatMap { $0.pauses.untold(now: now) }
        let shared = self.dispatcher.live.sendingPauses
        do {
            let heard = try await shared.exchange(told, of: self.deliveries.map(\.provider), now: now)
            let end = self.dispatcher.now()
            for service in self.deliveries { service.pauses.learn(heard, now: end) }
        } catch {
            for service in self.deliveries { service.pauses.takeBack(told) }
            PipelineMetrics.unsharedPauses.increment()
            self.dispatcher.logger.warning(
                "which accounts are to be left alone is not known", metadata: ["error": "\(error)"])
        }
    }
}
