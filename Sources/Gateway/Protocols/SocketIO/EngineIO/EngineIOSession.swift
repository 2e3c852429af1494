// Carillon · EngineIOSession.swift
// SPDX-License-Identifier: Apache-2.0

/// One session of Engine.IO 4 on the server: over polling, over a WebSocket, and the change from the first to the second.
///
/// Knows no channel, no clock and no task. Each call adds to a list what is to be done, in order; the owner does it, and
/// calls ``tick(now:into:)`` when ``nextDeadline`` has come. Times must never go back. An idle session allocates nothing.
///
/// What waits for a poll is bounded by ``EngineIOConfiguration/maximumWaiting``; at the bound the session closes with
/// `tooMuchWaiting`. What a WebSocket has not yet written is its owner's to bound.
package struct EngineIOSession: Sendable {
    enum Phase: UInt8 {
        case polling
        case webSocket
        /// The server closed, and no request was there to tell the client.
        case closing
        case closed
    }

    /// A WebSocket that wants to take over.
    struct Upgrade {
        let carrier: EngineIOCarrier
        let deadline: Milliseconds
        /// From here on messages wait, and polls are released with a noop or a ping.
        var isProbed = false
    }

    let configuration: EngineIOConfiguration
    var phase: Phase
    /// When to ping, or until when the pong must be here; while closing, when to stop waiting.
    var deadline: Milliseconds
    var awaitsPong = false
    var closeReason: EngineIOCloseReason = .forcedClose
    /// The request that waits for packets.
    var poll: EngineIOCarrier?
    /// When a poll that waits during an upgrade is released.
    var releaseAt: Milliseconds = .max
    /// The post whose body is not yet here.
    var post: EngineIOCarrier?
    var webSocket: EngineIOCarrier?
    var upgrade: Upgrade?
    /// What waits for a poll, or for the end of an upgrade.
    var waiting: [EngineIOPacket] = []
    var waitingBytes = 0
    /// How many messages have left, in an answer or on a WebSocket.
    var messagesWritten: UInt64 = 0

    /// How many messages have been taken to be sent, since the open.
    package internal(set) var messagesSent: UInt64 = 0
    /// How many of them the client has proven to have, by its next poll or by its upgrade.
    ///
    /// Over a WebSocket this stands still: there the owner proves by pings of its own.
    package internal(set) var messagesProven: UInt64 = 0

    /// Opens a session by a poll, which gets the handshake.
    package init(
        sid: String,
        polling request: EngineIOCarrier,
        configuration: EngineIOConfiguration,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.configuration = configuration
        self.phase = .polling
        self.deadline = now + configuration.pingInterval
        let json = EngineIOHandshake.json(sid: sid, transport: .polling, configuration: configuration)
        actions.append(.respond(request, .packets([.open(json)])))
    }

    /// Opens a session on a WebSocket, which gets the handshake.
    package init(
        sid: String,
        webSocket: EngineIOCarrier,
        configuration: EngineIOConfiguration,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.configuration = configuration
        self.phase = .webSocket
        self.deadline = now + configuration.pingInterval
        self.webSocket = webSocket
        let json = EngineIOHandshake.json(sid: sid, transport: .webSocket, configuration: configuration)
        Self.write(.open(json), on: webSocket, into: &actions)
    }

    /// How it travels now; nil when it is over.
    package var transport: EngineIOTransport? {
        switch self.phase {
        case .polling, .closing: .polling
        case .webSocket: .webSocket
        case .closed: nil
        }
    }

    /// Whether messages can be sent.
    package var isOpen: Bool { self.phase == .polling || self.phase == .webSocket }

    /// When ``tick(now:into:)`` is due; nil when it is over.
    package var nextDeadline: Milliseconds? {
        guard self.phase != .closed else { return nil }
        return min(self.deadline, self.upgrade?.deadline ?? .max, self.poll == nil ? .max : self.releaseAt)
    }

    /// Sends messages, which stay together and in order.
    ///
    /// - Returns: Whether they were taken. They are not when the session is closed or closing, when too much waits already,
    ///   which closes it, or when a text for polling holds the record separator, which only a WebSocket can carry.
    @discardableResult
    package mutating func send(_ messages: [EngineIOMessage], into actions: inout [EngineIOAction]) -> Bool {
        guard self.isOpen else { return false }
        guard let webSocket else { return self.hold(messages, into: &actions) }
        for message in messages { Self.write(.message(message), on: webSocket, into: &actions) }
        self.messagesSent += UInt64(messages.count)
        self.messagesWritten = self.messagesSent
        return true
    }

    /// Notes messages that the owner writes itself, as frames that sessions share; they are counted as sent.
    ///
    /// - Returns: The WebSocket to write them on at once; nil if messages must go through ``send(_:into:)``.
    package mutating func writing(messages count: Int) -> EngineIOCarrier? {
        guard self.isOpen, let webSocket else { return nil }
        self.messagesSent += UInt64(count)
        self.messagesWritten = self.messagesSent
        return webSocket
    }

    private mutating func hold(_ messages: [EngineIOMessage], into actions: inout [EngineIOAction]) -> Bool {
        guard messages.allSatisfy({ $0.fitsPolling }) else { return false }
        let packets = messages.map { EngineIOPacket.message($0) }
        let bytes = packets.reduce(0) { $0 + Self.cost(of: $1) }
        guard self.waitingBytes + bytes <= self.configuration.maximumWaiting else {
            self.finish(.tooMuchWaiting, into: &actions)
            return false
        }
        self.waiting.append(contentsOf: packets)
        self.waitingBytes += bytes
        self.messagesSent += UInt64(messages.count)
        self.answerPoll(into: &actions)
        return true
    }

    /// Does what is due: pings and their timeout, the end of an upgrade, the release of a poll, the end of a close.
    package mutating func tick(now: Milliseconds, into actions: inout [EngineIOAction]) {
        if let upgrade, now >= upgrade.deadline { self.dropUpgrade(code: 1000, into: &actions) }
        if now >= self.releaseAt { self.releasePoll(into: &actions) }
        guard now >= self.deadline else { return }
        switch self.phase {
        case .closed: break
        case .closing: self.finish(self.closeReason, into: &actions)
        case .polling, .webSocket:
            guard !self.awaitsPong else { return self.finish(.pingTimeout, into: &actions) }
            self.awaitsPong = true
            // A late tick takes its lateness from the client's time, but never more than half of it.
            let timeout = self.configuration.pingTimeout
            self.deadline = max(self.deadline + timeout, now + timeout / 2)
            self.ping(into: &actions)
        }
    }

    private mutating func ping(into actions: inout [EngineIOAction]) {
        let packet = EngineIOPacket.ping([])
        if let webSocket { return Self.write(packet, on: webSocket, into: &actions) }
        self.waiting.append(packet)
        self.waitingBytes += Self.cost(of: packet)
        // Pings go on during an upgrade; only messages wait for its end.
        if self.upgrade?.isProbed == true { self.releasePoll(into: &actions) }
        self.answerPoll(into: &actions)
    }

    /// Does what a packet of the client asks, whichever way it came.
    mutating func receive(_ packet: EngineIOPacket, now: Milliseconds, into actions: inout [EngineIOAction]) {
        switch packet {
        case .close where self.phase != .closed: self.finish(.transportClose, pollGets: .noop, into: &actions)
        // While it closes nothing but the client's own close matters.
        case _ where !self.isOpen: break
        case .message(let message): actions.append(.deliver(message))
        case .ping: self.finish(.pingFromClient, into: &actions)
        case .pong:
            guard self.awaitsPong else { return }
            self.awaitsPong = false
            self.deadline = now + self.configuration.pingInterval
        // Out of place, but nothing is lost by it; clients are used to servers that let it pass.
        case .open, .upgrade, .noop, .close: break
        }
    }

    static func write(_ packet: EngineIOPacket, on carrier: EngineIOCarrier, into actions: inout [EngineIOAction]) {
        if case .message(.binary(let bytes)) = packet {
            actions.append(.sendBinary(carrier, bytes))
        } else if let text = packet.text {
            actions.append(.sendText(carrier, text))
        }
    }

    static func cost(of packet: EngineIOPacket) -> Int {
        EngineIOPayload.length(of: packet) + EngineIOConfiguration.packetOverhead
    }
}
