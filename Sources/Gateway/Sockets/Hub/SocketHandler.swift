// Carillon · SocketHandler.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
import Model
import NIOCore

/// One native WebSocket: a channel handler on its event loop, no task, no timer of its own.
///
/// It belongs to its loop's shard, which calls it for frames and on every tick.
final class SocketHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    enum Phase {
        /// Waits for an `auth` message.
        case anonymous
        /// Presence is being registered and the inbox read.
        case opening
        case open
        /// A close frame was sent.
        case closing
    }

    let connection: String
    let openedAt: NIODeadline
    let shard: HubShard
    private var context: ChannelHandlerContext?

    private(set) var phase: Phase
    private(set) var identity: SocketIdentity?
    private var parser: WebSocketParser
    private var sequence = InboxSequence()
    var proofs = ProofLedger()
    /// Frames that wait for the sync, or for the one before them.
    private var held: [NodeChange] = []
    private var heldSince: NIODeadline?
    private var isFilling = false
    var since: Int64?

    private var outbound: ByteBuffer?
    private var mustPing = false
    private var lastHeard: NIODeadline
    private var pingedAt: NIODeadline?
    private var closeDeadline: NIODeadline?
    var allowance: Int

    init(connection: String, identity: SocketIdentity?, since: Int64?, shard: HubShard) {
        self.connection = connection
        self.identity = identity
        self.since = since
        self.shard = shard
        self.phase = identity == nil ? .anonymous : .opening
        self.parser = WebSocketParser(maximumMessage: shard.configuration.maximumMessage)
        self.openedAt = .now()
        self.lastHeard = self.openedAt
        self.allowance = shard.configuration.messageBurst
    }

    // MARK: Channel

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        self.shard.add(self)
        if let identity { self.shard.open(self, identity: identity, since: self.since) }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.leave()
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.leave()
        context.fireChannelInactive()
    }

    private func leave() {
        guard self.context != nil else { return }
        self.context = nil
        self.shard.remove(self)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case ChannelEvent.inputClosed: context.close(promise: nil)
        // The hub closes its sockets itself, spread over some seconds.
        case is ChannelShouldQuiesceEvent: break
        default: context.fireUserInboundEventTriggered(event)
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.lastHeard = .now()
        self.pingedAt = nil
        // The handler's own parser is moved out, as its events may reach back into the handler.
        var parser = self.parser
        var events: [WebSocketParser.Event] = []
        parser.read(self.unwrapInboundIn(data)) { events.append($0) }
        self.parser = parser
        for event in events { self.handle(event) }
        self.flush()
    }

    private func handle(_ event: WebSocketParser.Event) {
        switch event {
        case .text(let text): self.receive(text)
        case .binary: self.close(.unsupportedData, reason: "binary messages are not part of this protocol")
        case .ping(let payload):
            guard self.phase != .closing, self.spend() else { return }
            self.write { WebSocketFraming.writePong(payload, to: &$0) }
        case .pong(let payload): self.receivePong(payload)
        case .close: self.finishClose()
        case .violation(let code, let reason): self.close(code, reason: reason)
        }
    }

    /// A close frame is answered once; then the connection ends.
    private func finishClose() {
        if self.phase != .closing {
            self.write { WebSocketFraming.writeClose(.normal, reason: "", to: &$0) }
            self.phase = .closing
        }
        self.flush()
        self.context?.close(promise: nil)
    }

    // MARK: Answers of the backend

    /// A token was found good.
    func authenticated(_ identity: SocketIdentity, reference: [UInt8]?) {
        switch self.phase {
        case .anonymous:
            self.identity = identity
            self.phase = .opening
            self.answerDone(reference)
            self.shard.identified(self, identity: identity)
            self.shard.open(self, identity: identity, since: self.since)
        case .opening, .open:
            guard ExactText(identity.user) == self.identity.map({ ExactText($0.user) }) else {
                self.send(NativeDialect.error("the token is another user's", reference: reference))
                break
            }
            self.identity = identity
            self.answerDone(reference)
        case .closing: break
        }
        self.flush()
    }

    /// A token was refused.
    func refused(_ refusal: SocketRefusal, reference: [UInt8]?) {
        self.send(NativeDialect.error(refusal.reason, reference: reference))
        if self.phase == .anonymous {
            self.close(refusal.status == 503 ? .tryAgainLater : .unauthorized, reason: refusal.reason)
        }
        self.flush()
    }

    /// Ends the socket if its token was made before a moment.
    func revoke(before: Timestamp) {
        guard let identity, identity.issuedAt.map({ $0 < before }) ?? true else { return }
        self.close(.unauthorized, reason: "the token was revoked")
        self.flush()
    }

    /// Presence is registered and the inbox read.
    func opened(_ snapshot: InboxSnapshot) {
        guard self.phase == .opening else { return }
        self.phase = .open
        self.send(
            NativeDialect.welcome(
                connection: self.connection,
                pingInterval: self.shard.configuration.pingInterval.inMicroseconds / 1_000,
                version: snapshot.version
            )
        )
        self.take(snapshot)
        self.flush()
    }

    /// The gateway cannot serve this socket now.
    func failed() {
        self.close(.tryAgainLater, reason: "try again later")
        self.flush()
    }

    /// Changes that were asked for; nil if there were none.
    func filled(_ snapshot: InboxSnapshot?) {
        self.isFilling = false
        guard self.phase == .open else { return }
        if let snapshot { self.take(snapshot) } else { self.releaseHeld() }
        self.flush()
    }

    /// The changes could not be read; they are asked for again.
    func fillFailed() {
        self.isFilling = false
    }

    /// Ends the connection at once.
    func drop() {
        self.context?.close(promise: nil)
    }

    /// The unread count, asked for by a message.
    func answerUnread(_ count: Int32, reference: [UInt8]?) {
        guard self.phase == .open else { return }
        self.send(NativeDialect.unread(count, reference: reference))
        self.flush()
    }

    func answerError(_ reason: String, reference: [UInt8]?) {
        guard self.phase == .open else { return }
        self.send(NativeDialect.error(reason, reference: reference))
        self.flush()
    }

    private func take(_ snapshot: InboxSnapshot) {
        if snapshot.isReset { self.sequence.reset(to: snapshot.version) }
        self.sequence.advance(to: snapshot.version)
        self.send(NativeDialect.sync(snapshot))
        for item in snapshot.items where item.awaitsProof { self.awaitProof(item.id, lane: item.lane) }
        self.releaseHeld()
    }

    func requestChanges(since: Int64) -> Bool {
        guard let identity, !self.isFilling else { return true }
        self.isFilling = self.shard.request(.changes(self, user: identity.user, since: since))
        return self.isFilling
    }

    // MARK: Frames

    /// A change of the inbox, or an event; written with the shard's next flush.
    func deliver(_ change: NodeChange) {
        switch self.phase {
        case .anonymous, .closing: return
        case .opening:
            self.hold(change)
            return
        case .open: break
        }
        guard change.version > 0 else {
            self.transmit(change)
            return
        }
        switch self.sequence.judge(previous: change.previous, version: change.version) {
        case .send:
            self.transmit(change)
            if !self.held.isEmpty { self.releaseHeld() }
        case .known:
            // It went out before; the next pong proves it again.
            if change.isNotification { self.awaitProof(change.id, lane: change.awaitingLane) }
        case .hold:
            self.hold(change)
        }
    }

    private func hold(_ change: NodeChange) {
        guard self.held.count < 1_024 else {
            // Whatever is dropped here is found in the inbox when the hole is filled.
            return
        }
        self.held.append(change)
        self.heldSince = self.heldSince ?? .now()
    }

    private func releaseHeld() {
        let held = self.held.sorted { $0.version < $1.version }
        self.held = []
        self.heldSince = nil
        for change in held { self.deliver(change) }
    }

    private func transmit(_ change: NodeChange) {
        self.append(change.nativeFrame)
        if change.isNotification { self.awaitProof(change.id, lane: change.awaitingLane) }
    }

    private func awaitProof(_ id: NotificationID, lane: Lane?) {
        self.proofs.await(id, lane: lane)
        self.mustPing = true
    }

    private func receivePong(_ payload: [UInt8]) {
        guard payload.count == 8 else { return }
        self.report(self.proofs.confirm(payload.reduce(0) { $0 << 8 | UInt64($1) }))
    }

    func report(_ proven: [ProofLedger.Awaited]) {
        guard let identity else { return }
        for proof in proven { self.shard.prove(identity.user, proof.id, lane: proof.lane) }
    }

    // MARK: Writing

    func send(_ json: [UInt8]) {
        guard self.phase != .closing else { return }
        self.write { WebSocketFraming.writeText(json, to: &$0) }
    }

    private func write(_ body: (inout ByteBuffer) -> Void) {
        var buffer = self.outbound ?? self.context?.channel.allocator.buffer(capacity: 256) ?? ByteBuffer()
        self.outbound = nil
        body(&buffer)
        self.outbound = buffer
    }

    /// Adds a frame that other sockets share: alone it leaves as it is, uncopied.
    private func append(_ frame: ByteBuffer) {
        if self.outbound == nil {
            self.outbound = frame
        } else {
            self.write { $0.writeImmutableBuffer(frame) }
        }
    }

    /// Writes all that has gathered, in one call, with one ping for all that awaits its proof.
    func flush() {
        guard let context else { return }
        if self.mustPing, self.phase != .closing {
            self.mustPing = false
            let sequence = self.proofs.nextSequence()
            self.write { WebSocketFraming.writePing(sequence: sequence, to: &$0) }
        }
        guard let outbound = self.outbound else { return }
        self.outbound = nil
        context.writeAndFlush(self.wrapOutboundOut(outbound), promise: nil)
        guard self.phase != .closing, !context.channel.isWritable else { return }
        let waiting = (try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
        guard waiting > self.shard.configuration.maximumOutbound else { return }
        self.shard.countSlowReader()
        self.close(.tooSlow, reason: "you read too slowly")
        self.flush()
    }

    /// Sends a close frame; the connection is dropped when the peer answers, or after five seconds.
    func close(_ code: WebSocketCloseCode, reason: String) {
        guard self.phase != .closing else { return }
        self.write { WebSocketFraming.writeClose(code, reason: reason, to: &$0) }
        self.phase = .closing
        self.closeDeadline = .now() + .seconds(5)
    }

    /// Tells the client to come back elsewhere.
    func sayGoodbye(reconnectAfter: Duration) {
        guard self.phase != .closing else { return }
        let milliseconds = reconnectAfter.inMicroseconds / 1_000
        self.send(NativeDialect.goodbye(.serviceRestart, reason: "restart", reconnectAfter: milliseconds))
        self.close(.serviceRestart, reason: "restart")
        self.flush()
    }

    // MARK: Time

    /// What time alone brings about: pings, timeouts, expiry, holes that nobody filled.
    func tick(now: NIODeadline, wallClock: Timestamp) {
        guard let context else { return }
        let configuration = self.shard.configuration
        if let closeDeadline {
            if closeDeadline <= now { context.close(promise: nil) }
            return
        }
        self.allowance = min(configuration.messageBurst, self.allowance + configuration.messagesPerSecond)
        if let expiresAt = self.identity?.expiresAt, expiresAt <= wallClock {
            self.close(.unauthorized, reason: "the token has expired")
        } else if self.phase == .anonymous, now - self.openedAt > TimeAmount(configuration.authentication) {
            self.close(.unauthorized, reason: "no credential came in time")
        } else if let pingedAt, now - pingedAt > TimeAmount(configuration.pingTimeout) {
            context.close(promise: nil)
            return
        } else if self.pingedAt == nil, now - self.lastHeard > TimeAmount(configuration.pingInterval) {
            self.pingedAt = now
            self.mustPing = true
        }
        self.flush()
    }

    /// Asks the inbox for what is missing, if a change has waited for it too long.
    func fillHole(now: NIODeadline) {
        guard self.phase == .open, let heldSince, let last = self.sequence.last,
            now - heldSince > TimeAmount(self.shard.configuration.holdTime)
        else { return }
        self.heldSince = now
        _ = self.requestChanges(since: last)
    }

    var isHolding: Bool { self.heldSince != nil }
    var lastVersion: Int64? { self.phase == .open ? self.sequence.last : nil }
}
