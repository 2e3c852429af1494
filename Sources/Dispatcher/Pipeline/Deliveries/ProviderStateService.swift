// Carillon · ProviderStateService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Metrics
import Providers
import ServiceLifecycle
import Storage

/// Publishes the state of providers' breakers to admins through Redis, and to Prometheus as gauges.
package struct ProviderStateService: Service {
    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]
    let interval: Duration

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
        // Well within the 20 s for which a state is valid.
        self.interval = min(dispatcher.clock.lease / 3, .seconds(5))
    }

    private struct Key: Hashable {
        let provider: Provider
        let app: String
    }

    package func run() async throws {
        let board = self.dispatcher.live.providerBoard
        // Removes the states of killed dispatchers, which could not do it.
        _ = try? await board.report(now: self.dispatcher.now(), removesStale: true)
        var shown: Set<Key> = []
        var last: Timestamp?
        while isRunning {
            let now = self.dispatcher.now()
            var states: [ProviderState] = []
            var gone = shown
            shown = []
            for service in self.deliveries {
                let apps = self.dispatcher.channels.apps(of: service.provider)
                let overviews = service.health.overviews(of: apps, now: now, since: last)
                states += self.states(of: service, overviews)
                for (app, overview) in overviews {
                    let key = Key(provider: service.provider, app: app)
                    self.show(key, overview)
                    shown.insert(key)
                }
            }
            last = now
            gone.subtract(shown)
            // A gauge keeps its last value, so reset those of removed apps.
            for key in gone { self.show(key, ProviderHealth.Overview()) }
            do {
                let counts = self.deliveries.flatMap(\.counts)
                try await board.publish(states, counts: counts, dispatcher: self.dispatcher.name, now: now)
            } catch {
                self.dispatcher.logger.warning(
                    "cannot publish provider states; retrying at the next interval", metadata: ["error": "\(error)"])
            }
            // The state changes with each call, so publish it at an interval.
            await pause(for: self.interval)
        }
        try? await board.remove(self.dispatcher.name)
    }

    private func states(
        of service: DeliveriesService,
        _ overviews: [String: ProviderHealth.Overview]
    ) -> [ProviderState] {
        overviews.sorted { $0.key < $1.key }.map { app, overview in
            var until: Timestamp?
            if case .open(let moment) = overview.state { until = moment }
            return ProviderState(
                provider: service.provider,
                app: app,
                dispatcher: self.dispatcher.name,
                breaker: ProviderState.Breaker(overview.state),
                until: until,
                inFlight: overview.inFlight
            )
        }
    }

    private func show(_ key: Key, _ overview: ProviderHealth.Overview) {
        let dimensions = [("provider", key.provider.rawValue), ("app", key.app)]
        Gauge(label: "carillon.provider.breaker", dimensions: dimensions)
            .record(ProviderState.Breaker(overview.state).rank)
        Gauge(label: "carillon.provider.in_flight", dimensions: dimensions).record(overview.inFlight)
        Gauge(label: "carillon.provider.services_out", dimensions: dimensions).record(overview.servicesOut)
        // Made at start, so that the first rejection is visible as an increment from 0.
        _ = ProviderHealth.misconfigured(key.provider, app: key.app)
    }
}

extension ProviderState.Breaker {
    /// The value of the metric: 0 closed, 1 probing, 2 open.
    var rank: Int {
        switch self {
        case .closed: 0
        case .probing: 1
        case .open: 2
        }
    }

    init(_ state: CircuitBreaker.State) {
        switch state {
        case .closed: self = .closed
        case .open: self = .open
        case .probing: self = .probing
        }
    }
}
