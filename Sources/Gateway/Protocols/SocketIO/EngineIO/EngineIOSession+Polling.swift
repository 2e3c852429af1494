// Carillon · EngineIOSession+Polling.swift
// SPDX-License-Identifier: Apache-2.0

extension EngineIOSession {
    /// A GET asks for packets.
    package mutating func pollRequested(
        _ request: EngineIOCarrier,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.tick(now: now, into: &actions)
        switch self.phase {
        case .closed: actions.append(.respond(request, EngineIORefusal.unknownSession.response))
        case .webSocket: actions.append(.respond(request, EngineIORefusal.badRequest.response))
        case .polling, .closing:
            guard self.poll == nil else {
                self.answerPoll(with: [.close], into: &actions)
                actions.append(.respond(request, EngineIORefusal.badRequest.response))
                return self.finish(.overlappingPolls, into: &actions)
            }
            // A client polls again only when it has the last answer.
            self.messagesProven = self.messagesWritten
            self.poll = request
            if self.phase == .closing { return self.answerClosing(alone: [.noop, .close], into: &actions) }
            if self.upgrade?.isProbed == true { self.scheduleRelease(now: now, into: &actions) }
            self.answerPoll(into: &actions)
        }
    }

    /// The client went away while its poll waited, which ends the session.
    ///
    /// An answered poll is no concern of it: connections close after answers as a matter of course.
    package mutating func pollAborted(
        _ request: EngineIOCarrier,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        guard self.poll == request else { return }
        self.poll = nil
        self.finish(.transportError, into: &actions)
    }

    /// A POST begins; its body comes by ``postCompleted(_:body:now:into:)``.
    ///
    /// - Returns: Whether the body is wanted. If not, the answer is among the actions.
    package mutating func postStarted(
        _ request: EngineIOCarrier,
        contentType: String?,
        contentLength: Int?,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) -> Bool {
        self.tick(now: now, into: &actions)
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

    /// A POST's body is here; one that is too large may be cut after ``EngineIOConfiguration/maximumPayload`` + 1 bytes.
    ///
    /// If anything in it is no packet, none of it counts, and the session closes.
    package mutating func postCompleted(
        _ request: EngineIOCarrier,
        body: [UInt8],
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.tick(now: now, into: &actions)
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

    /// The client went away in the middle of a body, or the body was cut, which ends the session.
    package mutating func postAborted(
        _ request: EngineIOCarrier,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        guard self.post == request else { return }
        self.post = nil
        self.finish(.transportError, into: &actions)
    }

    private static func isOctetStream(_ contentType: String?) -> Bool {
        let mediaType = contentType?.prefix { $0 != ";" }.filter { $0 != " " && $0 != "\t" }
        return mediaType?.lowercased() == "application/octet-stream"
    }

    /// Answers the waiting poll with what there is, if there is something and no upgrade holds it.
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

    /// Answers the waiting poll of a session that closes: with what waits, and at the end of it with the close.
    ///
    /// - Parameter alone: What the answer is if nothing waits.
    mutating func answerClosing(alone: [EngineIOPacket], into actions: inout [EngineIOAction]) {
        let isToComeBack = self.closeReason.isToComeBack
        guard !self.waiting.isEmpty else {
            if !isToComeBack { self.answerPoll(with: alone, into: &actions) }
            return self.finish(self.closeReason, into: &actions)
        }
        let packets = self.takeWaiting(leaving: 1)
        let isLast = self.waiting.isEmpty
        self.answerPoll(with: isLast && !isToComeBack ? packets + [.close] : packets, into: &actions)
        if isLast { self.finish(self.closeReason, into: &actions) }
    }

    /// The oldest of what waits, as much as one answer takes: at least one.
    private mutating func takeWaiting(leaving room: Int = 0) -> [EngineIOPacket] {
        var count = 0
        var bytes = 0
        for packet in self.waiting.prefix(self.configuration.maximumPacketsSent - room) {
            bytes += EngineIOPayload.length(of: packet) + 1
            guard count == 0 || bytes <= self.configuration.maximumBytesSent else { break }
            count += 1
            self.waitingBytes -= Self.cost(of: packet)
            if packet.isMessage { self.messagesWritten += 1 }
        }
        let taken = Array(self.waiting.prefix(count))
        // An idle session keeps no storage.
        if count == self.waiting.count { self.waiting = [] } else { self.waiting.removeFirst(count) }
        return taken
    }

    /// A poll that waits during an upgrade goes back with a noop, soon enough that the client can go on.
    mutating func scheduleRelease(now: Milliseconds, into actions: inout [EngineIOAction]) {
        guard self.poll != nil else { return }
        self.releaseAt = now + self.configuration.upgradeRelease
        if self.configuration.upgradeRelease == 0 { self.releasePoll(into: &actions) }
    }

    /// Releases the waiting poll with the ping that waits, or with a noop.
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
