// Carillon · EngineIOStateMachine.swift
// SPDX-License-Identifier: Apache-2.0

/// An Engine.IO 4 session on the server: polling, WebSocket, and the upgrade from polling to
/// WebSocket.
///
/// Pure: no channel, no clock, no task. Each call appends actions to a list; the owner carries them
/// out in order and calls ``tick(now:into:)`` at ``nextDeadline``. Times must never go back. An
/// idle session allocates nothing.
///
/// ``EngineIOConfiguration/maximumWaiting`` limits the packets that wait for a poll; above it, the
/// session closes with `tooMuchWaiting`. The owner limits the unwritten output of a WebSocket.
package struct EngineIOStateMachine: Sendable {
    enum Phase: UInt8 {
        case polling
        case webSocket
        /// Closed by the server; waits for a request that can carry the close.
        case closing
        case closed
    }

    /// A WebSocket that wants to take over.
    struct Upgrade {
        let carrier: EngineIOCarrier
        let deadline: Milliseconds
        /// Once true, messages wait and polls are released with a noop or a ping.
        var isProbed = false
    }

    /// The time limit from opening a WebSocket to its upgrade packet.
    private static let upgradeTimeout: Milliseconds = 10_000
    /// The time after which a poll is released during an upgrade, so that the client can proceed.
    private static let upgradeRelease: Milliseconds = 100
    /// The time that a session closed by the server waits for such a request.
    private static let closeLinger: Milliseconds = 30_000
    /// The packets in an answer to a poll; some clients reject more than 16.
    private static let maximumPacketsSent = 16

    package let configuration: EngineIOConfiguration
    var phase: Phase
    /// The time of the next ping, the deadline for a pong, or the end of lingering while closing.
    var deadline: Milliseconds
    /// Whether a ping waits for its pong.
    package internal(set) var awaitsPong = false
    var closeReason: EngineIOCloseReason = .forcedClose
    /// The request that waits for packets.
    var poll: EngineIOCarrier?
    /// The release time of a poll that waits during an upgrade.
    var releaseAt: Milliseconds = .max
    /// The post whose body is incomplete.
    var post: EngineIOCarrier?
    var webSocket: EngineIOCarrier?
    var upgrade: Upgrade?
    /// Packets that wait for a poll or for the end of an upgrade.
    package internal(set) var waiting: [EngineIOPacket] = []
    package internal(set) var waitingBytes = 0
    /// The number of messages written, in answers or on a WebSocket.
    var messagesWritten: UInt64 = 0

    /// The number of messages accepted for sending since the handshake.
    package internal(set) var messagesSent: UInt64 = 0
    /// The number of messages that the client has proven to have, by its next poll or by its
    /// upgrade.
    ///
    /// Does not advance on a WebSocket: there the owner proves delivery with its own pings.
    package internal(set) var messagesProven: UInt64 = 0
    private var repeats = PollRepeats()

    /// Opens a session over polling; the poll gets the handshake.
    package init(
        sid: String,
        polling request: EngineIOCarrier,
        mark: PollMark? = nil,
        configuration: EngineIOConfiguration,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.configuration = configuration
        self.phase = .polling
        self.repeats = PollRepeats(first: mark, at: now)
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

    /// The current transport; nil after the end.
    package var transport: EngineIOTransport? {
        switch self.phase {
        case .polling, .closing: .polling
        case .webSocket: .webSocket
        case .closed: nil
        }
    }

    /// Whether messages can be sent.
    var isOpen: Bool { self.phase == .polling || self.phase == .webSocket }

    /// The time of the next ``tick(now:into:)``; nil after the end.
    package var nextDeadline: Milliseconds? {
        guard self.phase != .closed else { return nil }
        return min(self.deadline, self.upgrade?.deadline ?? .max, self.poll == nil ? .max : self.releaseAt)
    }

    /// Sends messages, which stay together and in order.
    ///
    /// - Returns: whether they were accepted. They are not if the session is closed or closing, if
    ///   too much waits already (which closes it), or if a text for polling contains the record
    ///   separator, which only a WebSocket can carry.
    @discardableResult
    package mutating func send(_ messages: [EngineIOMessage], into actions: inout [EngineIOAction]) -> Bool {
        guard self.isOpen else { return false }
        guard let webSocket else { return self.enqueue(messages, into: &actions) }
        for message in messages { Self.write(.message(message), on: webSocket, into: &actions) }
        self.messagesSent += UInt64(messages.count)
        self.messagesWritten = self.messagesSent
        return true
    }

    /// Counts messages that the owner writes itself, as frames that sessions share.
    ///
    /// - Returns: the WebSocket to write them on at once; nil if they must go through
    ///   ``send(_:into:)``.
    package mutating func writing(messages count: Int) -> EngineIOCarrier? {
        guard self.isOpen, let webSocket else { return nil }
        self.messagesSent += UInt64(count)
        self.messagesWritten = self.messagesSent
        return webSocket
    }

    /// Drops the messages that no poll has fetched, and counts them as never sent.
    package mutating func discardWaiting() {
        self.waiting = self.waiting.filter { !$0.isMessage }
        self.waitingBytes = self.waiting.reduce(0) { $0 + Self.cost(of: $1) }
        self.messagesSent = self.messagesWritten
    }

    private mutating func enqueue(_ messages: [EngineIOMessage], into actions: inout [EngineIOAction]) -> Bool {
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

    /// Sends a due ping, releases a due poll, and applies the timeouts of pongs, upgrades and
    /// lingering.
    package mutating func tick(now: Milliseconds, into actions: inout [EngineIOAction]) {
        self.catchUp(now: now, into: &actions)
        if self.isOpen, self.awaitsPong, now >= self.deadline { self.finish(.pingTimeout, into: &actions) }
    }

    /// Runs what is due, before input of the client is handled.
    ///
    /// The input may be a pong that arrived during a stall, so an overdue pong does not end the
    /// session here.
    private mutating func catchUp(now: Milliseconds, into actions: inout [EngineIOAction]) {
        if let upgrade, now >= upgrade.deadline { self.dropUpgrade(.normal, into: &actions) }
        if now >= self.releaseAt { self.releasePoll(into: &actions) }
        guard now >= self.deadline else { return }
        switch self.phase {
        case .closed: break
        case .closing: self.finish(self.closeReason, into: &actions)
        case .polling, .webSocket:
            guard !self.awaitsPong else { return }
            self.awaitsPong = true
            // A late tick shortens the client's time by the delay, but by half at most.
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
        // Pings continue during an upgrade; only messages wait for its end.
        if self.upgrade?.isProbed == true { self.releasePoll(into: &actions) }
        self.answerPoll(into: &actions)
    }

    /// Handles a packet from the client over either transport.
    mutating func receive(_ packet: EngineIOPacket, now: Milliseconds, into actions: inout [EngineIOAction]) {
        switch packet {
        case .close where self.phase != .closed: self.finish(.transportClose, pollGets: .noop, into: &actions)
        // While closing, only the client's own close matters.
        case _ where !self.isOpen: break
        case .message(let message): actions.append(.deliver(message))
        case .ping: self.finish(.pingFromClient, into: &actions)
        case .pong:
            guard self.awaitsPong else { return }
            self.awaitsPong = false
            self.deadline = now + self.configuration.pingInterval
        // Out of place but harmless; other servers ignore it too.
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

extension EngineIOStateMachine {
    /// Handles a GET, which asks for packets.
    ///
    /// A repeated GET ends the session, because the answer to the first was lost.
    package mutating func pollRequested(
        _ request: EngineIOCarrier,
        mark: PollMark? = nil,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.catchUp(now: now, into: &actions)
        switch self.phase {
        case .closed: actions.append(.respond(request, EngineIORefusal.unknownSession.response))
        case .webSocket: actions.append(.respond(request, EngineIORefusal.badRequest.response))
        case .polling, .closing:
            guard self.poll == nil else {
                self.answerPoll(with: [.close], into: &actions)
                actions.append(.respond(request, EngineIORefusal.badRequest.response))
                return self.finish(.overlappingPolls, into: &actions)
            }
            guard !self.repeats.isRepeat(mark, now: now) else {
                actions.append(.respond(request, EngineIORefusal.unknownSession.response))
                return self.finish(.transportError, into: &actions)
            }
            // A new poll proves that the client has the last answer.
            self.messagesProven = self.messagesWritten
            self.poll = request
            if self.phase == .closing { return self.answerClosing(alone: [.noop, .close], into: &actions) }
            if self.upgrade?.isProbed == true { self.scheduleRelease(now: now) }
            self.answerPoll(into: &actions)
        }
    }

    /// Ends the session because its waiting poll was aborted.
    ///
    /// An answered poll does not count: connections normally close after answers.
    package mutating func pollAborted(_ request: EngineIOCarrier, into actions: inout [EngineIOAction]) {
        guard self.poll == request else { return }
        self.poll = nil
        self.finish(.transportError, into: &actions)
    }

    /// Handles the start of a POST; its body follows in ``postCompleted(_:body:now:into:)``.
    ///
    /// - Returns: whether the body is wanted; if not, the actions contain the answer.
    package mutating func postStarted(
        _ request: EngineIOCarrier,
        contentType: String?,
        contentLength: Int?,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) -> Bool {
        self.catchUp(now: now, into: &actions)
        if self.phase == .closed {
            actions.append(.respond(request, EngineIORefusal.unknownSession.response))
        } else if self.phase == .webSocket {
            actions.append(.respond(request, EngineIORefusal.badRequest.response))
        } else if self.post != nil {
            actions.append(.respond(request, EngineIORefusal.badRequest.response))
            self.finish(.overlappingPosts, into: &actions)
        } else if Self.isOctetStream(contentType) {
            actions.append(.respond(request, EngineIORefusal.badRequest.response))
            self.finish(.invalidContentType, into: &actions)
        } else if contentLength ?? 0 > self.configuration.maximumPayload {
            actions.append(.respond(request, .tooLarge))
        } else {
            self.post = request
            return true
        }
        return false
    }

    /// Handles a POST's body; one that is too large may be cut after
    /// ``EngineIOConfiguration/maximumPayload`` + 1 bytes.
    ///
    /// One invalid packet discards the whole body and closes the session.
    package mutating func postCompleted(
        _ request: EngineIOCarrier,
        body: [UInt8],
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.catchUp(now: now, into: &actions)
        guard self.post == request else { return }
        self.post = nil
        guard body.count <= self.configuration.maximumPayload else {
            actions.append(.respond(request, .tooLarge))
            return
        }
        do {
            let packets = try EngineIOPayload.decode(
                body,
                maximumPackets: self.configuration.maximumPacketsReceived,
                maximumBytes: self.configuration.maximumPayload
            )
            actions.append(.respond(request, .ok))
            for packet in packets { self.receive(packet, now: now, into: &actions) }
        } catch {
            actions.append(.respond(request, EngineIORefusal.badRequest.response))
            self.finish(.parseError, into: &actions)
        }
    }

    /// Ends the session because a POST's body was aborted or cut.
    package mutating func postAborted(_ request: EngineIOCarrier, into actions: inout [EngineIOAction]) {
        guard self.post == request else { return }
        self.post = nil
        self.finish(.transportError, into: &actions)
    }

    private static func isOctetStream(_ contentType: String?) -> Bool {
        let mediaType = contentType?.prefix { $0 != ";" }.filter { $0 != " " && $0 != "\t" }
        return mediaType?.lowercased() == "application/octet-stream"
    }

    /// Answers the waiting poll if packets wait and no upgrade holds them.
    mutating func answerPoll(into actions: inout [EngineIOAction]) {
        guard self.poll != nil, !self.waiting.isEmpty, self.upgrade?.isProbed != true else { return }
        self.answerPoll(with: self.takeWaiting(), into: &actions)
    }

    /// Answers the waiting poll.
    mutating func answerPoll(with packets: [EngineIOPacket], into actions: inout [EngineIOAction]) {
        guard let poll else { return }
        self.poll = nil
        self.releaseAt = .max
        actions.append(.respond(poll, .packets(packets)))
    }

    /// Answers the poll of a closing session with the waiting packets, and the close after the last
    /// of them.
    ///
    /// - Parameter alone: the answer if nothing waits.
    mutating func answerClosing(alone: [EngineIOPacket], into actions: inout [EngineIOAction]) {
        let shouldReconnect = self.closeReason.shouldReconnect
        guard !self.waiting.isEmpty else {
            if !shouldReconnect { self.answerPoll(with: alone, into: &actions) }
            return self.finish(self.closeReason, into: &actions)
        }
        let packets = self.takeWaiting(leaving: 1)
        let isLast = self.waiting.isEmpty
        self.answerPoll(with: isLast && !shouldReconnect ? packets + [.close] : packets, into: &actions)
        if isLast { self.finish(self.closeReason, into: &actions) }
    }

    /// Removes and returns the oldest waiting packets, as many as one answer takes, but at least
    /// one.
    private mutating func takeWaiting(leaving room: Int = 0) -> [EngineIOPacket] {
        var count = 0
        var bytes = 0
        for packet in self.waiting.prefix(Self.maximumPacketsSent - room) {
            bytes += EngineIOPayload.length(of: packet) + 1
            guard count == 0 || bytes <= self.configuration.maximumBytesSent else { break }
            count += 1
            self.waitingBytes -= Self.cost(of: packet)
            if packet.isMessage { self.messagesWritten += 1 }
        }
        let taken = Array(self.waiting.prefix(count))
        // Releases the storage, so that idle sessions keep none.
        if count == self.waiting.count { self.waiting = [] } else { self.waiting.removeFirst(count) }
        return taken
    }

    /// Schedules the release of a poll that waits during an upgrade, soon enough that the client
    /// can proceed.
    mutating func scheduleRelease(now: Milliseconds) {
        if self.poll != nil { self.releaseAt = now + Self.upgradeRelease }
    }

    /// Releases the waiting poll with the waiting ping, or with a noop.
    mutating func releasePoll(into actions: inout [EngineIOAction]) {
        guard self.poll != nil else { return }
        let ping = EngineIOPacket.ping([])
        guard let index = self.waiting.firstIndex(of: ping) else {
            return self.answerPoll(with: [.noop], into: &actions)
        }
        self.waiting.remove(at: index)
        self.waitingBytes -= Self.cost(of: ping)
        if self.waiting.isEmpty { self.waiting = [] }
        self.answerPoll(with: [ping], into: &actions)
    }
}

extension EngineIOStateMachine {
    /// Handles a new WebSocket that wants to take over the session.
    ///
    /// Closes it at once if another one is taking over or already has.
    package mutating func webSocketOpened(
        _ carrier: EngineIOCarrier,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.catchUp(now: now, into: &actions)
        guard self.phase == .polling, self.upgrade == nil else {
            actions.append(.closeWebSocket(carrier, .policyViolation))
            return
        }
        self.upgrade = Upgrade(carrier: carrier, deadline: now + Self.upgradeTimeout)
    }

    /// Handles a text message on a WebSocket; its UTF-8 was validated before.
    package mutating func webSocketText(
        _ carrier: EngineIOCarrier,
        _ text: [UInt8],
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.catchUp(now: now, into: &actions)
        let packet = Result { () throws(EngineIOFault) in try EngineIOPacket(text: text[...]) }
        if carrier == self.webSocket {
            switch packet {
            case .success(let packet): self.receive(packet, now: now, into: &actions)
            case .failure: self.finish(.parseError, into: &actions)
            }
        } else if let upgrade, carrier == upgrade.carrier {
            switch packet {
            case .success(.ping(EngineIOPacket.probe)): self.probed(upgrade, now: now, into: &actions)
            case .success(.upgrade) where upgrade.isProbed: self.takeOver(carrier, into: &actions)
            default: self.dropUpgrade(.protocolError, into: &actions)
            }
        }
    }

    /// Handles a binary message on a WebSocket.
    package mutating func webSocketBinary(
        _ carrier: EngineIOCarrier,
        _ bytes: [UInt8],
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.catchUp(now: now, into: &actions)
        if carrier == self.webSocket {
            self.receive(.message(.binary(bytes)), now: now, into: &actions)
        } else if carrier == self.upgrade?.carrier {
            self.dropUpgrade(.protocolError, into: &actions)
        }
    }

    /// Handles the end of a WebSocket, closed by the client or failed.
    ///
    /// If it had not taken over, the session continues with polling.
    package mutating func webSocketClosed(
        _ carrier: EngineIOCarrier,
        failed: Bool = false,
        into actions: inout [EngineIOAction]
    ) {
        if carrier == self.webSocket {
            self.webSocket = nil
            self.finish(failed ? .transportError : .transportClose, into: &actions)
        } else if carrier == self.upgrade?.carrier {
            self.upgrade = nil
            self.resumePolling(into: &actions)
        }
    }

    private mutating func probed(_ upgrade: Upgrade, now: Milliseconds, into actions: inout [EngineIOAction]) {
        Self.write(.pong(EngineIOPacket.probe), on: upgrade.carrier, into: &actions)
        guard !upgrade.isProbed else { return }
        self.upgrade?.isProbed = true
        self.scheduleRelease(now: now)
    }

    /// Moves the session to the WebSocket after the client's last poll; held messages follow there.
    private mutating func takeOver(_ carrier: EngineIOCarrier, into actions: inout [EngineIOAction]) {
        self.upgrade = nil
        self.answerPoll(with: [.noop], into: &actions)
        self.phase = .webSocket
        self.webSocket = carrier
        self.messagesProven = self.messagesWritten
        actions.append(.upgraded(carrier))
        for packet in self.waiting { Self.write(packet, on: carrier, into: &actions) }
        self.waiting = []
        self.waitingBytes = 0
        self.messagesWritten = self.messagesSent
    }

    /// Aborts an upgrade; polling continues.
    mutating func dropUpgrade(_ code: WebSocketCloseCode, into actions: inout [EngineIOAction]) {
        guard let upgrade else { return }
        self.upgrade = nil
        actions.append(.closeWebSocket(upgrade.carrier, code))
        self.resumePolling(into: &actions)
    }

    private mutating func resumePolling(into actions: inout [EngineIOAction]) {
        self.releaseAt = .max
        self.answerPoll(into: &actions)
    }
}

extension EngineIOStateMachine {
    /// Closes the session on behalf of the owner.
    ///
    /// A WebSocket closes at once. Over polling the client learns of it with the waiting poll, or
    /// with the next one within ``closeLinger``, after its unfetched messages. Until then nothing
    /// more is delivered or accepted; ``EngineIOAction/closed(_:)`` follows at the end.
    ///
    /// - Parameter lingers: whether to wait for a poll; if not, only an already waiting one is
    ///   answered.
    package mutating func close(
        _ reason: EngineIOCloseReason,
        lingers: Bool = true,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        switch self.phase {
        case .closing, .closed: break
        case .webSocket: self.finish(reason, into: &actions)
        case .polling where !lingers: self.finish(reason, into: &actions)
        case .polling:
            self.phase = .closing
            self.closeReason = reason
            self.deadline = now + Self.closeLinger
            if let upgrade {
                self.upgrade = nil
                self.releaseAt = .max
                actions.append(.closeWebSocket(upgrade.carrier, reason.webSocketCode))
            }
            if self.poll != nil { self.answerClosing(alone: [.close], into: &actions) }
        }
    }

    /// Ends the session: answers every request and closes every WebSocket.
    mutating func finish(
        _ reason: EngineIOCloseReason,
        pollGets packet: EngineIOPacket = .close,
        into actions: inout [EngineIOAction]
    ) {
        guard self.phase != .closed else { return }
        self.phase = .closed
        // Some clients, such as python-engineio, never reconnect after a close packet. All of them
        // reconnect after an unknown session, which another server would answer too.
        if reason.shouldReconnect, let poll {
            self.poll = nil
            actions.append(.respond(poll, EngineIORefusal.unknownSession.response))
        }
        self.answerPoll(with: [packet], into: &actions)
        if let post { actions.append(.respond(post, EngineIORefusal.badRequest.response)) }
        if let webSocket { actions.append(.closeWebSocket(webSocket, reason.webSocketCode)) }
        if let upgrade { actions.append(.closeWebSocket(upgrade.carrier, reason.webSocketCode)) }
        self.post = nil
        self.webSocket = nil
        self.upgrade = nil
        self.waiting = []
        self.waitingBytes = 0
        actions.append(.closed(reason))
    }
}
