// Carillon · RetryService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import ServiceLifecycle
import Storage

/// Moves due retries and held-back deliveries to their streams; any number of dispatchers may do so
/// at once.
///
/// A stream gets only as much as keeps its calls busy, so that new deliveries do not wait behind a
/// backlog.
package struct RetryService: Service {
    /// A set that deliveries wait in.
    private struct Source {
        /// The app whose held-back deliveries these are; nil for the retries of all apps.
        let app: String?
        /// How many may still be moved.
        var room: Int
    }

    /// Deliveries that come due within this time are moved together.
    private static let interval: Duration = .milliseconds(250)
    /// Finds the deliveries that other dispatchers postponed.
    private static let longestInterval: Duration = .seconds(5)
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
        while isRunning {
            await self.poll()
            await self.dispatcher.alarms.retries.wait(
                atLeast: Self.interval, atMost: Self.longestInterval, now: self.dispatcher.clock.now)
        }
    }

    /// Moves what is due of all providers, and notes when to look again.
    private func poll() async {
        let alarm = self.dispatcher.alarms.retries
        for keys in self.dispatcher.share.parts {
            let part = self.dispatcher.live.with(keys)
            do {
                let waiting = try await part.retries.waiting(of: self.deliveries.map(\.provider))
                for service in self.deliveries where waiting.contains(service.provider) {
                    if let next = await self.move(service, in: part) { alarm.note(next) }
                }
            } catch {
                // The other parts may be on servers that answer.
                self.warn(error)
                alarm.note(self.dispatcher.now())
            }
        }
    }

    private func warn(_ error: any Error) {
        self.dispatcher.logger.warning("cannot move due deliveries; retrying", metadata: ["error": "\(error)"])
    }

    /// Moves what is due of one provider in a part, the urgent lanes first.
    ///
    /// - Returns: when to look again; nil if nothing waits.
    @discardableResult
    func move(_ service: DeliveriesService, in part: Live) async -> Timestamp? {
        let apps = self.dispatcher.channels.apps(of: service.provider)
        let standing = service.health.standing(of: apps, now: self.dispatcher.now())
        // Deliveries that are moved while the circuit breaker is open would only come back.
        if case .outOfUse(let until) = standing { return until }
        var moments: [Timestamp] = []
        for lane in Lane.allCases {
            do {
                let retries = Source(app: nil, room: standing == .probing ? Self.probes : .max)
                let held = try await self.heldSources(service, lane, apps: apps, in: part)
                try await self.move([retries] + held.sources, of: service, lane, in: part)
                let due = try await part.retries.firstDue(
                    provider: service.provider, lane: lane, held: held.sources.compactMap(\.app))
                moments += [held.until, due].compactMap(\.self)
            } catch {
                self.warn(error)
                moments.append(self.dispatcher.now())
            }
        }
        return moments.min()
    }

    /// Returns the apps that have something held back and no open breaker, and when the first open
    /// breaker may probe.
    ///
    /// Their order is random, because a small room may not reach the last one.
    ///
    /// - Parameter apps: the apps that exist; everything is moved of others, since no call probes
    ///   for them.
    private func heldSources(
        _ service: DeliveriesService,
        _ lane: Lane,
        apps: [String],
        in part: Live
    ) async throws(RedisError) -> (sources: [Source], until: Timestamp?) {
        let now = self.dispatcher.now()
        var sources: [Source] = []
        var earliest: Timestamp?
        for app in try await part.heldSets.apps(provider: service.provider, lane: lane).shuffled() {
            switch apps.contains(app) ? service.health.standing(of: [app], now: now) : .inUse {
            case .outOfUse(let until): earliest = min(earliest ?? until, until)
            case .probing: sources.append(Source(app: app, room: Self.probes))
            case .inUse: sources.append(Source(app: app, room: .max))
            }
        }
        return (sources, earliest)
    }

    /// Moves what is due of these by turns, so that a large backlog of one delays no other.
    private func move(
        _ sources: [Source],
        of service: DeliveriesService,
        _ lane: Lane,
        in part: Live
    ) async throws(RedisError) {
        var room = try await self.room(service, lane, in: part)
        var sources = sources
        while !sources.isEmpty, room > 0 {
            let share = min(max(1, room / sources.count), Self.batchSize)
            var next: [Source] = []
            for var source in sources {
                let limit = min(share, source.room, room)
                guard limit > 0 else { continue }
                let moved = try await self.move(source, of: service, lane, limit: limit, in: part)
                room -= moved
                source.room -= moved
                if moved == limit { next.append(source) }
            }
            sources = next
        }
    }

    /// Returns how many deliveries a stream may get now.
    ///
    /// A full stream gets a few all the same, so that retries are not starved by new deliveries.
    /// Critical ones never wait.
    private func room(_ service: DeliveriesService, _ lane: Lane, in part: Live) async throws(RedisError) -> Int {
        guard lane != .critical else { return .max }
        let stream = part.keys.deliveries(service.provider, lane)
        let length = try await self.dispatcher.redis.send("XLEN", .text(stream)).integer()
        return max(service.fewestRetries, service.mostWaiting - Int(length))
    }

    /// - Returns: how many were moved.
    private func move(
        _ source: Source,
        of service: DeliveriesService,
        _ lane: Lane,
        limit: Int,
        in part: Live
    ) async throws(RedisError) -> Int {
        let now = self.dispatcher.now()
        guard let app = source.app else {
            return try await part.retries.moveDue(provider: service.provider, lane: lane, now: now, limit: limit)
        }
        return try await part.heldSets.moveDue(provider: service.provider, lane: lane, app: app, now: now, limit: limit)
    }
}
