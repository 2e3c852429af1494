// Carillon · SocketHub.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import NIOCore
import ServiceLifecycle
import Synchronization

/// A request of a socket to the backend.
struct SocketRequest: Sendable {
    enum Kind: Sendable {
        case authenticate(token: String)
        case markRead(Reading)
        case unread(user: String)
    }

    let kind: Kind
    let socket: LoopReference<SocketSession>
    /// Returned with the answer, in JSON.
    let reference: [UInt8]?
}

/// The turn of a socket that waits to be opened: the hub takes it, or the socket gives it up.
final class OpeningTurn: Sendable {
    private enum State: UInt8, AtomicRepresentable {
        case waiting, taken, givenUp
    }

    private let state = Atomic<State>(.waiting)

    var isTaken: Bool { self.state.load(ordering: .relaxed) == .taken }

    /// Returns false if the socket has given its turn up.
    func take() -> Bool { self.settle(.taken) }

    /// Has no effect once the turn is taken.
    func giveUp() { _ = self.settle(.givenUp) }

    private func settle(_ end: State) -> Bool {
        self.state.compareExchange(expected: .waiting, desired: end, ordering: .relaxed).exchanged
    }
}

/// All sockets of a node: one shard per event loop, and the tasks that call the backend for them.
package final class SocketHub: Service {
    /// A user's sockets on all loops.
    private struct UserSockets {
        var count = 0
        /// A bit for each loop that has had one of them; with more than 64 loops, some share a bit.
        var loops: UInt64 = 0

        static let everyone = UserSockets(loops: .max)

        func mayBe(on loop: Int) -> Bool { self.loops & (1 << (loop % 64)) != 0 }
    }

    static let batchSize = 256
    private static let mostProofs = 512
    private static let proofPause: Duration = .milliseconds(20)
    /// The delay before departures and states that Redis did not accept are sent again.
    private static let retryPause: Duration = .milliseconds(500)
    private static let requestWorkers = 8
    private static let loginWorkers = 8

    let configuration: SocketConfiguration
    let now: @Sendable () -> Timestamp
    let backend: any SocketBackend
    private let logger: Logger
    // The bound confines each shard to its loop, which fills the box.
    private let shards: [ObjectIdentifier: NIOLoopBoundBox<HubShard?>]
    let eventLoops: [any EventLoop]
    /// One per loop.
    private let backlogs: [LoopBacklog]
    private let openCount = Atomic<Int>(0)

    let openings: BatchQueue<(opening: SocketOpening, socket: LoopReference<SocketSession>, turn: OpeningTurn)>
    let requests = BatchQueue<SocketRequest>(capacity: 10_000)
    /// Apart from other requests, so that a stalled database does not block authentication.
    let logins = BatchQueue<SocketRequest>(capacity: 10_000)
    let gaps = BatchQueue<
        (question: InboxQuestion, reference: LoopReference<SocketSession>, resumption: Resumption?)
    >(capacity: 100_000)
    private let departures = BatchQueue<SocketDeparture>(capacity: 200_000)
    /// States that Redis did not accept, by connection.
    private let lateStates = Mutex<[String: PresenceChange]>([:])
    /// Departures that Redis did not accept.
    private let lateDepartures = BatchQueue<SocketDeparture>(capacity: 200_000)
    /// Departures whose presence is removed; each may have been the user's last visit.
    private let visits = BatchQueue<SocketDeparture>(capacity: 200_000)
    /// When it is full, a returning client gets some changes twice.
    let bookmarks = BatchQueue<SocketBookmark>(capacity: 200_000)
    private let proofs = BatchQueue<ReceiptProof>(capacity: 200_000)
    /// Proofs that PostgreSQL has and Redis still lacks, in a queue of their own so that new proofs
    /// need not wait while Redis is down.
    private let recordedProofs = BatchQueue<RecordedProofs>(capacity: 400)
    private let repairs = BatchQueue<Void>(capacity: 1)
    /// Users who got frames but have no socket here; when it is full, the next frame reports them
    /// again.
    let ghosts = BatchQueue<String>(capacity: 10_000)
    /// Users who have too many sockets; when it is full, their next socket reports them again.
    let crowds = BatchQueue<String>(capacity: 10_000)
    private let socketsOfUsers = Mutex<[ExactText: UserSockets]>([:])
    /// When it is full, a focus message is lost until the client sends the next.
    let presences = BatchQueue<PresenceChange>(capacity: 50_000)

    package init(
        eventLoopGroup: any EventLoopGroup,
        configuration: SocketConfiguration,
        backend: any SocketBackend,
        logger: Logger,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.configuration = configuration
        self.openings = BatchQueue(capacity: configuration.waitingOpenings)
        self.backend = backend
        self.logger = logger
        self.now = now
        self.eventLoops = Array(eventLoopGroup.makeIterator())
        self.backlogs = self.eventLoops.map { _ in LoopBacklog(limit: configuration.changesPerLoop) }
        var shards: [ObjectIdentifier: NIOLoopBoundBox<HubShard?>] = [:]
        for eventLoop in self.eventLoops {
            shards[ObjectIdentifier(eventLoop)] = NIOLoopBoundBox.makeBoxSendingValue(
                HubShard?.none, as: HubShard?.self, eventLoop: eventLoop)
        }
        self.shards = shards
        for (index, eventLoop) in self.eventLoops.enumerated() {
            eventLoop.execute {
                let shard = HubShard(eventLoop: eventLoop, index: index, hub: self)
                shard.start()
                self.shards[ObjectIdentifier(eventLoop)]?.value = shard
            }
        }
    }

    package var count: Int { self.openCount.load(ordering: .relaxed) }

    /// Returns the shard of a loop, for use on that loop; nil for a loop of another group.
    func shard(on eventLoop: any EventLoop) -> HubShard? {
        self.shards[ObjectIdentifier(eventLoop)]?.value
    }

    // MARK: From the shards

    func socketAdded() {
        SocketMetrics.accepted.increment()
        SocketMetrics.open.set(self.openCount.wrappingAdd(1, ordering: .relaxed).newValue)
    }

    func socketRemoved() {
        SocketMetrics.open.set(self.openCount.wrappingSubtract(1, ordering: .relaxed).newValue)
    }

    /// Counts a socket of a user on a loop; if the user has too many, the oldest will be closed.
    func identified(_ user: ExactText, on loop: Int) {
        let count = self.socketsOfUsers.withLock { users in
            var sockets = users[user] ?? UserSockets()
            sockets.count += 1
            sockets.loops |= 1 << (loop % 64)
            users[user] = sockets
            return sockets.count
        }
        if count > self.configuration.connectionsPerUser { self.offer(user.text, to: self.crowds) }
    }

    func left(_ user: ExactText) {
        self.socketsOfUsers.withLock { users in
            guard var sockets = users[user] else { return }
            sockets.count -= 1
            users[user] = sockets.count > 0 ? sockets : nil
        }
    }

    /// Adds an element to a queue, and counts it as lost if the queue is full.
    ///
    /// - Returns: Whether it was added.
    @discardableResult
    func offer<Element: Sendable>(_ element: Element, to queue: BatchQueue<Element>) -> Bool {
        let isAdded = queue.offer(element)
        if !isAdded { SocketMetrics.overflows.increment() }
        return isAdded
    }

    /// Queues the removal of a connection's presence.
    ///
    /// A departure that is lost leaves stale presence; the next frame for it finds no socket and
    /// removes it.
    func disconnected(user: String, connection: String) {
        self.offer(SocketDeparture(user: user, connection: connection, at: self.now()), to: self.departures)
    }

    /// Queues proofs of receipt; for a lost one the deadline passes, and push goes out.
    func prove(_ proofs: [ReceiptProof]) {
        SocketMetrics.proofs.increment(by: proofs.count)
        let lost = proofs.count - self.proofs.offer(contentsOf: proofs)
        if lost > 0 { SocketMetrics.overflows.increment(by: lost) }
    }

    // MARK: From the node's subscription

    /// Delivers changes to this node's sockets, on the loops of their users.
    ///
    /// A loop that falls too far behind gets no changes until it has caught up; then all sockets
    /// catch up from their inboxes.
    package func deliver(_ changes: [NodeFrame]) {
        SocketMetrics.frames.increment(by: changes.count)
        for (loop, places) in self.route(changes).enumerated() where !places.isEmpty {
            let (eventLoop, backlog) = (self.eventLoops[loop], self.backlogs[loop])
            guard backlog.take(places.count) else {
                SocketMetrics.shed.increment(by: places.count)
                continue
            }
            eventLoop.execute {
                self.shard(on: eventLoop)?.deliver(changes, at: places)
                if backlog.release(places.count) { self.repair() }
            }
        }
    }

    /// Finds the places of each loop's changes, and notes the users who have no socket here.
    ///
    /// A socket that is counted after this reads its inbox later, so it gets the change from there.
    private func route(_ changes: [NodeFrame]) -> [[Int]] {
        var places = [[Int]](repeating: [], count: self.eventLoops.count)
        self.socketsOfUsers.withLock { users in
            for place in changes.indices {
                let sockets = changes[place].everyoneBut == nil ? users[changes[place].user] : UserSockets.everyone
                guard let sockets else {
                    _ = self.ghosts.offer(changes[place].user.text)
                    continue
                }
                for loop in places.indices where sockets.mayBe(on: loop) { places[loop].append(place) }
            }
        }
        return places
    }

    /// Counts changes that came too late to be shown; the next repair sends them.
    package func skip(_ count: Int) {
        SocketMetrics.frames.increment(by: count)
        SocketMetrics.shed.increment(by: count)
    }

    /// Closes the sockets of users whose tokens were issued before a moment.
    package func revoke(_ revocations: [(user: String, before: Timestamp)]) {
        guard !revocations.isEmpty, self.count > 0 else { return }
        for eventLoop in self.eventLoops {
            eventLoop.execute { self.shard(on: eventLoop)?.revoke(revocations) }
        }
    }

    /// Registers every socket again and sends what each has missed, after the node was cut off.
    package func repair() {
        _ = self.repairs.offer(())
    }

    // MARK: Tasks

    package func run() async throws {
        await withGracefulShutdownHandler {
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<2 { group.addTask { await self.serveOpenings() } }
                for _ in 0..<Self.requestWorkers { group.addTask { await self.serve(self.requests) } }
                for _ in 0..<Self.loginWorkers { group.addTask { await self.serve(self.logins) } }
                group.addTask { await self.serveGaps() }
                group.addTask { await self.serveProofs() }
                group.addTask { await self.serveRecordedProofs() }
                group.addTask { await self.serveRepairs() }
                group.addTask { await self.auditPresence() }
                group.addTask {
                    async let late: Void = self.serveLateDepartures()
                    await self.serveDepartures()
                    await late
                    self.visits.finish()
                }
                group.addTask { await self.serveVisits() }
                group.addTask { await self.serveGhosts() }
                group.addTask { await self.serveCrowds() }
                group.addTask { await self.serveBookmarks() }
                group.addTask { await self.serveStates() }
                group.addTask {
                    try? await gracefulShutdown()
                    await self.drain()
                }
            }
        } onGracefulShutdown: {
            self.logger.info("draining sockets", metadata: ["sockets.open": "\(self.count)"])
        }
    }

    private func drain() async {
        let duration = self.configuration.drain
        for eventLoop in self.eventLoops {
            eventLoop.execute { self.shard(on: eventLoop)?.drain(over: duration) }
        }
        let deadline = ContinuousClock.now + duration + .seconds(6)
        // Sockets leave on their own loops without a signal, so poll their count.
        while self.count > 0, ContinuousClock.now < deadline {
            // In its own task, because a cancelled one does not sleep.
            _ = await Task { try? await Task.sleep(for: .milliseconds(20)) }.value
        }
        for eventLoop in self.eventLoops {
            _ = await self.ask(eventLoop) { shard in
                shard.dropAll()
                shard.stop()
            }
        }
        self.openings.finish()
        self.requests.finish()
        self.logins.finish()
        self.gaps.finish()
        self.proofs.finish()
        self.repairs.finish()
        self.ghosts.finish()
        self.crowds.finish()
        self.presences.finish()
        self.departures.finish()
        self.lateDepartures.finish()
        self.bookmarks.finish()
    }

    private func serveOpenings() async {
        while let waiting = await self.openings.next(limit: Self.batchSize) {
            // Skip sockets that have left: their clients come back, and old openings would delay
            // the new ones.
            let batch = waiting.filter { $0.turn.take() }
            guard !batch.isEmpty else { continue }
            do {
                let snapshots = try await self.backend.open(batch.map(\.opening))
                for ((opening, reference, _), snapshot) in zip(batch, snapshots) {
                    reference.call(
                        { socket in snapshot.map { socket.opened($0) } ?? socket.openingFailed() },
                        ifGone: { self.departed(opening) })
                }
                if snapshots.contains(where: { $0 == nil }) {
                    self.logger.warning("cannot open some sockets: a Redis master is down; clients will reconnect")
                }
            } catch {
                self.logger.warning("cannot open sockets; clients will reconnect", metadata: ["error": "\(error)"])
                for (opening, reference, _) in batch {
                    reference.call({ $0.openingFailed() }, ifGone: { self.departed(opening) })
                }
            }
        }
    }

    /// Removes presence again: the departure may have been recorded before the registration.
    private func departed(_ opening: SocketOpening) {
        self.disconnected(user: opening.user, connection: opening.connection)
    }

    private func serve(_ requests: BatchQueue<SocketRequest>) async {
        while let batch = await requests.next(limit: 1) {
            for request in batch { await self.serve(request) }
        }
    }

    private func serve(_ request: SocketRequest) async {
        let (socket, reference) = (request.socket, request.reference)
        switch request.kind {
        case .authenticate(let token):
            do {
                let identity = try await self.backend.authenticate(token: token)
                socket.call { $0.authenticated(identity, reference: reference) }
            } catch let refusal as SocketRefusal {
                socket.call { $0.refused(refusal, reference: reference) }
            } catch {
                socket.call { $0.failed() }
            }
        case .markRead(let reading):
            do {
                let count = try await self.backend.markRead(reading)
                socket.call { $0.answer(.read(unread: count), reference: reference) }
            } catch {
                socket.call { $0.answer(.busy("the change could not be made, try again"), reference: reference) }
            }
        case .unread(let user):
            do {
                let count = try await self.backend.unreadCount(user: user)
                socket.call { $0.answer(.unread(count), reference: reference) }
            } catch {
                socket.call { $0.answer(.busy("the count could not be read, try again"), reference: reference) }
            }
        }
    }

    private func serveGaps() async {
        while let waiting = await self.gaps.next(limit: Self.batchSize) {
            // A resumption may read hundreds of rows, so a batch has one of each user.
            var resuming: Set<ExactText> = []
            let batch = waiting.filter { gap in
                gap.resumption == nil || resuming.insert(ExactText(gap.question.user)).inserted
                    || !self.gaps.offer(gap)
            }
            do {
                let snapshots = try await self.backend.changes(batch.map(\.question))
                for (gap, snapshot) in zip(batch, snapshots) {
                    if snapshot != nil { SocketMetrics.filled.increment() }
                    let resumption = gap.resumption
                    gap.reference.call { $0.filled(snapshot, answering: resumption) }
                }
            } catch {
                self.logger.warning("cannot fill inbox gaps; sockets will retry", metadata: ["error": "\(error)"])
                for gap in batch {
                    let resumption = gap.resumption
                    gap.reference.call { $0.fillFailed(resumption) }
                }
                // The sockets retry at once, so pause before the next read.
                try? await Task.sleep(for: .milliseconds(200))
            }
        }
    }

    /// Records proofs of receipt; for a lost one the deadline passes, and push goes out.
    private func serveProofs() async {
        while let batch = await self.proofs.next(limit: Self.mostProofs) {
            await self.persist("proofs", tries: 20, count: batch.count) {
                let recorded = try await self.backend.confirm(batch)
                if !self.recordedProofs.offer(recorded) { SocketMetrics.overflows.increment(by: batch.count) }
            }
            // Lets proofs form a batch: one alone costs PostgreSQL as much as seven in a batch.
            if batch.count < Self.mostProofs { try? await Task.sleep(for: Self.proofPause) }
        }
        self.recordedProofs.finish()
    }

    /// Settles recorded proofs in Redis; new proofs do not wait for it.
    private func serveRecordedProofs() async {
        while let recorded = await self.recordedProofs.next(limit: 1)?.first {
            if Task.isCancelled {
                SocketMetrics.overflows.increment(by: recorded.proofs.count)
            } else {
                await self.backend.finish(recorded)
            }
        }
    }

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
    /// - Returns: The number of those kept; 0 after the end of the queue.
    private func remove(_ departures: [SocketDeparture]) async -> Int {
        let late = (try? await self.close(departures)) ?? departures
        let kept = self.lateDepartures.offer(contentsOf: late)
        if kept < late.count { SocketMetrics.overflows.increment(by: late.count - kept) }
        return kept
    }

    /// Removes presence.
    ///
    /// - Returns: The departures whose Redis master is down.
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

    /// Records bookmarks; a client whose bookmark is lost gets repeats.
    private func serveBookmarks() async {
        while let batch = await self.bookmarks.next(limit: 512) {
            await self.persist("bookmarks", tries: 3, count: batch.count) { try await self.backend.note(batch) }
        }
    }

    /// Records states; if that fails, the shards report the states of these sockets again.
    private func serveStates() async {
        var nextWarning = ContinuousClock.now
        while let batch = await self.presences.next(limit: Self.batchSize) {
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
        self.eventLoops[0].scheduleTask(in: TimeAmount(Self.retryPause)) {
            let late = self.lateStates.withLock { late in
                defer { late = [:] }
                return Array(late.values)
            }
            for eventLoop in self.eventLoops {
                eventLoop.execute { self.shard(on: eventLoop)?.reportStates(of: late) }
            }
        }
    }

    /// Records items with retries; if all fail, counts and logs them as lost.
    ///
    /// A cancelled task does not retry.
    func persist(
        _ items: String,
        tries: Int,
        count: Int,
        _ step: () async throws -> Void
    ) async {
        let backoff = Backoff(base: .milliseconds(20), limit: .seconds(1))
        for attempt in 0..<tries where !Task.isCancelled {
            do {
                return try await step()
            } catch {
                if attempt == 0 {
                    self.logger.warning("cannot record \(items); retrying", metadata: ["error": "\(error)"])
                }
            }
            // With jitter, so that gateways that failed together do not return together.
            try? await Task.sleep(for: backoff.delay(attempt: attempt))
        }
        SocketMetrics.overflows.increment(by: count)
        self.logger.warning("lost \(items) that could not be recorded", metadata: ["count": "\(count)"])
    }

    private func serveRepairs() async {
        // Repeats failed registrations; other sockets and the next repair do not wait for them.
        var retries: Task<Void, Never>?
        while await self.repairs.next(limit: 1) != nil {
            retries?.cancel()
            self.logger.info("registering all sockets again", metadata: ["sockets.open": "\(self.count)"])
            var failed: [LoopSockets] = []
            for batch in await self.batches() { failed.append(await self.repair(batch)) }
            let rest = failed
            retries = Task { await self.repairLater(rest) }
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
        for eventLoop in self.eventLoops {
            let sockets = await self.ask(eventLoop) { $0.connected } ?? []
            for start in stride(from: 0, to: sockets.count, by: Self.batchSize) {
                let batch = Array(sockets[start..<min(start + Self.batchSize, sockets.count)])
                batches.append(LoopSockets(eventLoop: eventLoop, sockets: batch))
            }
        }
        return batches
    }

    /// Repairs sockets until all are registered or have left.
    private func repairLater(_ sockets: [LoopSockets]) async {
        let backoff = Backoff(base: .milliseconds(200), limit: .seconds(2))
        var (rest, attempt) = (sockets.filter { !$0.sockets.isEmpty }, 0)
        while !rest.isEmpty {
            // Redis does not signal that a server is back, so try again.
            guard (try? await Task.sleep(for: backoff.ceiling(attempt: attempt))) != nil else { return }
            attempt += 1
            for index in rest.indices where !Task.isCancelled { rest[index] = await self.repair(rest[index]) }
            rest.removeAll { $0.sockets.isEmpty }
        }
    }

    /// Registers a batch of sockets again in their current state; they read what they missed.
    ///
    /// - Returns: those whose registration failed.
    private func repair(_ batch: LoopSockets) async -> LoopSockets {
        let entries = await self.ask(batch.eventLoop) { $0.registrations(of: batch.sockets) } ?? []
        var failed = LoopSockets(eventLoop: batch.eventLoop, sockets: entries.map(\.socket))
        guard !entries.isEmpty, let areRegistered = try? await self.backend.register(entries.map(\.registration)) else {
            return failed
        }
        failed.sockets = zip(entries, areRegistered).filter { !$1 }.map(\.0.socket)
        let registered = zip(entries, areRegistered).filter { $1 }.map(\.0)
        // Some may have left meanwhile or changed focus, which the registration has overwritten.
        _ = await self.ask(batch.eventLoop) { $0.reconcile(registered) }
        return failed
    }

    /// Checks at intervals that presence lists every socket; a socket without presence gets no
    /// frames.
    private func auditPresence() async {
        var round = 0
        while true {
            // Redis does not signal a lost registration, so poll.
            await cancelWhenGracefulShutdown { try? await Task.sleep(for: self.configuration.audit) }
            if Task.isCancelled || Task.isShuttingDownGracefully { return }
            // Once an hour, as presence lasts a day.
            let renews = round % 12 == 0
            round += 1
            for batch in await self.batches() { await self.audit(batch, renews: renews) }
        }
    }

    /// Registers sockets again that presence does not list.
    ///
    /// If presence cannot be read, the next round checks again.
    private func audit(_ batch: LoopSockets, renews: Bool) async {
        // Skips sockets that are still opening; their registration is under way.
        let open = await self.ask(batch.eventLoop) { $0.registrations(of: batch.sockets) } ?? []
        let registered = open.filter { $0.lastVersion != nil }
        guard !registered.isEmpty,
            let areThere = try? await self.backend.areRegistered(
                registered.map { ($0.registration.user, $0.registration.connection) }, renews: renews)
        else { return }
        let missing = zip(registered, areThere).filter { !$1 }.map(\.0.socket)
        guard !missing.isEmpty else { return }
        // Skips those that have left meanwhile.
        let lost = await self.ask(batch.eventLoop) { $0.registrations(of: missing) } ?? []
        guard !lost.isEmpty else { return }
        self.logger.warning(
            "open sockets had lost their registration; registering them again",
            metadata: ["sockets.lost": "\(lost.count)"]
        )
        _ = await self.repair(LoopSockets(eventLoop: batch.eventLoop, sockets: lost.map(\.socket)))
    }

    /// Runs a query on a loop's shard; nil if the loop has ended.
    private func ask<Answer: Sendable>(
        _ eventLoop: any EventLoop,
        _ question: @escaping @Sendable (HubShard) -> Answer
    ) async -> Answer? {
        try? await eventLoop.submit { self.shard(on: eventLoop).map(question) }.get()
    }
}

/// Work for all sockets of one user on this node.
extension SocketHub {
    /// Removes stale presence.
    ///
    /// Reads presence before it counts sockets, so a socket that opens meanwhile is not removed.
    func serveGhosts() async {
        while let batch = await self.ghosts.next(limit: Self.batchSize) {
            for user in ExactText.distinct(batch) where !Task.isCancelled {
                guard let registered = try? await self.backend.registered(user: user), !registered.isEmpty else {
                    continue
                }
                var here: Set<String> = []
                for eventLoop in self.eventLoops {
                    here.formUnion(await self.ask(eventLoop) { $0.connections(of: user) } ?? [])
                }
                let ghosts = registered.filter { !here.contains($0) }
                guard !ghosts.isEmpty else { continue }
                SocketMetrics.ghosts.increment(by: ghosts.count)
                let now = self.now()
                _ = try? await self.close(ghosts.map { SocketDeparture(user: user, connection: $0, at: now) })
            }
        }
    }

    /// Closes the oldest sockets of users who have too many.
    ///
    /// The newest socket is the one in use; an old one often belongs to a client that has gone.
    func serveCrowds() async {
        while let batch = await self.crowds.next(limit: Self.batchSize) {
            for user in ExactText.distinct(batch) {
                var crowd: [(openedAt: NIODeadline, reference: LoopReference<SocketSession>)] = []
                for eventLoop in self.eventLoops {
                    crowd += await self.ask(eventLoop) { $0.crowd(of: user) } ?? []
                }
                let excess = crowd.count - self.configuration.connectionsPerUser
                guard excess > 0 else { continue }
                for (_, reference) in crowd.sorted(by: { $0.openedAt < $1.openedAt }).prefix(excess) {
                    reference.call { socket in
                        guard socket.phase != .closing else { return }
                        SocketMetrics.crowded.increment()
                        socket.close(.tooManyConnections)
                        socket.flush()
                    }
                }
            }
        }
    }
}
