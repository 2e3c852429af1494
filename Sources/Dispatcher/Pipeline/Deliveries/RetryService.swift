// Carillon · RetryService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import ServiceLifecycle
import Storage

/// Moves retries that are due, and what was held back untried, to their streams; any number of dispatchers may do so at once.
package struct RetryService: Service {
    /// Where something waits that may be moved.
    private struct Source {
        /// The app whose it is; nil for the retries of all.
        let app: String?
        /// How many more may be moved of it.
        var room: Int
    }

    /// What was left although it may be due.
    private struct Remains {
        var isEmpty = true
        /// The apps of which some was left.
        var apps: Set<String> = []
    }

    private static let interval: Duration = .milliseconds(250)
    private static let batchSize = 200
    /// Enough to find out whether a provider is back.
    private static let probes = 4

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]
    private let retries: RetrySet
    private let held: HeldSets

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
        self.retries = dispatcher.live.retries
        self.held = dispatcher.live.heldSets
    }

    package func run() async throws {
        while goesOn {
            for service in self.deliveries { await self.move(service) }
            // Redis tells nobody that a retry has come due, so it is asked.
            await pause(for: Self.interval)
        }
    }

    /// Moves what is due of one provider, the urgent first, as far as its failures leave room.
    func move(_ service: DeliveriesService) async {
        let apps = self.dispatcher.channels.apps(of: service.provider)
        let standing = service.health.standing(of: apps, now: self.dispatcher.now())
        if case .outOfUse = standing {
            // It would only come back.
            service.traffic.noteOutage(now: self.dispatcher.now())
            return
        }
        var remains = Remains()
        var isKnown = true
        for lane in Lane.allCases {
            do {
                let retries = Source(app: nil, room: standing == .probing ? Self.probes : .max)
                let held = try await self.heldSources(service, lane, apps: apps, &remains)
                try await self.move([retries] + held, of: service, lane, &remains)
            } catch {
                isKnown = false
                self.dispatcher.logger.warning("retries cannot be moved", metadata: ["error": "\(error)"])
            }
        }
        guard isKnown else { return }
        if remains.isEmpty { service.traffic.noteEmpty(now: self.dispatcher.now()) }
        service.traffic.noteEmpty(except: remains.apps, now: self.dispatcher.now())
    }

    /// The apps of which something is held back that may be moved, in any order, as not each may get its share every time.
    ///
    /// - Parameter apps: those that there are; of another one's everything is moved, as nobody finds out whether it is back.
    private func heldSources(
        _ service: DeliveriesService,
        _ lane: Lane,
        apps: [String],
        _ remains: inout Remains
    ) async throws(RedisError) -> [Source] {
        var sources: [Source] = []
        for app in try await self.held.apps(provider: service.provider, lane: lane).shuffled() {
            let now = self.dispatcher.now()
            var source = Source(app: app, room: .max)
            switch apps.contains(app) ? service.health.standing(of: [app], now: now) : .inUse {
            case .outOfUse:
                // It would only come back, and does not count as due.
                service.traffic.noteOutage(of: app, now: now)
                remains.apps.insert(app)
                continue
            case .probing: source.room = Self.probes
            case .inUse: break
            }
            if lane != .critical { source.room = min(source.room, service.traffic.allowance(of: app, now: now)) }
            sources.append(source)
        }
        return sources
    }

    /// Moves what is due of these by turns, so that much of one keeps nothing of another waiting.
    private func move(
        _ sources: [Source],
        of service: DeliveriesService,
        _ lane: Lane,
        _ remains: inout Remains
    ) async throws(RedisError) {
        // What is critical never waits for others' failures.
        var room = lane == .critical ? Int.max : service.traffic.allowance(now: self.dispatcher.now())
        var sources = sources
        while !sources.isEmpty {
            var next: [Source] = []
            let total = room
            let held = sources.count { $0.app != nil }
            for var source in sources {
                let share = Self.share(of: total, source, held: held, areAllHeld: held == sources.count)
                let limit = min(share, room, source.room, Self.batchSize)
                guard limit > 0 else {
                    remains.isEmpty = false
                    if let app = source.app { remains.apps.insert(app) }
                    continue
                }
                let moved = try await self.move(source, of: service, lane, limit: limit)
                room -= moved
                source.room -= moved
                if moved == limit { next.append(source) }
            }
            sources = next
        }
    }

    /// What one of several gets of what may be moved, at least one: retries a half, and each app the same of what was held back.
    private static func share(of room: Int, _ source: Source, held: Int, areAllHeld: Bool) -> Int {
        guard held > 0 else { return room }
        if source.app == nil { return room - room / 2 }
        return max(1, (areAllHeld ? room : room / 2) / held)
    }

    /// - Returns: how many were moved.
    private func move(
        _ source: Source,
        of service: DeliveriesService,
        _ lane: Lane,
        limit: Int
    ) async throws(RedisError) -> Int {
        let now = self.dispatcher.now()
        guard let app = source.app else {
            let moved = try await self.retries.moveDue(provider: service.provider, lane: lane, now: now, limit: limit)
            if lane != .critical { service.traffic.spend(moved) }
            return moved
        }
        let moved = try await self.held.moveDue(
            provider: service.provider, lane: lane, app: app, now: now, limit: limit)
        if lane != .critical { service.traffic.spend(moved, of: app) }
        return moved
    }
}
