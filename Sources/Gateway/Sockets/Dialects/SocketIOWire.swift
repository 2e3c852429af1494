// Carillon · SocketIOWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Crypto
import NIOCore
import NIOHTTP1
import Protocols

/// The Socket.IO dialect over a Socket.IO connection: one session each time the default namespace
/// is joined.
final class SocketIOWire: SocketWire, SocketIOApplication {
    /// The most joins per connection; one more closes it.
    private static let maximumJoins = 20

    let dialect = Dialect.socketio
    private let shard: HubShard
    /// The token of the handshake, for clients whose join carries none.
    private let handshakeToken: String?
    private var connection: SocketIOConnection?
    private var session: SocketSession?
    /// The join that waits for its answer.
    private var ticket: SocketIOConnectRequest.Ticket?
    private var recovery: SocketIORecovery?
    /// The version up to which the client has everything.
    private var offset: Int64 = 0
    private var joins = 0
    /// The number of the last proof that was requested on this connection.
    private var lastProof: UInt64 = 0
    /// The last number that an earlier session used; each session counts from there.
    private var earlierProofs: UInt64 = 0
    /// Messages that the client sent outside any namespace, since the connection began.
    private var strayMessages = 0
    /// Counts the connections whose clients have left.
    private let idle: Budget
    private var isIdle = false
    private var isQuiescing = false

    init(shard: HubShard, handshakeToken: String?, idle: Budget) {
        self.shard = shard
        self.handshakeToken = handshakeToken
        self.idle = idle
    }

    private var offersRecovery: Bool { self.shard.configuration.recovery }

    // MARK: The connection

    func socketIOOpened(_ connection: SocketIOConnection) { self.connection = connection }
    func socketIOReadComplete() { self.session?.flush() }

    func socketIOProven(_ sequence: UInt64) {
        // A pong may come late, after its session has ended; it proves nothing of the next one.
        guard sequence > self.earlierProofs else { return }
        self.session?.proven(sequence - self.earlierProofs)
    }

    func socketIOHeard() -> Bool {
        if let session { return session.admitMessage() }
        self.strayMessages += 1
        guard self.strayMessages > self.shard.configuration.messageBurst else { return true }
        self.connection?.close(.forcedClose)
        return false
    }

    func socketIOIsTooSlow() {
        // `socketIOClosed` counts it.
        if let session { session.close(.tooSlow) } else { self.connection?.close(.tooMuchWaiting) }
    }

    func socketIOShouldQuiesce() {
        self.isQuiescing = true
        if self.session == nil { self.connection?.close(.serverShuttingDown) }
    }

    func socketIOClosed(_ reason: EngineIOCloseReason) {
        if reason == .tooMuchWaiting { SocketMetrics.slowReaders.increment() }
        self.endSession()
        self.endIdleness()
        self.connection = nil
    }

    private func endSession() {
        let session = self.session
        self.session = nil
        self.ticket = nil
        self.recovery = nil
        session?.end()
    }

    // MARK: Joining

    func socketIOConnectRequested(_ request: SocketIOConnectRequest) {
        guard request.namespace == SocketIOPacket.defaultNamespace else {
            self.connection?.refuse(request.ticket, message: SocketIOStateMachine.unknownNamespace)
            return
        }
        self.joins += 1
        guard self.joins <= Self.maximumJoins else {
            self.connection?.close(.forcedClose)
            return
        }
        self.endSession()
        self.earlierProofs = self.lastProof
        self.ticket = request.ticket
        guard let token = request.auth["token"]?.string ?? self.handshakeToken else {
            return self.refuse("auth.token is missing")
        }
        self.recovery = request.recovery.flatMap { SocketIORecovery($0) }
        let session = SocketSession(
            connection: RandomName.make(),
            identity: nil,
            since: self.recovery?.version,
            shard: self.shard
        )
        self.session = session
        session.begin(self)
        session.handle(.auth(token: token), reference: nil)
    }

    func socketIOConnectWithdrawn(_ ticket: SocketIOConnectRequest.Ticket) { self.endSession() }

    func socketIOLeft(_ namespace: String) {
        // The hub no longer counts the client, so nothing more may wait for its poll. A close by
        // the gateway keeps what should still arrive.
        if self.session?.phase != .closing { self.connection?.discardWaiting() }
        self.endSession()
        guard !self.isQuiescing else {
            self.connection?.close(.serverShuttingDown)
            return
        }
        // Keep the connection: some clients reconnect at once if it closes, and never join again.
        self.isIdle = self.idle.reserve()
        if !self.isIdle { self.connection?.close(.forcedClose) }
    }

    private func endIdleness() {
        if self.isIdle { self.idle.release() }
        self.isIdle = false
    }

    private func refuse(_ reason: String) {
        guard let ticket else { return }
        SocketMetrics.refused.increment()
        let data = JSONValue.object([JSONMember("reason", .string(reason))])
        self.connection?.refuse(ticket, message: "Not authorized", data: data)
        self.endSession()
        self.connection?.flush()
    }

    /// Handles a valid token; discards a recovery that belongs to another user.
    private func identified() {
        if let ticket { self.connection?.identified(ticket) }
        guard let recovery, let user = self.session?.identity?.user, !recovery.isOf(user: user) else { return }
        self.recovery = nil
        self.session?.since = nil
    }

    func welcome(connection: String, version: Int64) {}

    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?) {
        guard let ticket, let session, let user = session.identity?.user else { return self.update(snapshot) }
        self.ticket = nil
        self.endIdleness()
        if let recovery, !snapshot.isReset {
            self.offset = recovery.version
            let missed = self.withOffsets(SocketIODialect.changes(snapshot), version: snapshot.version).map {
                event, offset in
                SocketIOMissedEvent(.text(event.name), [.encoded(event.arguments)], offset: offset)
            }
            let pid = SocketIORecovery.pid(id: recovery.id, user: user)
            self.connection?.accept(ticket, sid: recovery.id, recovery: .init(pid: pid, missed: missed))
        } else {
            let pid = self.offersRecovery ? SocketIORecovery.pid(id: session.connection, user: user) : nil
            self.connection?.accept(ticket, sid: session.connection, recovery: pid.map { .init(pid: $0) })
            self.begin(snapshot)
        }
        self.recovery = nil
    }

    private func begin(_ snapshot: InboxSnapshot) {
        self.offset = snapshot.version
        let list = SocketIODialect.sync(snapshot.items.map(\.json), hasMore: snapshot.hasMore)
        self.emit(list, offset: String(snapshot.version))
    }

    /// Sends only the changes: a whole list would repeat what the client has.
    private func update(_ snapshot: InboxSnapshot) {
        guard !snapshot.isReset else { return self.begin(snapshot) }
        for (event, offset) in self.withOffsets(SocketIODialect.changes(snapshot), version: snapshot.version) {
            self.emit(event, offset: offset)
        }
    }

    /// Pairs events with offsets; only the last event carries the new version.
    private func withOffsets(_ events: [SocketIODialect.Event], version: Int64) -> [(SocketIODialect.Event, String)] {
        let before = self.offset
        self.offset = max(self.offset, version)
        return events.enumerated().map { index, event in
            (event, String(index == events.count - 1 ? version : before))
        }
    }

    // MARK: To the client

    private func emit(_ event: SocketIODialect.Event, offset: String?) {
        let packet = SocketIODialect.packet(event, offset: self.offersRecovery ? offset : nil)
        self.connection?.emit(frame: WebSocketFraming.text(packet))
    }

    func change(_ change: LoopChange) {
        let version = change.frame.version
        if self.offersRecovery, version == 0 {
            // The offset is the last argument of every event, and each client has its own here.
            guard let event = SocketIODialect.event(change.frame) else { return SocketMetrics.dropped.increment() }
            return self.emit(event, offset: String(self.offset))
        }
        let frame = change.encoded(for: .socketio) { [offersRecovery] change in
            guard let event = SocketIODialect.event(change) else { return ByteBuffer() }
            let offset = offersRecovery ? String(version) : nil
            return WebSocketFraming.text(SocketIODialect.packet(event, offset: offset))
        }
        if version > 0 { self.offset = version }
        guard frame.readableBytes > 0 else { return SocketMetrics.dropped.increment() }
        self.connection?.emit(frame: frame)
    }

    func answer(_ answer: SocketAnswer, to reference: [UInt8]?) {
        guard self.ticket == nil else {
            switch answer {
            case .error(let reason): self.refuse(reason)
            // Clients stay away after a refusal, so close instead.
            case .busy: self.session?.close(.tryAgainLater)
            case .done: self.identified()
            case .read, .unread: break
            }
            return
        }
        self.acknowledge(reference, with: SocketIODialect.acknowledgement(answer))
    }

    private func acknowledge(_ reference: [UInt8]?, with value: JSONValue) {
        guard let reference, let id = UInt64(String(decoding: reference, as: UTF8.self)) else { return }
        self.connection?.acknowledge(id, with: [.json(value)])
    }

    func requestProof(_ sequence: UInt64) {
        self.lastProof = self.earlierProofs + sequence
        self.connection?.requestProof(self.lastProof)
    }

    func flush() { self.connection?.flush() }
    func drop() { self.connection?.drop() }

    /// Does nothing: the Engine.IO session sends its own pings.
    func tick(now: NIODeadline) {}

    func close(_ end: SocketEnd) {
        switch end {
        case .unauthorized(let reason):
            if self.ticket != nil { return self.refuse(reason) }
            self.expel("unauthorized", reason)
        case .policyViolation(let reason): self.expel("policy_violation", reason)
        case .tooManyConnections: self.expel("too_many_connections", end.webSocketClose.reason)
        case .tooSlow: self.connection?.close(.tooMuchWaiting)
        // Clients reconnect on their own after a plain close; a join with the old token is then
        // refused.
        case .expired:
            self.connection?.discardWaiting()
            self.connection?.close(.tokenExpired)
        case .tryAgainLater: self.connection?.close(.tryAgainLater)
        case .restart: self.connection?.close(.serverShuttingDown)
        }
        self.endSession()
        self.connection?.flush()
    }

    /// Sends the reason, disconnects the client so that it does not reconnect, and closes.
    ///
    /// Drops the packets that wait for a poll, because the hub no longer counts the client.
    private func expel(_ code: StaticString, _ reason: String) {
        self.connection?.discardWaiting()
        // Without an offset: a client that recovers must get what was dropped.
        self.emit(SocketIODialect.error(code, reason), offset: nil)
        self.connection?.disconnect()
        self.connection?.close(.forcedClose)
    }

    // MARK: From the client

    func socketIOReceived(
        _ name: SocketIOEventName,
        _ arguments: [SocketIOValue],
        in namespace: String,
        acknowledgement: UInt64?
    ) {
        guard let session else { return }
        let reference = acknowledgement.map { Array(String($0).utf8) }
        do throws(ClientFault) {
            switch try SocketIODialect.decode(name, arguments) {
            case .message(let message): session.handle(message, reference: reference)
            case .subscribe(let user):
                if session.identity.map({ ExactText($0.user) }) == ExactText(user) {
                    self.acknowledge(reference, with: SocketIODialect.status("subscribed"))
                } else {
                    self.answer(.error("user_id must be the user of the token"), to: reference)
                }
            }
        } catch {
            self.answer(.error(error.reason), to: reference)
        }
    }
}

/// The earlier id and inbox version of a returning Socket.IO client.
///
/// The `pid` is the id with a digest of id and user, so a client cannot resume from another user's
/// version. It is not a credential: the token is verified as well.
struct SocketIORecovery {
    /// The client's earlier id.
    let id: String
    let version: Int64
    private let digest: String

    /// Nil if the text cannot be one of ours.
    init?(_ recovery: SocketIOConnectRequest.Recovery) {
        let parts = recovery.pid.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 2, (1...64).contains(parts[0].utf8.count), let version = Int64(recovery.offset),
            version >= 0
        else { return nil }
        self.id = String(parts[0])
        self.digest = String(parts[1])
        self.version = version
    }

    func isOf(user: String) -> Bool { self.digest == Self.digest(self.id, user) }

    /// The `pid` for a client's id.
    static func pid(id: String, user: String) -> String { "\(id).\(Self.digest(id, user))" }

    private static func digest(_ id: String, _ user: String) -> String {
        let digest = SHA256.hash(data: Array("\(id).\(user)".utf8))
        return digest.prefix(16).hex
    }
}

/// Socket.IO at `/socket.io/`.
package enum SocketIOEndpoint {
    /// Without the slash that clients add.
    static let path = "/socket.io"

    /// Makes the endpoint that serves a hub.
    ///
    /// - Parameter maximumIdle: the most connections that stay open after their clients have left;
    ///   further ones are closed. Without a limit, a user could fill the node with them.
    package static func endpoint(hub: SocketHub, maximumIdle: Int = 10_000) -> EngineIOEndpoint {
        let configuration = hub.configuration
        let idle = Budget(limit: maximumIdle)
        let connections = SocketIOConfiguration(
            connectTimeout: configuration.authentication.inMilliseconds,
            maximumAttachmentBytes: configuration.maximumMessage,
            offersRecovery: configuration.recovery
        )
        return EngineIOEndpoint(
            path: Self.path,
            configuration: EngineIOConfiguration(
                pingInterval: configuration.pingInterval.inMilliseconds,
                pingTimeout: configuration.pingTimeout.inMilliseconds,
                maximumPayload: configuration.maximumMessage,
                maximumWaiting: configuration.maximumOutbound
            ),
            maximumOutbound: configuration.maximumOutbound,
            isFull: { SocketMetrics.overflows.increment() }
        ) { opening, eventLoop in
            guard let shard = hub.shard(on: eventLoop) else { return nil }
            let wire = SocketIOWire(shard: shard, handshakeToken: Self.token(opening), idle: idle)
            return SocketIOConnection(wire, configuration: connections)
        }
    }

    /// The token of a handshake: from the header, or else from the query.
    static func token(_ opening: EngineIOOpening) -> String? {
        let header = opening.head.headers.first(name: "authorization")
        return header.flatMap { AuthorizationHeader.credential($0, of: "bearer") }
            ?? opening.query.parameters.first { $0.name == "token" }?.value
    }
}
