// Carillon · RetryService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Operations
import Providers
import ServiceLifecycle
import Storage

/// Moves due retries and held-back deliveries to their streams; any number of dispatchers may do so
/// at once.
///
/// A stream gets only as much as keeps its calls busy, so that new deliveries do not wait behind a
/// backlog. While a breaker is open, deliveries that have been due for long are moved too, so that
/// the gate ends those that have expired; the others are held back again.
package struct RetryService: Service {
    /// A set that deliveries wait in.
    private struct Source {
        /// The app or service whose held-back deliveries these are; nil for all retries.
        let scope: BreakerScope?
        /// How many may still be moved.
        var room: Int
        /// When the open breaker may probe; nil if it is not open.
        let openUntil: Timestamp?

        init(_ scope: BreakerScope?, _ state: CircuitBreaker.State) {
            self.scope = scope
            switch state {
            case .closed:
                self.room = .max
                self.openUntil = nil
            case .probing:
                self.room = RetryService.probes
                self.openUntil = nil
            case .open(let until):
                self.room = RetryService.mostOverdue
                self.openUntil = until
            }
        }
    }

    /// Deliveries that come due within this time are moved together.
    private static let interval: Duration = .milliseconds(250)
    /// Finds the deliveries that other dispatchers postponed.
    private static let longestInterval: Duration = .seconds(5)
    private static let batchSize = 200
    /// Enough to find out whether a provider is back.
    private static let probes = 4
    /// The most overdue deliveries that are moved at a time.
    private static let mostOverdue = 1_000

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
    }

    package func run() async throws {
        await self.dispatcher.untilShutdown("cannot move due deliveries; retrying") {
            try await self.poll()
        } wait: {
            await self.dispatcher.alarms.retries.wait(
                atLeast: Self.interval, atMost: Self.longestInterval, now: self.dispatcher.clock.now)
        }
    }

    /// Moves the due deliveries of all providers, and schedules the next look.
    ///
    /// - Throws: an error of a part or a lane that failed, once the others are done.
    func poll() async throws {
        let alarm = self.dispatcher.alarms.retries
        var failure: (any Error)?
        for keys in self.dispatcher.share.parts {
            let part = self.dispatcher.live.with(keys)
            do {
                let waiting = try await part.retries.waiting(of: self.deliveries.map(\.provider))
                for service in self.deliveries where waiting.contains(service.provider) {
                    let moved = await self.move(service, in: part)
                    failure = moved.failure ?? failure
                    if let next = moved.next { alarm.schedule(at: next) }
                }
            } catch {
                // The other parts may be on servers that answer.
                failure = error
                alarm.schedule(at: self.dispatcher.now())
            }
        }
        if let failure { throw failure }
    }

    /// Moves one provider's due deliveries in a part, the urgent lanes first.
    ///
    /// - Returns: when to look again, nil if nothing waits; and a lane's failure.
    @discardableResult
    func move(_ service: DeliveriesService, in part: Live) async -> (next: Timestamp?, failure: (any Error)?) {
        let apps = self.dispatcher.channels.apps(of: service.provider)
        let retries = Source(nil, service.health.state(of: apps, now: self.dispatcher.now()))
        var moments: [Timestamp] = []
        var failure: (any Error)?
        for lane in Lane.allCases {
            do {
                let held = try await self.heldSources(service, lane, apps: apps, in: part)
                try await self.move([retries] + held, of: service, lane, in: part)
                moments += ([retries] + held).compactMap(\.openUntil)
                // The retries of an open breaker are due, but wait.
                guard retries.openUntil == nil else { continue }
                let due = try await part.retries.firstDue(
                    provider: service.provider, lane: lane,
                    held: held.filter { $0.openUntil == nil }.compactMap(\.scope))
                if let due { moments.append(due) }
            } catch {
                failure = error
                moments.append(self.dispatcher.now())
            }
        }
        return (moments.min(), failure)
    }

    /// Returns the sources of apps and services with held-back deliveries.
    ///
    /// Their order is random, because a small room may not reach the last one.
    ///
    /// - Parameter apps: the apps that exist. All deliveries of removed apps are moved, since no
    ///   call probes for those.
    private func heldSources(
        _ service: DeliveriesService,
        _ lane: Lane,
        apps: [String],
        in part: Live
    ) async throws(RedisError) -> [Source] {
        let now = self.dispatcher.now()
        var sources: [Source] = []
        for scope in try await part.retries.heldScopes(provider: service.provider, lane: lane).shuffled() {
            let isKnown = apps.contains(scope.app)
            let state = service.health.state(of: [scope.app], service: scope.service, now: now)
            sources.append(Source(scope, isKnown ? state : .closed))
        }
        return sources
    }

    /// Moves due deliveries from these sources in turn, so that a large backlog of one delays no
    /// other.
    private func move(
        _ sources: [Source],
        of service: DeliveriesService,
        _ lane: Lane,
        in part: Live
    ) async throws(RedisError) {
        var room = try await self.room(service, lane, in: part)
        var sources = sources.filter { $0.room > 0 }
        while !sources.isEmpty, room > 0 {
            // A small room is for the first sources; the others have the next turn.
            let asked = min(sources.count, room)
            let share = min(room / asked, Self.batchSize)
            let now = self.dispatcher.now()
            let moves = sources.prefix(asked).map { source in
                RetrySet.Move(
                    scope: source.scope, dueBy: source.openUntil == nil ? now : now - RetrySet.overdue,
                    limit: min(share, source.room))
            }
            let counts = try await part.retries.moveDue(moves, provider: service.provider, lane: lane)
            var rest: [Source] = []
            for (index, count) in counts.enumerated() {
                room -= count
                sources[index].room -= count
                if count == moves[index].limit, sources[index].room > 0 { rest.append(sources[index]) }
            }
            sources = sources.dropFirst(asked) + rest
        }
    }

    /// Returns how many deliveries a stream may get now.
    ///
    /// Even a full stream gets a few, so that new deliveries do not starve retries. Critical ones
    /// never wait.
    private func room(_ service: DeliveriesService, _ lane: Lane, in part: Live) async throws(RedisError) -> Int {
        guard lane != .critical else { return .max }
        let stream = part.keys.deliveries(service.provider, lane)
        let length = try await self.dispatcher.redis.send("XLEN", .text(stream)).integer()
        return max(service.fewestRetries, service.mostWaiting - Int(length))
    }
}
