// Carillon · SignalRStateMachine.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The limits that all connections share.
package final class SignalRConfiguration: Sendable {
    /// The reference server's limits.
    package static let standard = SignalRConfiguration()

    /// The longest record from a client; a longer one closes the connection.
    let maximumMessageBytes: Int
    /// The time without writes after which the server pings.
    let keepAliveInterval: Milliseconds
    /// The time without input after which a client counts as lost.
    let clientTimeout: Milliseconds
    /// The invocations that may wait for the running one; more close the connection.
    let maximumWaitingInvocations: Int
    /// The bytes of the waiting invocations; more close the connection.
    let maximumWaitingBytes: Int
    /// The streams that may run concurrently; more close the connection.
    let maximumStreams: Int
    /// The unacknowledged bytes that stateful reconnect keeps before it accepts no more.
    package let resendBufferBytes: Int

    package init(
        maximumMessageBytes: Int = 32 * 1024,
        keepAliveInterval: Milliseconds = 15_000,
        clientTimeout: Milliseconds = 30_000,
        maximumWaitingInvocations: Int = 100,
        maximumWaitingBytes: Int = 256 * 1024,
        maximumStreams: Int = 100,
        resendBufferBytes: Int = 100_000
    ) {
        self.maximumMessageBytes = maximumMessageBytes
        self.keepAliveInterval = keepAliveInterval
        self.clientTimeout = clientTimeout
        self.maximumWaitingInvocations = maximumWaitingInvocations
        self.maximumWaitingBytes = maximumWaitingBytes
        self.maximumStreams = maximumStreams
        self.resendBufferBytes = resendBufferBytes
    }
}

/// A client's connection to a hub: bytes and time in, actions out.
///
/// Times come from one monotonic clock of the caller's choice. A connection starts with its first
/// transport. With stateful reconnect it can outlive a WebSocket; otherwise it ends with its
/// transport.
package struct SignalRStateMachine: Sendable {
    private enum Phase {
        case handshaking
        case open
        case closed
    }

    /// The time limit for the client's handshake.
    private static let handshakeTimeout: Milliseconds = 15_000
    /// The most bytes of an unfinished handshake.
    private static let maximumHandshakeBytes = 4_096
    /// The delay of acknowledgements, so that one covers many messages.
    private static let acknowledgementDelay: Milliseconds = 1_000
    /// The time a connection with stateful reconnect waits for its client to return.
    private static let detachedLimit: Milliseconds = 15_000

    let configuration: SignalRConfiguration
    private var phase = Phase.handshaking
    private var isAttached = true
    private let offersStatefulReconnect: Bool
    private let hasInherentKeepAlive: Bool
    private var splitter: SignalRRecordSplitter
    /// The start of the current state: of the handshake or of the client's absence.
    private var since: Milliseconds
    private var lastSent: Milliseconds
    private var lastHeard: Milliseconds
    /// When the unfinished record began.
    private var recordSince: Milliseconds?
    private var calls = SignalRCallQueue()
    private var reliability: SignalRReliability?

    /// Starts a connection with an attached transport.
    ///
    /// - Parameters:
    ///   - configuration: the limits.
    ///   - offersStatefulReconnect: ``SignalRNegotiation/Offer/usesStatefulReconnect``; takes
    ///     effect if the client's handshake has version 2.
    ///   - hasInherentKeepAlive: true for long polling, whose polls prove life: no pings, no
    ///     silence timeout.
    ///   - now: the time.
    package init(
        configuration: SignalRConfiguration = .standard,
        offersStatefulReconnect: Bool = false,
        hasInherentKeepAlive: Bool = false,
        now: Milliseconds
    ) {
        self.configuration = configuration
        self.offersStatefulReconnect = offersStatefulReconnect
        self.hasInherentKeepAlive = hasInherentKeepAlive
        self.splitter = SignalRRecordSplitter(maximumBytes: configuration.maximumMessageBytes)
        self.since = now
        self.lastSent = now
        self.lastHeard = now
    }

    /// Whether the handshake is complete and the connection has not ended; the client may be
    /// disconnected.
    package var isOpen: Bool { self.phase == .open }

    /// Whether the connection has ended.
    package var isClosed: Bool { self.phase == .closed }

    /// Whether the connection may continue on another WebSocket.
    package var canReattach: Bool { self.phase == .open && self.reliability != nil }

    /// Whether the caller should stop reading from the transport until a call completes.
    package var isCongested: Bool { self.phase == .open && self.calls.isCongested(self.configuration) }

    /// Whether the resend buffer is full: until the client acknowledges, pushes are refused, and
    /// the answer to a call ends the connection.
    package var isBackPressured: Bool { self.reliability?.isFull(self.configuration.resendBufferBytes) ?? false }

    // MARK: Transport events

    /// Handles bytes from the client: a frame's payload, text or binary, or a POST's body.
    ///
    /// Ignores input after the end or from a transport that was reported as lost.
    package mutating func receive(_ bytes: [UInt8], now: Milliseconds) -> [SignalRAction] {
        guard self.phase != .closed, self.isAttached else { return [] }
        self.lastHeard = now
        var actions: [SignalRAction] = []
        let batch = self.splitter.split(bytes)
        if self.splitter.pendingBytes == 0 {
            self.recordSince = nil
        } else if self.recordSince == nil || !batch.records.isEmpty {
            self.recordSince = now
        }
        for record in batch.records where self.phase != .closed {
            if self.phase == .handshaking {
                self.greet(record, now, &actions)
            } else {
                self.handle(record, now, &actions)
            }
        }
        let isHandshakeTooLong =
            self.phase == .handshaking && self.splitter.pendingBytes > Self.maximumHandshakeBytes
        if batch.isTooLong || isHandshakeTooLong, self.phase != .closed {
            let limit = isHandshakeTooLong ? Self.maximumHandshakeBytes : self.configuration.maximumMessageBytes
            let fault = SignalRFault(.recordTooLong, "The maximum message size of \(limit)B was exceeded.")
            if self.phase == .handshaking {
                self.refuse("\(SignalRHandshake.unexpectedError) \(fault.message)", &actions)
            } else {
                self.fail(fault, now, &actions)
            }
        }
        return actions
    }

    /// Handles the loss of the transport.
    ///
    /// Ends the connection, or waits for the client if ``canReattach``.
    package mutating func transportLost(now: Milliseconds) -> [SignalRAction] {
        guard self.phase != .closed, self.isAttached else { return [] }
        guard self.canReattach else {
            self.phase = .closed
            return [.end(.transportLost)]
        }
        self.isAttached = false
        self.since = now
        return []
    }

    /// Continues on the client's new WebSocket; an old one that is still attached counts as lost.
    ///
    /// - Returns: the actions for the new WebSocket; nil, without effect, unless ``canReattach``.
    package mutating func reattach(now: Milliseconds) -> [SignalRAction]? {
        guard self.canReattach, let records = self.reliability?.reattach() else { return nil }
        self.isAttached = true
        self.splitter = SignalRRecordSplitter(maximumBytes: self.configuration.maximumMessageBytes)
        self.recordSince = nil
        self.lastHeard = now
        self.lastSent = now
        return records.map { .write($0) }
    }

    /// Sends due pings and acknowledgements, and applies timeouts.
    package mutating func tick(now: Milliseconds) -> [SignalRAction] {
        var actions: [SignalRAction] = []
        switch self.phase {
        case .closed: break
        case .handshaking:
            if now - self.since >= Self.handshakeTimeout {
                self.phase = .closed
                let answer = SignalRHandshake.refused(SignalRHandshake.timeoutError)
                actions += [.write(answer.response), .end(.handshakeTimeout)]
            }
        case .open where !self.isAttached:
            if now - self.since >= Self.detachedLimit {
                self.phase = .closed
                actions.append(.end(.detachedTooLong))
            }
        case .open:
            // Reading is paused, so silence proves nothing.
            if self.isCongested {
                self.lastHeard = now
                self.recordSince = self.recordSince.map { _ in now }
            }
            let isSilent = !self.hasInherentKeepAlive && now - self.lastHeard >= self.configuration.clientTimeout
            if isSilent || self.recordSince.map({ now - $0 >= self.configuration.clientTimeout }) ?? false {
                // Allows reconnecting: a client that reads this was only slow.
                self.end(.clientTimeout, SignalRErrorText.clientTimeout, allowReconnect: true, now, &actions)
                break
            }
            if let acknowledgement = self.reliability?.dueAcknowledgement(now: now) {
                self.emit(acknowledgement, now, &actions)
            }
            if !self.hasInherentKeepAlive, now - self.lastSent >= self.configuration.keepAliveInterval {
                self.emit(.ping, now, &actions)
            }
        }
        return actions
    }

    // MARK: Hub calls

    /// Answers a call and starts the next one; no effect if the call is not running.
    package mutating func complete(
        _ call: UInt64,
        _ outcome: SignalROutcome,
        now: Milliseconds
    ) -> [SignalRAction] {
        guard self.phase == .open, let completed = self.calls.complete(call) else { return [] }
        var actions: [SignalRAction] = []
        if let invocationID = completed.invocationID {
            self.emit(.completion(invocationID: invocationID, outcome), now, &actions)
        }
        if self.phase == .open, let next = completed.next { actions.append(.invoke(next)) }
        return actions
    }

    /// Sends an item of a stream.
    ///
    /// - Returns: nil once the client wants no more items; the call must still be completed.
    package mutating func sendItem(_ item: JSONValue, of call: UInt64, now: Milliseconds) -> [SignalRAction]? {
        guard self.phase == .open, let invocationID = self.calls.openStream(call) else { return nil }
        var actions: [SignalRAction] = []
        self.emit(.streamItem(invocationID: invocationID, item), now, &actions)
        return actions
    }

    /// Admits a record that the server sends unprompted, possibly one shared by many connections.
    package mutating func push(_ record: SignalRRecord, now: Milliseconds) -> SignalRAdmission {
        guard self.phase == .open else { return .refused(.notOpen) }
        if record.isCounted, self.reliability != nil {
            guard !self.isBackPressured else { return .refused(.resendBufferFull) }
            self.reliability?.keep(record.bytes)
        }
        guard self.isAttached else { return record.isCounted ? .held : .refused(.detached) }
        self.lastSent = now
        return .write
    }

    /// Ends the connection with a Close message.
    ///
    /// A server that shuts down should allow clients to reconnect, and close a WebSocket with 1001
    /// after the message.
    ///
    /// - Parameters:
    ///   - error: nil for a regular end.
    ///   - allowReconnect: whether a client with automatic reconnect should use it; otherwise it
    ///     stops for good.
    ///   - now: the time.
    package mutating func close(
        error: String? = nil,
        allowReconnect: Bool = false,
        now: Milliseconds
    ) -> [SignalRAction] {
        var actions: [SignalRAction] = []
        switch self.phase {
        case .closed: break
        case .handshaking:
            self.phase = .closed
            let answer = SignalRHandshake.refused(error ?? SignalRHandshake.timeoutError)
            actions += [.write(answer.response), .end(.server)]
        case .open: self.end(.server, error, allowReconnect: allowReconnect, now, &actions)
        }
        return actions
    }
}

// MARK: - Messages

extension SignalRStateMachine {
    private mutating func greet(_ record: [UInt8], _ now: Milliseconds, _ actions: inout [SignalRAction]) {
        let handshake = SignalRHandshake(request: record)
        switch handshake {
        case .refused(let error): self.refuse(error, &actions)
        case .accepted(let version):
            self.phase = .open
            self.lastSent = now
            if self.offersStatefulReconnect, version == 2 { self.reliability = SignalRReliability() }
            actions += [.write(handshake.response), .opened(version: version)]
        }
    }

    private mutating func handle(_ record: [UInt8], _ now: Milliseconds, _ actions: inout [SignalRAction]) {
        do throws(SignalRFault) {
            guard let message = try SignalRDecoder.message(record) else { return }
            guard self.reliability?.admits(message, now: now, delay: Self.acknowledgementDelay) ?? true else { return }
            switch message {
            case .invocation(let invocation): self.handle(invocation, record, now, &actions)
            case .ignored, .ping: return
            case .cancellation(let invocationID): self.calls.cancel(invocationID)
            case .close:
                self.phase = .closed
                actions.append(.end(.client))
            case .acknowledgement(let sequenceID): self.reliability?.acknowledge(sequenceID)
            case .sequence(let sequenceID): try self.reliability?.resume(at: sequenceID)
            }
        } catch {
            self.fail(error, now, &actions)
        }
    }

    private mutating func handle(
        _ invocation: SignalRInvocation,
        _ record: [UInt8],
        _ now: Milliseconds,
        _ actions: inout [SignalRAction]
    ) {
        switch self.calls.admit(invocation, record, self.configuration) {
        case .start(let call): actions.append(.invoke(call))
        case .wait: return
        case .fail(let fault): self.fail(fault, now, &actions)
        }
    }

    /// Sends a record, and keeps a counted one until it is acknowledged.
    ///
    /// Ends the connection if the resend buffer is full. The client may reconnect: it was only
    /// slow.
    private mutating func emit(_ record: SignalRRecord, _ now: Milliseconds, _ actions: inout [SignalRAction]) {
        if record.isCounted, self.reliability != nil {
            // Without an error, because some clients do not reconnect after one.
            guard !self.isBackPressured else { return self.end(.tooSlow, nil, allowReconnect: true, now, &actions) }
            self.reliability?.keep(record.bytes)
        }
        guard self.isAttached else { return }
        self.lastSent = now
        actions.append(.write(record.bytes))
    }

    private mutating func refuse(_ error: String, _ actions: inout [SignalRAction]) {
        self.phase = .closed
        self.splitter = SignalRRecordSplitter(maximumBytes: self.configuration.maximumMessageBytes)
        actions += [.write(SignalRHandshake.refused(error).response), .end(.handshakeRefused(error))]
    }

    private mutating func fail(_ fault: SignalRFault, _ now: Milliseconds, _ actions: inout [SignalRAction]) {
        let error = "\(SignalRErrorText.closedWithError) \(fault.message)"
        self.end(.fault(fault), error, allowReconnect: false, now, &actions)
    }

    private mutating func end(
        _ end: SignalREnd,
        _ error: String?,
        allowReconnect: Bool,
        _ now: Milliseconds,
        _ actions: inout [SignalRAction]
    ) {
        self.emit(.close(error: error, allowReconnect: allowReconnect), now, &actions)
        self.phase = .closed
        // Releases memory, because callers may retain a closed connection for a while.
        self.calls = SignalRCallQueue()
        self.reliability = nil
        self.splitter = SignalRRecordSplitter(maximumBytes: self.configuration.maximumMessageBytes)
        actions.append(.end(end))
    }
}
