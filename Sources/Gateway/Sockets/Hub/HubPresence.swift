// Carillon · HubPresence.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import NIOCore
import ServiceLifecycle
import Synchronization

/// Keeps the presence of a hub's sockets in Redis: removes those that leave, records states, and
/// registers again those that were lost.
///
/// The opening of a socket registers it first.
final class HubPresence: Sendable {
    private static let batchSize = 256
    /// The delay before departures and states that Redis did not accept are sent again.
    private static let retryPause: Duration = .milliseconds(500)

    private let loops: HubLoops
    private let auditInterval: Duration
    private let backend: any SocketBackend
    private let logger: Logger
    private let now: @Sendable () -> Timestamp

    private let departures = BatchQueue<SocketDeparture>(capacity: 200_000)
    /// Departures that Redis did not accept.
    private let lateDepartures = BatchQueue<SocketDeparture>(capacity: 200_000)
    /// Departures whose presence is removed; each may have been the user's last visit.
    private let visits = BatchQueue<SocketDeparture>(capacity: 200_000)
    /// When it is full, a focus message is lost until the client sends the next.
    private let states = BatchQueue<PresenceChange>(capacity: 50_000)
    /// States that Redis did not accept, by connection.
    private let lateStates = Mutex<[String: PresenceChange]>([:])
    private let reregistrations = BatchQueue<Void>(capacity: 1)
    /// Users with presence that may be stale; when it is full, the next frame or audit reports them
    /// again.
    let ghosts = BatchQueue<String>(capacity: 10_000)

    init(
        loops: HubLoops,
        audit: Duration,
        backend: any SocketBackend,
        logger: Logger,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.loops = loops
        self.auditInterval = audit
        self.backend = backend
        self.logger = logger
        self.now = now
    }

    /// Queues the removal of a connection's presence.
    ///
    /// A departure that is lost leaves stale presence. The next audit removes it if the user has
    /// another socket here; otherwise, the next frame for the user does.
    func disconnected(user: String, connection: String) {
        let departure = SocketDeparture(user: user, connection: connection, at: self.now())
        if !self.departures.offer(departure) { SocketMetrics.overflows.increment() }
    }

    /// Queues the new state of a connection.
    func changed(_ change: PresenceChange) {
        if !self.states.offer(change) { SocketMetrics.overflows.increment() }
    }

    /// Records that a frame came for a user who has no socket here.
    func recordGhost(_ user: String) { _ = self.ghosts.offer(user) }

    /// Registers every socket again.
    func reregisterAll() { _ = self.reregistrations.offer(()) }

    // MARK: Tasks

    func run() async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                async let late: Void = self.serveLateDepartures()
                await self.serveDepartures()
                await late
                self.visits.finish()
            }
            group.addTask { await self.serveVisits() }
            group.addTask { await self.serveStates() }
            group.addTask { await self.serveGhosts() }
            group.addTask { await self.serveReregistrations() }
            group.addTask { await self.auditPresence() }
        }
    }

    /// Takes nothing more; what waits is still served.
    func finish() {
        self.reregistrations.finish()
        self.ghosts.finish()
        self.states.finish()
        self.departures.finish()
        self.lateDepartures.finish()
    }

    // MARK: Departures

    /// Removes the presence of closed sockets; what Redis does not accept becomes a late departure.
    private func serveDepartures() async {
        while let batch = await self.departures.next(limit: 512) {
            let kept = await self.remove(batch)
            // Log only the first failure; the others would flood the log.
            guard kept > 0, self.lateDepartures.count == kept else { continue }
            self.logger.warning("cannot remove presence of closed sockets: Redis is down or refuses writes; retrying")
        }
    }

    /// Retries late departures until Redis accepts them; new departures do not wait for them.
    private func serveLateDepartures() async {
        while let batch = await self.lateDepartures.next(limit: 512) {
            guard await self.remove(batch) > 0 else { continue }
            // Redis does not signal that it accepts writes again; once cancelled, do not try again.
            guard (try? await Task.sleep(for: Self.retryPause)) != nil else { return }
        }
    }

    /// Removes presence, and keeps the departures that Redis does not accept.
    ///
    /// - Returns: the number of those kept; 0 after the end of the queue.
    private func remove(_ departures: [SocketDeparture]) async -> Int {
        let late = (try? await self.close(departures)) ?? departures
        let kept = self.lateDepartures.offer(contentsOf: late)
        if kept < late.count { SocketMetrics.overflows.increment(by: late.count - kept) }
        return kept
    }

    /// Removes presence.
    ///
    /// - Returns: the departures whose Redis master is down.
    private func close(_ departures: [SocketDeparture]) async throws -> [SocketDeparture] {
        let areGone = try await self.backend.close(departures)
        let gone = zip(departures, areGone).filter { $1 }.map(\.0)
        let lost = gone.count - self.visits.offer(contentsOf: gone)
        if lost > 0 { SocketMetrics.unseen.increment(by: lost) }
        return zip(departures, areGone).filter { !$1 }.map(\.0)
    }

    /// Records the last visits of departed users; the removal of presence does not wait for it.
    private func serveVisits() async {
        while let batch = await self.visits.next(limit: 512) {
            do {
                try await self.backend.markSeen(batch)
            } catch {
                SocketMetrics.unseen.increment(by: batch.count)
            }
        }
    }

    // MARK: States

    /// Records states; if that fails, the shards report the states of these sockets again.
    private func serveStates() async {
        var nextWarning = ContinuousClock.now
        while let batch = await self.states.next(limit: Self.batchSize) {
            do {
                try await self.backend.setStates(batch)
            } catch {
                if ContinuousClock.now >= nextWarning {
                    nextWarning = ContinuousClock.now + .seconds(60)
                    self.logger.warning("cannot record focus changes; retrying", metadata: ["error": "\(error)"])
                }
                self.reportAgain(batch)
            }
        }
    }

    /// Has the shards report the states of these sockets again, each once however often it changed.
    private func reportAgain(_ changes: [PresenceChange]) {
        let isFirst = self.lateStates.withLock { late in
            defer { for change in changes { late[change.connection] = change } }
            return late.isEmpty
        }
        guard isFirst else { return }
        // Redis does not signal that it accepts writes again, so try again.
        self.loops.eventLoops[0].scheduleTask(in: TimeAmount(Self.retryPause)) {
            let late = self.lateStates.withLock { late in
                defer { late = [:] }
                return Array(late.values)
            }
            self.loops.onEach { $0.reportStates(of: late) }
        }
    }

    // MARK: Stale presence

    /// A connection that presence lists for this node.
    private typealias Listed = (user: String, connection: String)

    /// Removes stale presence.
    private func serveGhosts() async {
        while let batch = await self.ghosts.next(limit: Self.batchSize) {
            let users = ExactText.distinct(batch)
            guard !Task.isCancelled, let listed = try? await self.backend.registered(users, renews: false) else {
                continue
            }
            let ghosts = await self.withoutSocket(Self.pairs(users, listed))
            guard !ghosts.isEmpty else { continue }
            let now = self.now()
            let departures = ghosts.map { SocketDeparture(user: $0.user, connection: $0.connection, at: now) }
            guard let left = try? await self.close(departures) else { continue }
            SocketMetrics.ghosts.increment(by: ghosts.count - left.count)
        }
    }

    private static func pairs(_ users: [String], _ listed: [[String]?]) -> [Listed] {
        zip(users, listed).flatMap { user, connections in (connections ?? []).map { (user, $0) } }
    }

    /// Returns the connections that have no socket here.
    ///
    /// Read presence before this call: a socket that opens meanwhile then counts as here.
    private func withoutSocket(_ listed: [Listed]) async -> [Listed] {
        guard !listed.isEmpty else { return [] }
        let users = ExactText.distinct(listed.map(\.user))
        var here: Set<String> = []
        for eventLoop in self.loops.eventLoops {
            let found = await self.loops.ask(eventLoop) { shard in users.flatMap { shard.connections(of: $0) } }
            here.formUnion(found ?? [])
        }
        return listed.filter { !here.contains($0.connection) }
    }

    // MARK: Lost presence

    private func serveReregistrations() async {
        // Repeats failed registrations; other sockets and the next round do not wait for them.
        var retries: Task<Void, Never>?
        while await self.reregistrations.next(limit: 1) != nil {
            retries?.cancel()
            let batches = await self.batches()
            let count = batches.reduce(0) { $0 + $1.sockets.count }
            self.logger.info("registering all sockets again", metadata: ["sockets.open": "\(count)"])
            var failed: [LoopSockets] = []
            for batch in batches { failed.append(await self.reregister(batch)) }
            let rest = failed
            retries = Task { await self.reregisterLater(rest) }
        }
        retries?.cancel()
    }

    /// Sockets of one event loop.
    private struct LoopSockets: Sendable {
        let eventLoop: any EventLoop
        var sockets: [ObjectIdentifier]
    }

    /// All sockets, in batches of one event loop each.
    private func batches() async -> [LoopSockets] {
        var batches: [LoopSockets] = []
        for eventLoop in self.loops.eventLoops {
            let sockets = await self.loops.ask(eventLoop) { $0.connected } ?? []
            for start in stride(from: 0, to: sockets.count, by: Self.batchSize) {
                let batch = Array(sockets[start..<min(start + Self.batchSize, sockets.count)])
                batches.append(LoopSockets(eventLoop: eventLoop, sockets: batch))
            }
        }
        return batches
    }

    /// Tries again until all sockets are registered or have left.
    private func reregisterLater(_ sockets: [LoopSockets]) async {
        let backoff = Backoff(base: .milliseconds(200), limit: .seconds(2))
        var (rest, attempt) = (sockets.filter { !$0.sockets.isEmpty }, 0)
        while !rest.isEmpty {
            // Redis does not signal that a server is back, so try again.
            guard (try? await Task.sleep(for: backoff.ceiling(attempt: attempt))) != nil else { return }
            attempt += 1
            for index in rest.indices where !Task.isCancelled { rest[index] = await self.reregister(rest[index]) }
            rest.removeAll { $0.sockets.isEmpty }
        }
    }

    /// Registers a batch of sockets again in their current state; they read what they missed.
    ///
    /// - Returns: those whose registration failed.
    private func reregister(_ batch: LoopSockets) async -> LoopSockets {
        let entries = await self.loops.ask(batch.eventLoop) { $0.registrations(of: batch.sockets) } ?? []
        var failed = LoopSockets(eventLoop: batch.eventLoop, sockets: entries.map(\.socket))
        guard !entries.isEmpty, let areRegistered = try? await self.backend.register(entries.map(\.registration)) else {
            return failed
        }
        failed.sockets = zip(entries, areRegistered).filter { !$1 }.map(\.0.socket)
        let registered = zip(entries, areRegistered).filter { $1 }.map(\.0)
        // Some may have left meanwhile or changed focus, which the registration has overwritten.
        _ = await self.loops.ask(batch.eventLoop) { $0.reconcile(registered) }
        return failed
    }

    /// Compares presence with the sockets at intervals.
    ///
    /// A socket without presence gets no frames. A connection whose removal was lost still counts
    /// as active, so its user may get no attention calls.
    private func auditPresence() async {
        var round = 0
        while true {
            // Redis does not signal a lost registration, so poll.
            await cancelWhenGracefulShutdown { try? await Task.sleep(for: self.auditInterval) }
            if Task.isCancelled || Task.isShuttingDownGracefully { return }
            // Once an hour, as presence lasts a day.
            let renews = round % 12 == 0
            round += 1
            for batch in await self.batches() { await self.audit(batch, renews: renews) }
        }
    }

    /// Registers sockets again that presence does not list, and reports their users if it lists
    /// connections of theirs without a socket here.
    ///
    /// If presence cannot be read, the next round checks again.
    private func audit(_ batch: LoopSockets, renews: Bool) async {
        // Skips sockets that are still opening; their registration is under way.
        let open = await self.loops.ask(batch.eventLoop) { $0.registrations(of: batch.sockets) } ?? []
        let registered = open.filter { $0.lastVersion != nil }
        let users = ExactText.distinct(registered.map(\.registration.user))
        guard !users.isEmpty, let listed = try? await self.backend.registered(users, renews: renews) else { return }
        let here = Set(open.map(\.registration.connection))
        let others = Self.pairs(users, listed).filter { !here.contains($0.connection) }
        // ``serveGhosts()`` reads presence again: a departure may be under way.
        for ghost in await self.withoutSocket(others) { _ = self.ghosts.offer(ghost.user) }
        var presence: [ExactText: Set<String>] = [:]
        for case (let user, let connections?) in zip(users, listed) { presence[ExactText(user)] = Set(connections) }
        let missing = registered.filter { socket in
            let entry = socket.registration
            // Where a master of the cluster is down, the connections count as listed.
            return presence[ExactText(entry.user)]?.contains(entry.connection) == false
        }.map(\.socket)
        guard !missing.isEmpty else { return }
        // Skips those that have left meanwhile.
        let lost = await self.loops.ask(batch.eventLoop) { $0.registrations(of: missing) } ?? []
        guard !lost.isEmpty else { return }
        self.logger.warning(
            "open sockets had lost their registration; registering them again",
            metadata: ["sockets.lost": "\(lost.count)"]
        )
        _ = await self.reregister(LoopSockets(eventLoop: batch.eventLoop, sockets: lost.map(\.socket)))
    }
}
