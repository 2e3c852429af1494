// Carillon · RunningHub.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import NIOCore
import NIOPosix
import Support
import Synchronization

@testable import Sockets

/// A hub of one loop whose tasks run, over a given backend.
final class RunningHub: Sendable {
    let hub: SocketHub
    let eventLoop: any EventLoop

    private init(
        _ backend: ScriptedBackend, _ configuration: SocketConfiguration, now: @escaping @Sendable () -> Timestamp
    ) {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        self.eventLoop = eventLoop
        self.hub = SocketHub(
            eventLoopGroup: eventLoop,
            configuration: configuration,
            backend: backend,
            logger: Logger(label: "test"),
            now: now
        )
    }

    /// Runs `body`, then opens the gate at which the backend may still wait, and ends the sockets
    /// and the hub.
    static func with(
        _ backend: ScriptedBackend,
        gate: Gate = Gate(),
        now: @escaping @Sendable () -> Timestamp = { Timestamp(seconds: 1_795_000_000) },
        _ change: (inout SocketConfiguration) -> Void = { _ in },
        _ body: (RunningHub) async throws -> Void
    ) async throws {
        var configuration = SocketConfiguration()
        change(&configuration)
        let running = RunningHub(backend, configuration, now: now)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await running.hub.run() }
            try await withCleanUp {
                await gate.open()
                await running.end()
            } _: {
                try await body(running)
            }
            group.cancelAll()
        }
    }

    /// Opens a socket; authenticated if a user is given.
    func open(_ user: String?, connection: String = "c", client: String? = nil) async throws -> LiveSocket {
        try await LiveSocket.open(user, connection: connection, client: client, of: self.hub, on: self.eventLoop)
    }

    /// Drops the sockets, for which the hub would wait.
    private func end() async {
        let (eventLoop, hub) = (self.eventLoop, self.hub)
        try? await eventLoop.submit {
            guard let shard = hub.shard(on: eventLoop) else { return }
            shard.dropAll()
        }.get()
    }
}

/// A socket of a running hub, and what it wrote.
struct LiveSocket: Sendable {
    private let bound: NIOLoopBound<(session: SocketSession, wire: RecordingWire)>

    /// Opens a socket on one of the hub's loops; authenticated if a user is given.
    static func open(
        _ user: String?, connection: String = "c", client: String? = nil, of hub: SocketHub,
        on eventLoop: any EventLoop
    ) async throws -> LiveSocket {
        try await eventLoop.submit {
            guard let shard = hub.shard(on: eventLoop) else { throw ChannelError.operationUnsupported }
            let session = SocketSession(
                connection: connection,
                identity: user.map { SocketIdentity(user: $0, expiresAt: nil) },
                since: nil,
                client: client,
                shard: shard
            )
            let wire = RecordingWire(.native)
            wire.onDrop = { [weak session] in session?.end() }
            session.begin(wire)
            return LiveSocket(session, wire, eventLoop: eventLoop)
        }.get()
    }

    /// Called on the loop.
    init(_ session: SocketSession, _ wire: RecordingWire, eventLoop: any EventLoop) {
        self.bound = NIOLoopBound((session: session, wire: wire), eventLoop: eventLoop)
    }

    /// Calls `body` on the loop.
    func on<Answer: Sendable>(
        _ body: @escaping @Sendable (SocketSession, RecordingWire) -> Answer
    ) async throws -> Answer {
        let bound = self.bound
        return try await bound.eventLoop.submit { body(bound.value.session, bound.value.wire) }.get()
    }

    /// Sends a message as the client.
    func say(_ message: ClientMessage, reference: String? = nil) async throws {
        let reference = reference.map { Array($0.utf8) }
        try await self.on { session, _ in session.handle(message, reference: reference) }
    }

    /// Waits for the first sync.
    func synced() async throws -> LiveSocket {
        try await eventually("it is synced") { try await self.on { _, wire in !wire.syncs.isEmpty } }
        return self
    }
}

extension SocketBookmark {
    var hasLeft: Bool { self.lastHeard != nil }
}

/// A backend that follows a test's script; by default, inboxes stay at version 4.
struct ScriptedBackend: SocketBackend {
    static let version: Int64 = 4

    var onAuthenticate: @Sendable (String) async throws -> SocketIdentity = {
        SocketIdentity(user: $0, expiresAt: nil)
    }
    var onOpen: @Sendable () async throws -> Void = {}
    /// Whether the server with a user's presence is away.
    var isAway: @Sendable (String) -> Bool = { _ in false }
    var onChanges: @Sendable ([CatchUpRequest]) async throws -> Void = { _ in }
    /// The inbox of a new connection, if it is not empty.
    var opened: (@Sendable (SocketOpening) -> InboxSnapshot)?
    /// The changes of an inbox, if there are any.
    var changed: (@Sendable (CatchUpRequest) -> InboxSnapshot)?
    var onRegistration: @Sendable ([SocketRegistration]) -> Void = { _ in }
    /// Called with the connections' ids.
    var onRegister: @Sendable ([String]) async throws -> Void = { _ in }
    var onClose: @Sendable ([String]) async throws -> Void = { _ in }
    /// Called with the users.
    var onMarkSeen: @Sendable ([String]) async throws -> Void = { _ in }
    var onNote: @Sendable ([SocketBookmark]) -> Void = { _ in }
    /// Called with the users; by default, presence cannot be read.
    var onRegistered: @Sendable ([String]) async throws -> [[String]?] = { $0.map { _ in nil } }
    var onConfirm: @Sendable ([ReceiptProof]) async -> Void = { _ in }
    var onSettle: @Sendable (RecordedProofs) async -> Void = { _ in }
    var onSetStates: @Sendable ([PresenceChange]) async throws -> Void = { _ in }
    var onMarkRead: @Sendable () async throws -> Void = {}
    var onUnread: @Sendable () async throws -> Void = {}
    /// Whether a user's messages are within the rate.
    var onAdmits: @Sendable (String) -> Bool = { _ in true }
    /// Whether a user's new sockets are within the rate.
    var onAdmitsOpening: @Sendable (String) -> Bool = { _ in true }

    func authenticate(token: String) async throws -> SocketIdentity { try await self.onAuthenticate(token) }
    func authenticate(_ credentials: PresentedCredentials) async throws -> SocketIdentity? {
        credentials.ticket.map { SocketIdentity(user: $0, expiresAt: nil) }
    }

    func open(_ openings: [SocketOpening]) async throws -> [InboxSnapshot?] {
        try await self.onOpen()
        return openings.map { opening in
            if self.isAway(opening.user) { return nil }
            return self.opened?(opening) ?? InboxSnapshot(version: Self.version, unread: 0, total: 0)
        }
    }

    func store(_ bookmarks: [SocketBookmark]) async throws { self.onNote(bookmarks) }

    func close(_ connections: [SocketDeparture]) async throws -> [Bool] {
        try await self.onClose(connections.map(\.connection))
        return connections.map { !self.isAway($0.user) }
    }

    func markSeen(_ departures: [SocketDeparture]) async throws { try await self.onMarkSeen(departures.map(\.user)) }
    func registered(_ users: [String], renews: Bool) async throws -> [[String]?] {
        try await self.onRegistered(users)
    }

    func register(_ connections: [SocketRegistration]) async throws -> [Bool] {
        self.onRegistration(connections)
        try await self.onRegister(connections.map(\.connection))
        return connections.map { !self.isAway($0.user) }
    }

    func changes(_ requests: [CatchUpRequest]) async throws -> [InboxSnapshot?] {
        try await self.onChanges(requests)
        return requests.map { request in
            if let changed { return changed(request) }
            let isUnchanged = request.since == Self.version && !request.wantsAnswer
            return isUnchanged ? nil : InboxSnapshot(version: Self.version, unread: 0, total: 0)
        }
    }

    func confirm(_ proofs: [ReceiptProof]) async throws -> RecordedProofs {
        await self.onConfirm(proofs)
        return RecordedProofs(proofs, events: [])
    }

    func settle(_ recorded: RecordedProofs) async { await self.onSettle(recorded) }
    func setStates(_ changes: [PresenceChange]) async throws { try await self.onSetStates(changes) }
    func admits(messages: Int, of user: String) -> Bool { self.onAdmits(user) }
    func admitsOpening(of user: String) -> Bool { self.onAdmitsOpening(user) }
    func markRead(_ request: MarkReadRequest) async throws -> Int32 {
        try await self.onMarkRead()
        return 0
    }

    func unreadCount(user: String) async throws -> Int32 {
        try await self.onUnread()
        return 0
    }
}

/// Records elements in order.
final class Notes<Element: Sendable>: Sendable {
    private let noted = Mutex<[Element]>([])

    var all: [Element] { self.noted.withLock { $0 } }
    func note(_ elements: [Element]) { self.noted.withLock { $0 += elements } }
}
