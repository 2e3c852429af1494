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
        case markRead(MarkReadRequest)
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

    private static let batchSize = 256
    private static let mostProofs = 512
    private static let proofPause: Duration = .milliseconds(20)
    private static let requestWorkers = 8
    private static let loginWorkers = 8

    let configuration: SocketConfiguration
    let now: @Sendable () -> Timestamp
    let backend: any SocketBackend
    private let logger: Logger
    let loops: HubLoops
    let presence: HubPresence
    /// One per loop.
    private let backlogs: [LoopBacklog]
    private let openCount = Atomic<Int>(0)

    let openings: BatchQueue<(opening: SocketOpening, socket: LoopReference<SocketSession>, turn: OpeningTurn)>
    let requests = BatchQueue<SocketRequest>(capacity: 10_000)
    /// Apart from other requests, so that a stalled database does not block authentication.
    let logins = BatchQueue<SocketRequest>(capacity: 10_000)
    let catchUps = BatchQueue<
        (request: CatchUpRequest, socket: LoopReference<SocketSession>, resumption: Resumption?)
    >(capacity: 100_000)
    /// When it is full, a returning client gets some changes twice.
    let bookmarks = BatchQueue<SocketBookmark>(capacity: 200_000)
    private let proofs = BatchQueue<ReceiptProof>(capacity: 200_000)
    /// Proofs that PostgreSQL has and Redis still lacks, in a queue of their own so that new proofs
    /// need not wait while Redis is down.
    private let recordedProofs = BatchQueue<RecordedProofs>(capacity: 400)
    /// Users who have too many sockets; when it is full, their next socket reports them again.
    let excessSockets = BatchQueue<String>(capacity: 10_000)
    private let socketsOfUsers = Mutex<[ExactText: UserSockets]>([:])

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
        let loops = HubLoops(eventLoopGroup)
        self.loops = loops
        self.presence = HubPresence(
            loops: loops, audit: configuration.audit, backend: backend, logger: logger, now: now)
        self.backlogs = loops.eventLoops.map { _ in LoopBacklog(limit: configuration.changesPerLoop) }
        loops.start(self)
    }

    package var count: Int { self.openCount.load(ordering: .relaxed) }

    /// Returns the shard of a loop, for use on that loop; nil for a loop of another group.
    func shard(on eventLoop: any EventLoop) -> HubShard? { self.loops.shard(on: eventLoop) }

    /// Verifies the credentials of a request, and counts a refusal.
    ///
    /// - Throws: the answer to a refused request, or an error of `step`.
    func authenticate<Identity>(_ step: (any SocketBackend) async throws -> Identity) async throws -> Identity {
        do {
            return try await step(self.backend)
        } catch let refusal as SocketRefusal {
            throw refusal.counted()
        }
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
        if count > self.configuration.connectionsPerUser { self.offer(user.text, to: self.excessSockets) }
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
    /// - Returns: whether it was added.
    @discardableResult
    func offer<Element: Sendable>(_ element: Element, to queue: BatchQueue<Element>) -> Bool {
        let isAdded = queue.offer(element)
        if !isAdded { SocketMetrics.overflows.increment() }
        return isAdded
    }

    /// Queues proofs of receipt; if one is lost, its deadline passes and the push goes out.
    func enqueueProofs(_ proofs: [ReceiptProof]) {
        SocketMetrics.proofs.increment(by: proofs.count)
        let lost = proofs.count - self.proofs.offer(contentsOf: proofs)
        if lost > 0 { SocketMetrics.overflows.increment(by: lost) }
    }

    // MARK: From the node's subscription

    /// Delivers frames to this node's sockets, on the loops of their users.
    ///
    /// A loop that falls too far behind gets no frames until it has caught up; then all sockets
    /// catch up from their inboxes.
    package func deliver(_ frames: [NodeFrame]) {
        SocketMetrics.frames.increment(by: frames.count)
        for (loop, indices) in self.route(frames).enumerated() where !indices.isEmpty {
            let (eventLoop, backlog) = (self.loops.eventLoops[loop], self.backlogs[loop])
            guard backlog.admit(indices.count) else {
                SocketMetrics.shed.increment(by: indices.count)
                continue
            }
            eventLoop.execute {
                self.shard(on: eventLoop)?.deliver(frames, at: indices)
                if backlog.release(indices.count) { self.catchUpAll() }
            }
        }
    }

    /// Finds the indices of each loop's frames, and records the users who have no socket here.
    ///
    /// A socket that is counted after this reads its inbox later, so it gets the change from there.
    private func route(_ frames: [NodeFrame]) -> [[Int]] {
        var indices = [[Int]](repeating: [], count: self.loops.eventLoops.count)
        self.socketsOfUsers.withLock { users in
            for index in frames.indices {
                let sockets = frames[index].everyoneBut == nil ? users[frames[index].user] : UserSockets.everyone
                guard let sockets else {
                    self.presence.recordGhost(frames[index].user.text)
                    continue
                }
                for loop in indices.indices where sockets.mayBe(on: loop) { indices[loop].append(index) }
            }
        }
        return indices
    }

    /// Counts frames that came too late to be shown; the next ``catchUpAll()`` sends them.
    package func skip(_ count: Int) {
        SocketMetrics.frames.increment(by: count)
        SocketMetrics.shed.increment(by: count)
    }

    /// Closes the sockets of users whose tokens were issued before a moment.
    package func revoke(_ revocations: [(user: String, before: Timestamp)]) {
        guard !revocations.isEmpty, self.count > 0 else { return }
        self.loops.onEach { $0.revoke(revocations) }
    }

    /// Registers every socket again and sends what each has missed, after the node was cut off.
    package func catchUpAll() { self.presence.reregisterAll() }

    // MARK: Tasks

    package func run() async throws {
        await withGracefulShutdownHandler {
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<2 { group.addTask { await self.serveOpenings() } }
                for _ in 0..<Self.requestWorkers { group.addTask { await self.serve(self.requests) } }
                for _ in 0..<Self.loginWorkers { group.addTask { await self.serve(self.logins) } }
                group.addTask { await self.serveCatchUps() }
                group.addTask { await self.serveProofs() }
                group.addTask { await self.serveRecordedProofs() }
                group.addTask { await self.presence.run() }
                group.addTask { await self.serveExcessSockets() }
                group.addTask { await self.serveBookmarks() }
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
        self.loops.onEach { $0.drain(over: duration) }
        let deadline = ContinuousClock.now + duration + .seconds(6)
        // Sockets leave on their own loops without a signal, so poll their count.
        while self.count > 0, ContinuousClock.now < deadline {
            // In its own task, because a cancelled one does not sleep.
            _ = await Task { try? await Task.sleep(for: .milliseconds(20)) }.value
        }
        for eventLoop in self.loops.eventLoops {
            _ = await self.loops.ask(eventLoop) { shard in
                shard.dropAll()
                shard.stop()
            }
        }
        self.openings.finish()
        self.requests.finish()
        self.logins.finish()
        self.catchUps.finish()
        self.proofs.finish()
        self.excessSockets.finish()
        self.presence.finish()
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
        self.presence.disconnected(user: opening.user, connection: opening.connection)
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
        case .markRead(let request):
            do {
                let count = try await self.backend.markRead(request)
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

    private func serveCatchUps() async {
        while let waiting = await self.catchUps.next(limit: Self.batchSize) {
            // A resumption may read hundreds of rows, so a batch has one of each user.
            var resuming: Set<ExactText> = []
            let batch = waiting.filter { catchUp in
                catchUp.resumption == nil || resuming.insert(ExactText(catchUp.request.user)).inserted
                    || !self.catchUps.offer(catchUp)
            }
            do {
                let snapshots = try await self.backend.changes(batch.map(\.request))
                for (catchUp, snapshot) in zip(batch, snapshots) {
                    if snapshot != nil { SocketMetrics.filled.increment() }
                    let resumption = catchUp.resumption
                    catchUp.socket.call { $0.caughtUp(snapshot, answering: resumption) }
                }
            } catch {
                self.logger.warning("cannot read missed changes; sockets will retry", metadata: ["error": "\(error)"])
                for catchUp in batch {
                    let resumption = catchUp.resumption
                    catchUp.socket.call { $0.catchUpFailed(resumption) }
                }
                // The sockets retry at once, so pause before the next read.
                try? await Task.sleep(for: .milliseconds(200))
            }
        }
    }

    /// Records proofs of receipt; if one is lost, its deadline passes and the push goes out.
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
                await self.backend.settle(recorded)
            }
        }
    }

    /// Records bookmarks; a client whose bookmark is lost gets repeats.
    private func serveBookmarks() async {
        while let batch = await self.bookmarks.next(limit: 512) {
            await self.persist("bookmarks", tries: 3, count: batch.count) { try await self.backend.store(batch) }
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

    /// Closes the oldest sockets of users who have too many.
    ///
    /// The newest socket is the one in use; an old one often belongs to a client that has gone.
    private func serveExcessSockets() async {
        while let batch = await self.excessSockets.next(limit: Self.batchSize) {
            for user in ExactText.distinct(batch) {
                var sockets: [(openedAt: NIODeadline, reference: LoopReference<SocketSession>)] = []
                for eventLoop in self.loops.eventLoops {
                    sockets += await self.loops.ask(eventLoop) { $0.openSockets(of: user) } ?? []
                }
                let excess = sockets.count - self.configuration.connectionsPerUser
                guard excess > 0 else { continue }
                for (_, reference) in sockets.sorted(by: { $0.openedAt < $1.openedAt }).prefix(excess) {
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

/// Counts the frames queued on an event loop and sheds load above a limit.
///
/// Once the limit is reached, nothing passes until the loop has drained its queue: the sockets read
/// the shed changes from their inboxes, and would only hold later ones.
final class LoopBacklog: Sendable {
    private struct State {
        var waiting = 0
        var isShedding = false
    }

    private let limit: Int
    private let state = Mutex(State())

    init(limit: Int) {
        self.limit = limit
    }

    /// Admits frames; false if the queue is full or still draining after it was.
    func admit(_ count: Int) -> Bool {
        self.state.withLock { state in
            if state.waiting > 0, state.isShedding || state.waiting + count > self.limit {
                state.isShedding = true
                return false
            }
            state.waiting += count
            return true
        }
    }

    /// Releases frames that the loop has handled.
    ///
    /// - Returns: true if the queue is now empty and frames were shed before.
    func release(_ count: Int) -> Bool {
        self.state.withLock { state in
            state.waiting -= count
            guard state.waiting == 0, state.isShedding else { return false }
            state.isShedding = false
            return true
        }
    }
}
