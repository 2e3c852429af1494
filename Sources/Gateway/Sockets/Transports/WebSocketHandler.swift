// Carillon · WebSocketHandler.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import NIOCore
import Protocols

/// One WebSocket (RFC 6455): a channel handler on its event loop, without a task, and with a timer
/// only for an incomplete message or a close that is not answered.
///
/// Output gathers until ``flush()`` and leaves in one write.
package final class WebSocketHandler: ChannelInboundHandler {
    package typealias InboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    /// The time for a peer to answer a close frame.
    private static let closeTimeout: TimeAmount = .seconds(5)
    /// The bytes passed to another loop before it must catch up.
    private static let mostAhead = 16 * 1024

    private var application: (any WebSocketApplication)?
    private let limits: WebSocketLimits
    private var context: ChannelHandlerContext?
    private var parser: WebSocketParser
    private var outbound: ByteBuffer?
    /// Whether the channel is not writable, because too much output waits in it.
    private var isBackedUp = false
    private var hasSentClose = false
    private var lastHeard: NIODeadline
    private var pingedAt: NIODeadline?
    /// A ping that proves receipt of what is written before it; one per flush.
    private var proofSequence: UInt64?
    private var awaitedPongs = AwaitedPongs()
    /// Counts the bytes of an incomplete message.
    private var share: BudgetShare
    private let patience: Duration
    /// Closes the connection if the rest of a message does not come; nil until one was incomplete.
    private var limit: TimeLimit?
    /// Whether the application wants input.
    private var isReading = true
    /// Bytes received since another loop last caught up, and whether reading waits for it.
    private var ahead = 0
    private var isAhead = false

    /// - Parameters:
    ///   - bodies: counts the bytes of incomplete messages over all connections.
    ///   - patience: the time for a message, from its first byte to its last.
    package init(
        application: any WebSocketApplication,
        limits: WebSocketLimits,
        bodies: Budget = Budget(limit: .max),
        patience: Duration = .seconds(20)
    ) {
        self.share = BudgetShare(of: bodies)
        self.patience = patience
        self.application = application
        self.limits = limits
        self.parser = WebSocketParser(
            maximumMessage: limits.maximumMessage,
            maximumFragments: limits.maximumFragments
        )
        self.lastHeard = .now()
    }

    var isClosing: Bool { self.hasSentClose || self.context == nil }

    // MARK: Channel

    package func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        self.isBackedUp = !context.channel.isWritable
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
        self.limit?.remove()
        self.share.clear()
        let application = self.application
        // The two hold each other until here.
        self.application = nil
        application?.webSocketClosed()
    }

    package func channelWritabilityChanged(context: ChannelHandlerContext) {
        self.isBackedUp = !context.channel.isWritable
        context.fireChannelWritabilityChanged()
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
        let wasIncomplete = self.parser.isIncomplete
        var events: [WebSocketParser.Event] = []
        let input = self.unwrapInboundIn(data)
        self.ahead += input.readableBytes
        self.parser.read(input) { events.append($0) }
        for event in events { self.handle(event) }
        self.application?.webSocketReadComplete()
        self.flush()
        self.limitMessage(isNew: !wasIncomplete || events.contains { $0.endsMessage })
        guard self.context != nil, !self.share.hold(self.parser.buffered) else { return }
        ConnectionMetrics.refusedMemory.increment()
        self.close(.tryAgainLater, reason: "too many messages are coming in")
        self.flush()
        self.context?.close(promise: nil)
    }

    /// Limits the time for the rest of an incomplete message.
    ///
    /// - Parameter isNew: whether the message began with this input.
    private func limitMessage(isNew: Bool) {
        guard self.parser.isIncomplete, self.isReading, !self.isAhead, let context else {
            self.limit?.remove()
            return
        }
        guard isNew else { return }
        let limit = self.limit ?? TimeLimit(on: context.eventLoop)
        self.limit = limit
        limit.set(self.patience) { [weak self] in self?.closeLate() }
    }

    private func closeLate() {
        ConnectionMetrics.refusedSlow.increment()
        self.close(.policyViolation, reason: "the message did not come in time")
        self.flush()
        self.context?.close(promise: nil)
    }

    private func handle(_ event: WebSocketParser.Event) {
        guard !self.hasSentClose else { return self.handleClosing(event) }
        switch event {
        case .text(let text): self.application?.webSocketReceived(text: text)
        case .binary(let bytes): self.application?.webSocketReceived(binary: bytes)
        case .pong(let payload):
            if let sequence = self.awaitedPongs.settle(payload) {
                self.application?.webSocketProven(sequence)
            } else {
                // Not a fault, but it counts, or a client could send them without end.
                _ = self.application?.webSocketReceivedPing()
            }
        case .ping(let payload):
            guard self.application?.webSocketReceivedPing() ?? false else { return }
            self.write { WebSocketFraming.writePong(payload, to: &$0) }
        case .close(let code):
            self.application?.webSocketReceivedClose(code)
            self.answerClose(code)
        case .violation(let code, let reason):
            self.application?.webSocketFailed(code, reason: reason)
            self.close(code, reason: reason)
            self.flush()
            // The peer's input is no longer read, not even its answer (RFC 6455, section 7.1.7), so
            // the server ends the connection after the close frame. The other half stays open until
            // the peer has seen that.
            self.context?.close(mode: .output, promise: nil)
        }
    }

    /// Handles input after a close frame was sent: only the peer's close frame counts, and pongs to
    /// pings that were sent before.
    private func handleClosing(_ event: WebSocketParser.Event) {
        switch event {
        case .pong(let payload):
            if let sequence = self.awaitedPongs.settle(payload) { self.application?.webSocketProven(sequence) }
        case .close: self.context?.close(promise: nil)
        case .text, .binary, .ping, .violation: break
        }
    }

    /// Answers a close frame once, with its own code; then the connection ends.
    private func answerClose(_ code: UInt16?) {
        self.close(rawCode: code ?? WebSocketCloseCode.normal.rawValue, reason: "")
        self.flush()
        self.context?.close(promise: nil)
    }

    // MARK: Writing

    package func send(text: [UInt8]) {
        self.write { WebSocketFraming.writeText(text, to: &$0) }
    }

    package func send(binary: [UInt8]) {
        self.write { WebSocketFraming.writeBinary(binary, to: &$0) }
    }

    /// Adds a whole frame that other sockets share; copies it only behind other output.
    ///
    /// - Parameter joins: joins the frame with earlier output, if other sockets have gathered the
    ///   same.
    func send(frame: ByteBuffer, joins: FrameJoins? = nil) {
        guard !self.isClosing else { return }
        guard let outbound = self.outbound else {
            self.outbound = frame
            return
        }
        if let joins {
            self.outbound = joins.join(outbound, frame)
        } else {
            self.write { $0.writeImmutableBuffer(frame) }
        }
    }

    /// Ends the next flush with a ping of this number; its pong proves that the peer has everything
    /// before it.
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

    /// Writes everything that has gathered, in one call.
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
        guard self.isBackedUp, !self.hasSentClose, context.channel.backlog > self.limits.maximumOutbound else { return }
        self.application?.webSocketIsTooSlow()
        self.flush()
    }

    /// Adds a close frame; the connection is dropped when the peer answers, or after five seconds.
    func close(_ code: WebSocketCloseCode, reason: String) {
        guard !self.isClosing, let eventLoop = self.context?.eventLoop else { return }
        self.close(rawCode: code.rawValue, reason: reason)
        let reference = LoopReference(self, eventLoop: eventLoop)
        eventLoop.scheduleTask(in: Self.closeTimeout) { reference.call { $0.drop() } }
    }

    private func close(rawCode code: UInt16, reason: String) {
        self.write { WebSocketFraming.writeClose(code, reason: reason, to: &$0) }
        self.hasSentClose = true
    }

    /// Ends the connection at once.
    package func drop() {
        self.context?.close(promise: nil)
    }

    /// Pauses or resumes reading; meanwhile, input waits in the system's buffers and then at the
    /// peer.
    func setReading(_ isOn: Bool) {
        self.isReading = isOn
        self.adjustReading()
    }

    /// Pauses reading until the loop to which the application passes its input has run what it was
    /// given, once for every 16 KB.
    ///
    /// No budget counts what waits on that loop.
    func letCatchUp(_ eventLoop: any EventLoop) {
        guard !self.isAhead, self.ahead >= Self.mostAhead, let own = self.context?.eventLoop, own !== eventLoop
        else { return }
        self.isAhead = true
        self.adjustReading()
        let reference = LoopReference(self, eventLoop: own)
        eventLoop.execute { reference.call { $0.resumeReading() } }
    }

    private func resumeReading() {
        self.ahead = 0
        self.isAhead = false
        self.adjustReading()
    }

    private func adjustReading() {
        let isOn = self.isReading && !self.isAhead
        // While reading is paused, the rest of a message cannot come, so its time limit pauses too.
        self.limitMessage(isNew: isOn)
        try? self.context?.channel.syncOptions?.setOption(.autoRead, value: isOn)
    }

    // MARK: Time

    /// Reports that a ping is due after `interval` of silence, and drops a peer that stays silent
    /// for `timeout` after it.
    ///
    /// - Returns: whether a ping is due.
    func isPingDue(now: NIODeadline, interval: Duration, timeout: Duration) -> Bool {
        guard !self.hasSentClose else { return false }
        if let pingedAt {
            if now - pingedAt > TimeAmount(timeout) { self.drop() }
            return false
        }
        guard now - self.lastHeard > TimeAmount(interval) else { return false }
        self.pingedAt = now
        return true
    }
}

extension WebSocketParser.Event {
    /// Whether a message ends with the event; control frames only interrupt one.
    fileprivate var endsMessage: Bool {
        switch self {
        case .text, .binary: true
        case .ping, .pong, .close, .violation: false
        }
    }
}

/// The application's side of a WebSocket; confined to its event loop.
package protocol WebSocketApplication: AnyObject {
    /// The socket is up. Called first, and once.
    func webSocketOpened(_ socket: WebSocketHandler)
    func webSocketReceived(text: String)
    func webSocketReceived(binary: [UInt8])
    /// Whether to answer a ping; the application closes clients that send too many.
    ///
    /// An unsolicited pong counts as a ping.
    func webSocketReceivedPing() -> Bool
    /// The peer has everything sent before ``WebSocketHandler/requestProof(_:)`` with this number.
    func webSocketProven(_ sequence: UInt64)
    /// Output exceeds the limit; the application closes the socket.
    func webSocketIsTooSlow()
    /// A batch of input was delivered; flush what it produced.
    func webSocketReadComplete()
    /// The peer closes the socket, with its code if it gave one; ``webSocketClosed()`` follows.
    func webSocketReceivedClose(_ code: UInt16?)
    /// The peer broke the protocol; a close frame follows.
    func webSocketFailed(_ code: WebSocketCloseCode, reason: String)
    /// The connection has closed. Called last, and once.
    func webSocketClosed()
    /// The process is about to end; the application may close gracefully.
    func webSocketShouldQuiesce()
}

extension WebSocketApplication {
    package func webSocketReceivedClose(_ code: UInt16?) {}
    package func webSocketFailed(_ code: WebSocketCloseCode, reason: String) {}
    package func webSocketShouldQuiesce() {}
}

/// The limits of a WebSocket.
package struct WebSocketLimits: Sendable {
    /// The most bytes of a client's message; a longer one closes the socket with 1009.
    package var maximumMessage: Int
    /// The most frames of a client's message; one more closes the socket with 1008.
    var maximumFragments: Int
    /// The most bytes that may wait for a slow reader; above it, the application closes the socket.
    var maximumOutbound: Int

    package init(maximumMessage: Int, maximumFragments: Int = 256, maximumOutbound: Int = 1024 * 1024) {
        self.maximumMessage = maximumMessage
        self.maximumFragments = maximumFragments
        self.maximumOutbound = maximumOutbound
    }
}

/// Tells the answers to our pings from unsolicited pongs.
///
/// Pings carry rising numbers; a peer may skip some and answer the newest (RFC 6455, section
/// 5.5.3), but none twice.
struct AwaitedPongs {
    /// From the oldest unanswered number to the newest that was sent.
    private var range: ClosedRange<UInt64>?

    /// Notes a ping; a number that does not rise restarts the range.
    mutating func pinged(_ sequence: UInt64) {
        if let range, range.upperBound < sequence {
            self.range = range.lowerBound...sequence
        } else {
            self.range = sequence...sequence
        }
    }

    /// Returns the number of the ping that a pong answers, and settles it and all earlier ones; nil
    /// if it answers none.
    mutating func settle(_ payload: [UInt8]) -> UInt64? {
        guard payload.count == 8, let range else { return nil }
        let sequence = payload.reduce(0) { $0 << 8 | UInt64($1) }
        guard range.contains(sequence) else { return nil }
        self.range = sequence < range.upperBound ? (sequence + 1)...range.upperBound : nil
        return sequence
    }
}
