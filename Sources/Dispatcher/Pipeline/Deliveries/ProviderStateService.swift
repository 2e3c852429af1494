// Carillon · ProviderStateService.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Metrics
package import Model
import Providers
import ServiceLifecycle
import Streams

/// Tells which providers there are, to gateways by Redis; and how the ways to them stand, to admins by Redis, to Prometheus
/// as gauges.
package struct ProviderStateService: Service {
    private static let interval: Duration = .seconds(5)

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]
    private let providers: [Provider]

    /// - Parameter providers: those that are built in, be they in use or not.
    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService], providers: [Provider]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
        self.providers = providers
    }

    package func run() async throws {
        let board = ProviderBoard(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        let roster = ProviderRoster(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        let survey = StreamSurvey(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        while goesOn {
            let now = self.dispatcher.now()
            let states = self.deliveries.flatMap { self.states(of: $0) }
            for state in states { self.show(state) }
            do {
                // Each time: Redis may have been emptied.
                try await roster.announce(self.providers)
                let counts = self.deliveries.flatMap(\.counts)
                try await board.put(states, counts: counts, dispatcher: self.dispatcher.name, now: now)
                for service in self.deliveries {
                    let oldest = try await survey.oldestWaiting(service.provider, now: now)
                    let age = oldest.map { max(0, (now - $0) / .seconds(1)) } ?? 0
                    Gauge(
                        label: "carillon.deliveries.oldest_waiting_seconds",
                        dimensions: [("provider", service.provider.rawValue)]
                    ).record(age)
                }
            } catch {
                self.dispatcher.logger.warning("states of providers not told", metadata: ["error": "\(error)"])
            }
            // Nobody asks to the second how a provider stands.
            await pause(for: Self.interval)
        }
        try? await board.remove(self.dispatcher.name)
    }

    private func states(of service: DeliveriesService) -> [ProviderState] {
        // A browser's push service has a breaker of its own; the app's row tells of the one that is worst off.
        let known = Dictionary(grouping: service.health.states, by: \.app)
        return self.dispatcher.channels.apps(of: service.provider).map { app in
            let states = known[app] ?? []
            let state =
                states.map(\.state).max { ProviderState.Breaker($0).rank < ProviderState.Breaker($1).rank } ?? .closed
            let inFlight = states.reduce(0) { $0 + $1.inFlight }
            var until: Timestamp?
            if case .open(let moment) = state { until = moment }
            return ProviderState(
                provider: service.provider,
                app: app,
                dispatcher: self.dispatcher.name,
                breaker: ProviderState.Breaker(state),
                until: until,
                inFlight: inFlight
            )
        }
    }

    private func show(_ state: ProviderState) {
        let dimensions = [("provider", state.provider.rawValue), ("app", state.app)]
        Gauge(label: "carillon.provider.breaker", dimensions: dimensions).record(state.breaker.rank)
        Gauge(label: "carillon.provider.in_flight", dimensions: dimensions).record(state.inFlight)
    }
}

extension ProviderState.Breaker {
    /// As the metric has it: 0 closed, 1 probing, 2 open.
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
