// Carillon · WebSocketHandler.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import NIOCore
import Protocols

/// One WebSocket (RFC 6455): a channel handler on its event loop, no task, and no timer of its own but for a peer that broke
/// the protocol.
///
/// What is written gathers until ``flush()``, and leaves in one write.
package final class WebSocketHandler: ChannelInboundHandler {
    package typealias InboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    /// How long a peer may take to answer a close frame.
    private static let closeTimeout: TimeAmount = .seconds(5)

    private var application: (any WebSocketApplication)?
    private let limits: WebSocketLimits
    private var context: ChannelHandlerContext?
    private var parser: WebSocketParser
    private var outbound: ByteBuffer?
    /// Set with the close frame that was sent.
    private var closeDeadline: NIODeadline?
    private var lastHeard: NIODeadline
    private var pingedAt: NIODeadline?
    /// A ping that proves what is written before it; one for all that is flushed at once.
    private var proofSequence: UInt64?
    private var awaitedPongs = AwaitedPongs()
    /// Counts what has come of a message that is not complete.
    private var share: TallyShare

    /// - Parameter bodies: counts the bytes of incomplete messages over all connections.
    package init(
        application: any WebSocketApplication,
        limits: WebSocketLimits,
        bodies: Tally = Tally(limit: .max)
    ) {
        self.share = TallyShare(of: bodies)
        self.application = application
        self.limits = limits
        self.parser = WebSocketParser(
            maximumMessage: limits.maximumMessage,
            maximumFragments: limits.maximumFragments
        )
        self.lastHeard = .now()
    }

    package var isClosing: Bool { self.closeDeadline != nil || self.context == nil }

    // MARK: Channel

    package func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        self.application?.webSocketOpened(self)
        self.flush()
    }

    package func handlerRemoved(context: ChannelHandlerContext) {
        self.leave()
    }

    package func channelInactive(context: ChannelHandlerContext) {
        self.leave()
        context.fireChannelInactive()
    }

    private func leave() {
        guard self.context != nil else { return }
        self.context = nil
        self.outbound = nil
        // It can only become less.
        _ = self.share.hold(0)
        let application = self.application
        // The two hold each other until here.
        self.application = nil
        application?.webSocketClosed()
    }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case ChannelEvent.inputClosed: context.close(promise: nil)
        case is ChannelShouldQuiesceEvent: self.application?.webSocketShouldQuiesce()
        default: context.fireUserInboundEventTriggered(event)
        }
    }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.lastHeard = .now()
        self.pingedAt = nil
        // The parser is moved out, as its events may reach back into the handler.
        var parser = self.parser
        var events: [WebSocketParser.Event] = []
        parser.read(self.unwrapInboundIn(data)) { events.append($0) }
        self.parser = parser
        for event in events { self.handle(event) }
        self.application?.webSocketReadComplete()
        self.flush()
        guard self.context != nil, !self.share.hold(self.parser.buffered) else { return }
        DoorMetrics.refusedMemory.increment()
        self.close(.tryAgainLater, reason: "too many messages are coming in")
        self.flush()
        self.context?.close(promise: nil)
    }

    private func handle(_ event: WebSocketParser.Event) {
        // After a close frame was sent only the peer's own counts.
        guard self.closeDeadline == nil else {
            if case .close = event { self.context?.close(promise: nil) }
            return
        }
        switch event {
        case .text(let text): self.application?.webSocketReceived(text: text)
        case .binary(let bytes): self.application?.webSocketReceived(binary: bytes)
        case .pong(let payload):
            if self.awaitedPongs.settle(payload) {
                self.application?.webSocketReceived(pong: payload)
            } else {
                // It is no fault, but it counts, or it could be sent without end.
                _ = self.application?.webSocketReceivedPing()
            }
        case .ping(let payload):
            guard self.application?.webSocketReceivedPing() ?? false else { return }
            self.write { WebSocketFraming.writePong(payload, to: &$0) }
        case .close(let code): self.answerClose(code)
        case .violation(let code, let reason):
            self.application?.webSocketFailed(code, reason: reason)
            self.close(code, reason: reason)
            self.flush()
            // What the peer says from now on is not read, its answer included (RFC 6455 section 7.1.7): so it is the server
            // that ends the connection, behind the close frame. The other half stays until the peer has seen that.
            self.context?.close(mode: .output, promise: nil)
            self.dropLater()
        }
    }

    /// Drops a peer that keeps its own half open: not every application calls ``tick(now:)``.
    private func dropLater() {
        guard let eventLoop = self.context?.eventLoop else { return }
        let reference = LoopReference(self, eventLoop: eventLoop)
        eventLoop.scheduleTask(in: Self.closeTimeout) { reference.call { $0.drop() } }
    }

    /// A close frame is answered once, with its own code, whatever that says; then the connection ends.
    private func answerClose(_ code: UInt16?) {
        self.close(rawCode: code ?? WebSocketCloseCode.normal.rawValue, reason: "")
        self.flush()
        self.context?.close(promise: nil)
    }

    // MARK: Writing

    /// Adds a text message.
    package func send(text: [UInt8]) {
        self.write { WebSocketFraming.writeText(text, to: &$0) }
    }

    /// Adds a binary message.
    package func send(binary: [UInt8]) {
        self.write { WebSocketFraming.writeBinary(binary, to: &$0) }
    }

    /// Adds a whole frame that other sockets share: alone it leaves as it is, uncopied.
    package func send(frame: ByteBuffer) {
        guard !self.isClosing else { return }
        if self.outbound == nil {
            self.outbound = frame
        } else {
            self.write { $0.writeImmutableBuffer(frame) }
        }
    }

    /// Has the next flush end with a ping of this number; its pong proves that the peer has all that went before.
    package func requestProof(_ sequence: UInt64) {
        self.proofSequence = sequence
    }

    private func write(_ body: (inout ByteBuffer) -> Void) {
        guard !self.isClosing else { return }
        var buffer = self.outbound ?? self.context?.channel.allocator.buffer(capacity: 256) ?? ByteBuffer()
        self.outbound = nil
        body(&buffer)
        self.outbound = buffer
    }

    /// Writes all that has gathered, in one call.
    package func flush() {
        guard let context else { return }
        if let proofSequence {
            self.proofSequence = nil
            self.awaitedPongs.pinged(proofSequence)
            self.write { WebSocketFraming.writePing(sequence: proofSequence, to: &$0) }
        }
        guard let outbound = self.outbound else { return }
        self.outbound = nil
        context.writeAndFlush(self.wrapOutboundOut(outbound), promise: nil)
        guard self.closeDeadline == nil, !context.channel.isWritable, self.backlog > self.limits.maximumOutbound else {
            return
        }
        self.application?.webSocketIsTooSlow()
        self.flush()
    }

    private var backlog: Int {
        (try? self.context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
    }

    /// Adds a close frame; the connection is dropped when the peer answers, or after five seconds.
    package func close(_ code: WebSocketCloseCode, reason: String) {
        self.close(rawCode: code.rawValue, reason: reason)
    }

    private func close(rawCode code: UInt16, reason: String) {
        guard !self.isClosing else { return }
        self.write { WebSocketFraming.writeClose(code, reason: reason, to: &$0) }
        self.closeDeadline = .now() + Self.closeTimeout
    }

    /// Ends the connection at once.
    package func drop() {
        self.context?.close(promise: nil)
    }

    /// Whether more is read from the peer; what it sends meanwhile waits in the system's buffers, and then at the peer.
    package func setReading(_ isOn: Bool) {
        try? self.context?.channel.syncOptions?.setOption(.autoRead, value: isOn)
    }

    // MARK: Time

    /// Drops what was closed long ago.
    package func tick(now: NIODeadline) {
        if let closeDeadline, closeDeadline <= now { self.drop() }
    }

    /// Pings a peer that was silent for `interval`, and drops it if that brings nothing within `timeout`.
    ///
    /// - Returns: whether a ping is due.
    package func isPingDue(now: NIODeadline, interval: Duration, timeout: Duration) -> Bool {
        guard self.closeDeadline == nil else { return false }
        if let pingedAt {
            if now - pingedAt > TimeAmount(timeout) { self.drop() }
            return false
        }
        guard now - self.lastHeard > TimeAmount(interval) else { return false }
        self.pingedAt = now
        return true
    }
}
