// Carillon · EngineIOSession+Closing.swift
// SPDX-License-Identifier: Apache-2.0

extension EngineIOSession {
    /// The owner closes the session.
    ///
    /// A WebSocket is closed at once. Over polling the client learns it by the poll that waits, or by the next one within
    /// ``EngineIOConfiguration/closeLinger``, after what it has not yet fetched; until then nothing more is delivered or
    /// taken, and ``EngineIOAction/closed(_:)`` comes at the end.
    ///
    /// - Parameter lingers: Whether it waits for a poll; if not, only the one that waits already is told.
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
            self.deadline = now + self.configuration.closeLinger
            if let upgrade {
                self.upgrade = nil
                self.releaseAt = .max
                actions.append(.closeWebSocket(upgrade.carrier, code: reason.webSocketCode))
            }
            if self.poll != nil { self.answerClosing(alone: [.close], into: &actions) }
        }
    }

    /// Ends the session: every request gets its answer, every WebSocket is closed.
    mutating func finish(
        _ reason: EngineIOCloseReason,
        pollGets packet: EngineIOPacket = .close,
        into actions: inout [EngineIOAction]
    ) {
        guard self.phase != .closed else { return }
        self.phase = .closed
        // Clients differ in what a close packet means to them: python-engineio stays away for good. An unknown session, which
        // the next server would answer as well, has all of them come back.
        if reason.isToComeBack, let poll {
            self.poll = nil
            actions.append(.respond(poll, EngineIORefusal.unknownSession.response))
        }
        self.answerPoll(with: [packet], into: &actions)
        if let post { actions.append(.respond(post, EngineIORefusal.badRequest.response)) }
        if let webSocket { actions.append(.closeWebSocket(webSocket, code: reason.webSocketCode)) }
        if let upgrade { actions.append(.closeWebSocket(upgrade.carrier, code: reason.webSocketCode)) }
        self.post = nil
        self.webSocket = nil
        self.upgrade = nil
        self.waiting = []
        self.waitingBytes = 0
        actions.append(.closed(reason))
    }
}
