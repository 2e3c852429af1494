// Carillon · RetryService.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Model
import Providers
import ServiceLifecycle
import Streams

/// Moves retries that are due back to their streams; any number of dispatchers may do so at once.
package struct RetryService: Service {
    private static let interval: Duration = .milliseconds(250)
    private static let batchSize = 200
    /// Enough to find out whether a provider is back.
    private static let probes = 4

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
    }

    package func run() async throws {
        let set = RetrySet(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        while goesOn {
            for service in self.deliveries { await self.move(service, set) }
            // Redis tells nobody that a retry has come due, so it is asked.
            await pause(for: Self.interval)
        }
    }

    /// Moves what is due of one provider, the urgent first, as far as its failures leave room.
    func move(_ service: DeliveriesService, _ set: RetrySet) async {
        let apps = self.dispatcher.channels.apps(of: service.provider)
        let standing = service.health.standing(of: apps, now: self.dispatcher.now())
        if case .outOfUse = standing {
            // It would only come back.
            service.traffic.noteOutage(now: self.dispatcher.now())
            return
        }
        var isEmpty = true
        for lane in Lane.allCases {
            // What is critical never waits for others' failures.
            var room = lane == .critical ? Int.max : service.traffic.allowance(now: self.dispatcher.now())
            if standing == .probing { room = min(room, Self.probes) }
            do {
                while true {
                    let limit = min(Self.batchSize, room)
                    guard limit > 0 else {
                        isEmpty = false
                        break
                    }
                    let moved = try await set.moveDue(
                        provider: service.provider,
                        lane: lane,
                        now: self.dispatcher.now(),
                        limit: limit
                    )
                    if lane != .critical {
                        service.traffic.spend(moved)
                        room -= moved
                    }
                    guard moved == limit else { break }
                }
            } catch {
                isEmpty = false
                self.dispatcher.logger.warning("retries cannot be moved", metadata: ["error": "\(error)"])
            }
        }
        if isEmpty { service.traffic.noteEmpty(now: self.dispatcher.now()) }
    }
}
