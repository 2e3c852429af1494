// Carillon · SignalRConnection.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// One connection of a client to a hub: bytes and time in, actions out.
///
/// Times are milliseconds of one monotonic clock, whichever the caller chooses; they never go back. A connection begins
/// with its first transport. With stateful reconnect it can outlive a WebSocket; otherwise it ends with its transport.
package struct SignalRConnection: Sendable {
    private enum Phase {
        case handshaking
        case open
        case closed
    }

    let configuration: SignalRConfiguration
    private var phase = Phase.handshaking
    private var isAttached = true
    private let offersStatefulReconnect: Bool
    private let hasInherentKeepAlive: Bool
    private var splitter: SignalRRecordSplitter
    /// When the present state began: the handshake, or the client's absence.
    private var since: Int64
    private var lastSent: Int64
    private var lastHeard: Int64
    private var calls = SignalRCallQueue()
    private var reliability: SignalRReliability?
    private var clientResults: Set<String> = []
    private var lastClientInvocation: UInt64 = 0

    /// Begins a connection whose transport is attached.
    ///
    /// - Parameters:
    ///   - configuration: The limits.
    ///   - offersStatefulReconnect: ``SignalRNegotiation/Offer/usesStatefulReconnect``; in force if the client's handshake
    ///     is of version 2.
    ///   - hasInherentKeepAlive: True for long polling, whose polls prove life by themselves: no pings, no silence.
    ///   - now: The time.
    package init(
        configuration: SignalRConfiguration = .standard,
        offersStatefulReconnect: Bool = false,
        hasInherentKeepAlive: Bool = false,
        now: Int64
    ) {
        self.configuration = configuration
        self.offersStatefulReconnect = offersStatefulReconnect
        self.hasInherentKeepAlive = hasInherentKeepAlive
        self.splitter = SignalRRecordSplitter(maximumBytes: configuration.maximumMessageBytes)
        self.since = now
        self.lastSent = now
        self.lastHeard = now
    }

    /// The handshake is done and the end has not come; the client may be away.
    package var isOpen: Bool { self.phase == .open }

    /// Nothing comes any more.
    package var isClosed: Bool { self.phase == .closed }

    /// Whether the connection may go on over another WebSocket.
    package var canReattach: Bool { self.phase == .open && self.reliability != nil }

    /// Whether the caller should stop reading from the transport until a call is completed.
    package var isCongested: Bool { self.phase == .open && self.calls.isCongested(self.configuration) }

    /// Whether the caller should produce no more until the client acknowledges; what it pushes is refused, and an answer
    /// that it owes the client ends the connection.
    package var isBackPressured: Bool { self.reliability?.isFull(self.configuration.resendBufferBytes) ?? false }

    /// When ``tick(now:)`` has something to do at the latest; nil if never.
    package var nextDeadline: Int64? {
        switch self.phase {
        case .closed: return nil
        case .handshaking: return self.since + self.configuration.handshakeTimeout
        case .open: break
        }
        guard self.isAttached else { return self.since + self.configuration.detachedLimit }
        var deadline = self.reliability?.acknowledgementDue ?? .max
        if !self.hasInherentKeepAlive {
            deadline = min(deadline, self.lastSent + self.configuration.keepAliveInterval)
            deadline = min(deadline, self.lastHeard + self.configuration.clientTimeout)
        }
        return deadline == .max ? nil : deadline
    }

    // MARK: What the transport says

    /// Takes bytes of the client's: a frame's payload, whether text or binary, or a POST's body.
    ///
    /// What comes after the end, or from a transport that was reported as lost, is not read.
    package mutating func receive(_ bytes: [UInt8], now: Int64) -> [SignalRAction] {
        guard self.phase != .closed, self.isAttached else { return [] }
        self.lastHeard = now
        var actions: [SignalRAction] = []
        let batch = self.splitter.split(bytes)
        for record in batch.records where self.phase != .closed {
            if self.phase == .handshaking {
                self.greet(record, now, &actions)
            } else {
                self.take(record, now, &actions)
            }
        }
        if batch.isTooLong, self.phase != .closed {
            let limit = self.configuration.maximumMessageBytes
            let fault = SignalRFault(.recordTooLong, "The maximum message size of \(limit)B was exceeded.")
            if self.phase == .handshaking {
                self.refuse("\(SignalRHandshake.unexpectedError) \(fault.message)", &actions)
            } else {
                self.fail(fault, now, &actions)
            }
        }
        return actions
    }

    /// The transport is gone.
    ///
    /// Ends the connection, or lets it wait for its client if it can move.
    package mutating func transportLost(now: Int64) -> [SignalRAction] {
        guard self.phase != .closed, self.isAttached else { return [] }
        guard self.canReattach else {
            self.phase = .closed
            return [.end(.transportLost)]
        }
        self.isAttached = false
        self.since = now
        return []
    }

    /// The client came back over another WebSocket; one that is still attached counts as lost.
    ///
    /// - Returns: What to write to the new one; nil, and nothing changes, unless ``canReattach``.
    package mutating func reattach(now: Int64) -> [SignalRAction]? {
        guard self.canReattach, let records = self.reliability?.reattach() else { return nil }
        self.isAttached = true
        self.splitter = SignalRRecordSplitter(maximumBytes: self.configuration.maximumMessageBytes)
        self.lastHeard = now
        self.lastSent = now
        return records.map { .write($0) }
    }

    /// Does what is due: pings, acknowledgements, and the ends that time brings.
    package mutating func tick(now: Int64) -> [SignalRAction] {
        var actions: [SignalRAction] = []
        switch self.phase {
        case .closed: break
        case .handshaking:
            if now - self.since >= self.configuration.handshakeTimeout {
                self.phase = .closed
                let answer = SignalRHandshake.refused(SignalRHandshake.timeoutError)
                actions += [.write(answer.response), .end(.handshakeTimeout)]
            }
        case .open where !self.isAttached:
            if now - self.since >= self.configuration.detachedLimit {
                self.phase = .closed
                actions.append(.end(.detachedTooLong))
            }
        case .open:
            // What is not read cannot be heard.
            if self.isCongested { self.lastHeard = now }
            if !self.hasInherentKeepAlive, now - self.lastHeard >= self.configuration.clientTimeout {
                // With leave to come back: a client that reads this was only slow.
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

    // MARK: What the hub says

    /// Answers a call, which makes room for the next one; nothing happens if the call is not running any more.
    package mutating func complete(
        _ call: UInt64,
        _ outcome: SignalRCompletion.Outcome,
        now: Int64
    ) -> [SignalRAction] {
        guard self.phase == .open, let completed = self.calls.complete(call) else { return [] }
        var actions: [SignalRAction] = []
        if let invocationID = completed.invocationID {
            self.emit(
                SignalRRecord(.completion(SignalRCompletion(invocationID: invocationID, outcome: outcome))), now,
                &actions)
        }
        if self.phase == .open, let next = completed.next { actions.append(.invoke(next)) }
        return actions
    }

    /// Sends an item of a call that is a stream; nothing is sent if the client has cancelled it.
    package mutating func sendItem(_ item: JSONValue, of call: UInt64, now: Int64) -> [SignalRAction] {
        guard self.phase == .open, let invocationID = self.calls.openStream(call) else { return [] }
        var actions: [SignalRAction] = []
        self.emit(SignalRRecord(.streamItem(invocationID: invocationID, item: item)), now, &actions)
        return actions
    }

    /// Admits a record that the server sends on its own, which may be one that many connections share.
    package mutating func push(_ record: SignalRRecord, now: Int64) -> SignalRAdmission {
        guard self.phase == .open else { return .refused(.notOpen) }
        if record.isCounted, self.reliability != nil {
            guard !self.isBackPressured else { return .refused(.resendBufferFull) }
            self.reliability?.keep(record.bytes)
        }
        guard self.isAttached else { return record.isCounted ? .held : .refused(.detached) }
        self.lastSent = now
        return .write
    }

    /// Calls a method of the client's and waits for its result.
    package mutating func invokeClient(target: String, arguments: [JSONValue], now: Int64) -> SignalRClientInvocation {
        let invocationID = String(self.lastClientInvocation + 1)
        let record = SignalRRecord(
            .invocation(SignalRInvocation(target: target, arguments: arguments, invocationID: invocationID)))
        guard self.clientResults.count < self.configuration.maximumClientResults else {
            return SignalRClientInvocation(
                invocationID: invocationID, record: record, admission: .refused(.tooManyClientResults))
        }
        let admission = self.push(record, now: now)
        if admission == .write || admission == .held {
            self.lastClientInvocation += 1
            self.clientResults.insert(invocationID)
        }
        return SignalRClientInvocation(invocationID: invocationID, record: record, admission: admission)
    }

    /// Waits no longer for a client's result.
    package mutating func forgetClientInvocation(_ invocationID: String) {
        self.clientResults.remove(invocationID)
    }

    /// Ends the connection with a Close message.
    ///
    /// A server that goes away allows clients to reconnect, and closes a WebSocket with 1001 behind the message.
    ///
    /// - Parameters:
    ///   - error: Nil for a regular end.
    ///   - allowReconnect: Whether a client that reconnects by itself shall do so; without it, it stops for good.
    ///   - now: The time.
    package mutating func close(error: String? = nil, allowReconnect: Bool = false, now: Int64) -> [SignalRAction] {
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

extension SignalRConnection {
    private mutating func greet(_ record: [UInt8], _ now: Int64, _ actions: inout [SignalRAction]) {
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

    private mutating func take(_ record: [UInt8], _ now: Int64, _ actions: inout [SignalRAction]) {
        do throws(SignalRFault) {
            guard let message = try SignalRDecoder.message(record) else { return }
            let delay = self.configuration.acknowledgementDelay
            guard self.reliability?.admits(message, now: now, delay: delay) ?? true else { return }
            switch message {
            case .invocation(let invocation): self.take(invocation, cost: record.count, now, &actions)
            case .streamItem(let streamID, let item):
                guard let call = self.calls.call(uploading: streamID) else { return }
                actions.append(.uploadedItem(call: call, streamID: streamID, item: item))
            case .completion(let completion): self.take(completion, &actions)
            case .cancelInvocation(let invocationID):
                guard let call = self.calls.cancel(invocationID) else { return }
                actions.append(.cancel(call: call))
            case .ping: return
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

    private mutating func take(
        _ invocation: SignalRInvocation,
        cost: Int,
        _ now: Int64,
        _ actions: inout [SignalRAction]
    ) {
        switch self.calls.take(invocation, cost: cost, self.configuration) {
        case .start(let call): actions.append(.invoke(call))
        case .wait: return
        case .refuse(let error):
            guard let invocationID = invocation.invocationID else { return }
            let completion = SignalRCompletion(invocationID: invocationID, outcome: .error(error))
            self.emit(SignalRRecord(.completion(completion)), now, &actions)
        case .fail(let fault): self.fail(fault, now, &actions)
        }
    }

    private mutating func take(_ completion: SignalRCompletion, _ actions: inout [SignalRAction]) {
        if self.clientResults.remove(completion.invocationID) != nil {
            actions.append(.clientResult(completion))
        } else if let call = self.calls.endUpload(completion.invocationID) {
            var error: String?
            if case .error(let text) = completion.outcome { error = text }
            actions.append(.uploadEnded(call: call, streamID: completion.invocationID, error: error))
        }
    }

    /// Sends what the client is owed.
    private mutating func emit(_ record: SignalRRecord, _ now: Int64, _ actions: inout [SignalRAction]) {
        if record.isCounted, self.reliability != nil {
            guard !self.isBackPressured else {
                let fault = SignalRFault(.resendBufferFull, "Too many messages are unacknowledged.")
                self.fail(fault, now, &actions)
                return
            }
            self.reliability?.keep(record.bytes)
        }
        guard self.isAttached else { return }
        self.lastSent = now
        actions.append(.write(record.bytes))
    }

    private mutating func refuse(_ error: String, _ actions: inout [SignalRAction]) {
        self.phase = .closed
        actions += [.write(SignalRHandshake.refused(error).response), .end(.handshakeRefused(error))]
    }

    private mutating func fail(_ fault: SignalRFault, _ now: Int64, _ actions: inout [SignalRAction]) {
        let error = "\(SignalRErrorText.closedWithError) \(fault.message)"
        self.end(.fault(fault), error, allowReconnect: false, now, &actions)
    }

    private mutating func end(
        _ end: SignalREnd,
        _ error: String?,
        allowReconnect: Bool,
        _ now: Int64,
        _ actions: inout [SignalRAction]
    ) {
        self.emit(SignalRRecord(.close(error: error, allowReconnect: allowReconnect)), now, &actions)
        self.phase = .closed
        // What was kept is of no use any more; a caller may hold on to a closed connection for a while.
        self.calls = SignalRCallQueue()
        self.reliability = nil
        self.splitter = SignalRRecordSplitter(maximumBytes: self.configuration.maximumMessageBytes)
        actions.append(.end(end))
    }
}
