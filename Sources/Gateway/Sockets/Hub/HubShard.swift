// Carillon · HubShard.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import DequeModule
import NIOCore

/// The sockets of one event loop.
///
/// Confined to that loop: every call runs on it, and frames need no lock.
final class HubShard {
    /// A batch of events for everyone, and the sockets that have yet to get it.
    private struct EventRound {
        let events: [(change: LoopChange, at: NIODeadline)]
        var sockets: ArraySlice<SocketSession>
    }

    /// The most events that a socket gets in one write.
    private static let eventsPerRound = 32
    /// The most deliveries (events times sockets) in one turn of the loop.
    private static let deliveriesPerTurn = 10_000

    let eventLoop: any EventLoop
    let configuration: SocketConfiguration
    /// The index of the loop among the hub's loops.
    private let index: Int
    private let hub: SocketHub
    private var sockets: [ObjectIdentifier: SocketSession] = [:]
    private var byUser: [ExactText: [SocketSession]] = [:]
    private var holding: [ObjectIdentifier: SocketSession] = [:]
    /// The proofs of this turn of the loop.
    private var proofs: [ReceiptProof] = []
    private var ticks: [RepeatedTask] = []
    private var stallGuard = StallGuard()
    private let joins = FrameJoins()
    /// Events for everyone that wait for the next round, with their arrival times.
    private var events: Deque<(frame: NodeFrame, at: NIODeadline)> = []
    private var round: EventRound?
    private var isDraining = false

    init(eventLoop: any EventLoop, index: Int, hub: SocketHub) {
        self.eventLoop = eventLoop
        self.index = index
        self.hub = hub
        self.configuration = hub.configuration
    }

    /// Starts the loop's two timers, which serve all of its sockets.
    func start() {
        let bound = NIOLoopBound(self, eventLoop: self.eventLoop)
        self.ticks = [
            self.eventLoop.scheduleRepeatedTask(initialDelay: .seconds(1), delay: .seconds(1)) { _ in
                bound.value.tick()
            },
            self.eventLoop.scheduleRepeatedTask(initialDelay: .milliseconds(50), delay: .milliseconds(50)) { _ in
                bound.value.catchUpOverdue()
            },
        ]
    }

    func stop() {
        for tick in self.ticks { tick.cancel() }
    }

    // MARK: Sockets

    func add(_ socket: SocketSession) {
        self.sockets[ObjectIdentifier(socket)] = socket
        self.hub.socketAdded()
        if let identity = socket.identity { self.identified(socket, identity: identity) }
        if self.isDraining { socket.sayGoodbye(reconnectAfter: self.spreadDelay()) }
    }

    func identified(_ socket: SocketSession, identity: SocketIdentity) {
        let key = ExactText(identity.user)
        self.byUser[key, default: []].append(socket)
        self.hub.identified(key, on: self.index)
    }

    func remove(_ socket: SocketSession) {
        guard self.sockets.removeValue(forKey: ObjectIdentifier(socket)) != nil else { return }
        self.holding[ObjectIdentifier(socket)] = nil
        self.hub.socketRemoved()
        guard let user = socket.identity?.user else { return }
        let key = ExactText(user)
        self.byUser[key]?.removeAll { $0 === socket }
        if self.byUser[key]?.isEmpty == true { self.byUser[key] = nil }
        self.hub.left(key)
        if socket.isRegistered { self.departed(socket, user: user) }
        // The bookmark that was recorded when the client went away may be used up already, so do
        // not store it again.
        if let bookmark = socket.bookmark(hasLeft: true), !bookmark.repeats(socket.recorded?.bookmark) {
            self.enqueue(bookmark)
        }
    }

    func enqueue(_ bookmark: SocketBookmark) { self.hub.offer(bookmark, to: self.hub.bookmarks) }

    /// Removes the presence of a socket that has gone.
    func departed(_ socket: SocketSession, user: String) {
        self.hub.presence.disconnected(user: user, connection: socket.connection)
    }

    /// Registers a socket's presence and reads its inbox.
    func open(_ socket: SocketSession, identity: SocketIdentity, since: Int64?) {
        let opening = SocketOpening(
            user: identity.user,
            connection: socket.connection,
            dialect: socket.dialect,
            since: since,
            client: socket.client
        )
        let turn = OpeningTurn()
        guard self.hub.backend.admitsOpening(of: identity.user),
            self.hub.offer((opening: opening, socket: self.reference(socket), turn: turn), to: self.hub.openings)
        else { return socket.failed() }
        socket.turn = turn
    }

    /// Hands a request to the hub.
    ///
    /// - Returns: false if the queue is full.
    func request(_ kind: SocketRequest.Kind, of socket: SocketSession, reference: [UInt8]?) -> Bool {
        let request = SocketRequest(kind: kind, socket: self.reference(socket), reference: reference)
        switch kind {
        case .authenticate: return self.hub.offer(request, to: self.hub.logins)
        case .markRead, .unread: return self.hub.offer(request, to: self.hub.requests)
        }
    }

    /// Queues a read of the changes that a socket's inbox has had since a version.
    ///
    /// - Parameter resumption: the client's request that this answers, if there is one.
    /// - Returns: false if the queue is full; a caller that does not try again counts the overflow.
    func requestCatchUp(
        _ socket: SocketSession,
        user: String,
        since: Int64,
        answering resumption: Resumption? = nil
    ) -> Bool {
        var request = CatchUpRequest(user: user, dialect: socket.dialect, since: since)
        request.wantsAnswer = resumption != nil
        return self.hub.catchUps.offer((request: request, socket: self.reference(socket), resumption: resumption))
    }

    /// Queues the state of a socket for presence.
    func reportState(of socket: SocketSession, user: String) {
        let change = PresenceChange(
            user: user,
            connection: socket.connection,
            state: socket.state,
            since: socket.stateSince ?? self.hub.now()
        )
        self.hub.presence.changed(change)
    }

    /// Reports the states of connections again, as they are now; skips those that have left.
    func reportStates(of changes: [PresenceChange]) {
        let connections = Set(changes.map(\.connection))
        for user in ExactText.distinct(changes.map(\.user)) {
            for socket in self.byUser[ExactText(user)] ?? [] where connections.contains(socket.connection) {
                self.reportState(of: socket, user: user)
            }
        }
    }

    func now() -> Timestamp { self.hub.now() }

    func admits(messages: Int, of user: String) -> Bool { self.hub.backend.admits(messages: messages, of: user) }

    private func reference(_ socket: SocketSession) -> LoopReference<SocketSession> {
        LoopReference(socket, eventLoop: self.eventLoop)
    }

    /// Hands proofs to the hub together with all others of this turn of the loop.
    func enqueueProofs(_ proven: [ProofLedger.Awaited], of user: String) {
        guard !proven.isEmpty else { return }
        if self.proofs.isEmpty {
            let bound = NIOLoopBound(self, eventLoop: self.eventLoop)
            self.eventLoop.execute { bound.value.handOverProofs() }
        }
        let now = self.hub.now()
        for proof in proven {
            self.proofs.append(ReceiptProof(user: user, id: proof.id, awaitingLane: proof.lane, at: now))
        }
    }

    private func handOverProofs() {
        self.hub.enqueueProofs(self.proofs)
        self.proofs.removeAll(keepingCapacity: true)
    }

    // MARK: Frames

    /// Delivers the frames at the given indices of a batch in order, and flushes each socket that
    /// got one.
    ///
    /// Events for everyone follow.
    func deliver(_ frames: [NodeFrame], at indices: [Int]) {
        // Lists, because retaining a list is cheaper than retaining each of its sockets.
        var touched: [[SocketSession]] = []
        for index in indices {
            let frame = frames[index]
            guard frame.everyoneBut == nil else {
                self.enqueue(frame)
                continue
            }
            // The user's sockets may have left, or be on other loops.
            guard let sockets = self.byUser[frame.user] else { continue }
            let change = LoopChange(frame, joins: sockets.count > 1 ? self.joins : nil)
            for socket in sockets {
                socket.deliver(change)
                if socket.isHolding { self.holding[ObjectIdentifier(socket)] = socket }
            }
            touched.append(sockets)
        }
        // A second flush of the same socket has nothing to write, so it is cheap.
        for sockets in touched {
            for socket in sockets { socket.flush() }
        }
        self.joins.forget()
        if self.round == nil { self.deliverEvents() }
    }

    /// Queues an event for everyone; sheds it if too many wait.
    private func enqueue(_ event: NodeFrame) {
        let deliveries = self.configuration.eventDeliveries
        let most = min(self.configuration.changesPerLoop, deliveries / max(1, self.sockets.count))
        guard self.events.count < most else { return SocketMetrics.shed.increment() }
        self.events.append((frame: event, at: .now()))
    }

    /// Delivers the waiting events, one round after the other.
    ///
    /// Many deliveries take several turns, so that the loop can also read, renew leases and deliver
    /// changes. Until the last one, ``round`` is set.
    private func deliverEvents() {
        var rest = Self.deliveriesPerTurn
        while var round = self.round ?? self.nextRound() {
            let sockets = round.sockets.prefix(rest / round.events.count)
            self.deliver(round.events, to: sockets)
            rest -= round.events.count * sockets.count
            round.sockets = round.sockets.dropFirst(sockets.count)
            self.round = round.sockets.isEmpty ? nil : round
            guard self.round == nil else {
                let bound = NIOLoopBound(self, eventLoop: self.eventLoop)
                // With a delay, because the loop runs immediate tasks before it reads its sockets.
                self.eventLoop.scheduleTask(in: .milliseconds(1)) { bound.value.deliverEvents() }
                return
            }
        }
    }

    /// Delivers events to the sockets that were open when they came, then flushes each socket once.
    private func deliver(_ events: [(change: LoopChange, at: NIODeadline)], to sockets: ArraySlice<SocketSession>) {
        for (event, at) in events {
            let excepted = event.frame.everyoneBut ?? []
            for socket in sockets where socket.openedAt <= at {
                guard let user = socket.identity?.user, !excepted.contains(ExactText(user)) else { continue }
                socket.deliver(event)
            }
        }
        for socket in sockets { socket.flush() }
        self.joins.forget()
    }

    private func nextRound() -> EventRound? {
        guard !self.events.isEmpty else { return nil }
        let events = self.events.prefix(Self.eventsPerRound).map { waiting in
            (change: LoopChange(waiting.frame, joins: self.joins), at: waiting.at)
        }
        self.events.removeFirst(events.count)
        return EventRound(events: events, sockets: Array(self.sockets.values)[...])
    }

    /// Closes the sockets whose token was issued before the moment, or does not say when it was
    /// issued.
    func revoke(_ revocations: [(user: String, before: Timestamp)]) {
        for (user, before) in revocations {
            for socket in self.byUser[ExactText(user)] ?? [] { socket.revoke(before: before) }
        }
    }

    // MARK: Time

    private func tick() {
        guard self.stallGuard.admitsRound(at: systemUptime()) else { return }
        let now = NIODeadline.now()
        let wallClock = self.hub.now()
        for socket in self.sockets.values { socket.tick(now: now, wallClock: wallClock) }
    }

    private func catchUpOverdue() {
        guard !self.holding.isEmpty else { return }
        let now = NIODeadline.now()
        for (key, socket) in self.holding {
            if socket.isHolding { socket.catchUpIfOverdue(now: now) } else { self.holding[key] = nil }
        }
    }

    /// The ids of a user's connections on this loop.
    func connections(of user: String) -> [String] {
        self.byUser[ExactText(user)]?.map(\.connection) ?? []
    }

    /// A user's sockets on this loop that are not closing, each with the time at which it opened.
    func openSockets(of user: String) -> [(openedAt: NIODeadline, reference: LoopReference<SocketSession>)] {
        let sockets = self.byUser[ExactText(user)]?.filter { $0.phase != .closing } ?? []
        return sockets.map { ($0.openedAt, self.reference($0)) }
    }

    /// All open sockets.
    var connected: [ObjectIdentifier] { Array(self.sockets.keys) }

    /// The current state of the given sockets; skips those that closed or are not registered yet.
    func registrations(of sockets: [ObjectIdentifier]) -> [OpenSocket] {
        sockets.compactMap { socket in self.sockets[socket].flatMap { self.entry($0) } }
    }

    private func entry(_ socket: SocketSession) -> OpenSocket? {
        guard let identity = socket.identity, socket.isRegistered else { return nil }
        return OpenSocket(
            socket: ObjectIdentifier(socket),
            registration: SocketRegistration(
                user: identity.user,
                connection: socket.connection,
                dialect: socket.dialect,
                since: self.hub.now(),
                state: socket.state,
                stateSince: socket.stateSince
            ),
            lastVersion: socket.lastVersion
        )
    }

    /// Corrects presence after sockets were registered again.
    ///
    /// Removes sockets that left meanwhile. The others read what they missed, and report their
    /// state if it has changed.
    func reconcile(_ sockets: [OpenSocket]) {
        for entry in sockets {
            let registration = entry.registration
            guard let socket = self.sockets[entry.socket], socket.connection == registration.connection else {
                // The departure may have been recorded before the registration.
                self.hub.presence.disconnected(user: registration.user, connection: registration.connection)
                continue
            }
            socket.missedChanges()
            // Queued from the loop, so it precedes any later message of the client.
            if socket.state != registration.state || socket.stateSince != registration.stateSince {
                self.reportState(of: socket, user: registration.user)
            }
        }
    }

    // MARK: End

    /// A reconnect delay that spreads a node's clients over ten seconds.
    func spreadDelay() -> Duration {
        .milliseconds(Int.random(in: 500...10_000))
    }

    /// Says goodbye to all sockets, spread over `duration`.
    func drain(over duration: Duration) {
        self.isDraining = true
        let sockets = Array(self.sockets.values)
        guard !sockets.isEmpty else { return }
        let step = duration.inMicroseconds / Int64(sockets.count)
        for (index, socket) in sockets.enumerated() {
            let bound = NIOLoopBound(socket, eventLoop: self.eventLoop)
            let delay = self.spreadDelay()
            self.eventLoop.scheduleTask(in: .microseconds(step * Int64(index))) {
                bound.value.sayGoodbye(reconnectAfter: delay)
            }
        }
    }

    /// Drops the sockets that did not leave.
    func dropAll() {
        for socket in self.sockets.values { socket.drop() }
    }
}

/// An open socket, with the registration that presence should have.
struct OpenSocket: Sendable {
    let socket: ObjectIdentifier
    let registration: SocketRegistration
    let lastVersion: Int64?
}
