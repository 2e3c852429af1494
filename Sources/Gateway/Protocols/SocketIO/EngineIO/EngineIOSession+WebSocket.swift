// Carillon · EngineIOSession+WebSocket.swift
// SPDX-License-Identifier: Apache-2.0

extension EngineIOSession {
    /// A WebSocket with the session's id is open and wants to take over.
    ///
    /// It is closed at once if another one does already, or did.
    package mutating func webSocketOpened(
        _ carrier: EngineIOCarrier,
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.tick(now: now, into: &actions)
        guard self.phase == .polling, self.upgrade == nil, self.configuration.allowsUpgrade else {
            actions.append(.closeWebSocket(carrier, code: 1008))
            return
        }
        self.upgrade = Upgrade(carrier: carrier, deadline: now + self.configuration.upgradeTimeout)
    }

    /// A text message came on a WebSocket; its UTF-8 is already checked.
    package mutating func webSocketText(
        _ carrier: EngineIOCarrier,
        _ text: [UInt8],
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.tick(now: now, into: &actions)
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
            default: self.dropUpgrade(code: 1002, into: &actions)
            }
        }
    }

    /// A binary message came on a WebSocket.
    package mutating func webSocketBinary(
        _ carrier: EngineIOCarrier,
        _ bytes: [UInt8],
        now: Milliseconds,
        into actions: inout [EngineIOAction]
    ) {
        self.tick(now: now, into: &actions)
        if carrier == self.webSocket {
            self.receive(.message(.binary(bytes)), now: now, into: &actions)
        } else if carrier == self.upgrade?.carrier {
            self.dropUpgrade(code: 1002, into: &actions)
        }
    }

    /// A WebSocket is closed, by the client or because it failed.
    ///
    /// One that had not taken over leaves the session to polling.
    package mutating func webSocketClosed(
        _ carrier: EngineIOCarrier,
        failed: Bool = false,
        now: Milliseconds,
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
        self.scheduleRelease(now: now, into: &actions)
    }

    /// The client has finished its last poll and goes on with the WebSocket; what waited follows there.
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

    /// Ends an attempt to upgrade; polling goes on.
    mutating func dropUpgrade(code: UInt16, into actions: inout [EngineIOAction]) {
        guard let upgrade else { return }
        self.upgrade = nil
        actions.append(.closeWebSocket(upgrade.carrier, code: code))
        self.resumePolling(into: &actions)
    }

    private mutating func resumePolling(into actions: inout [EngineIOAction]) {
        self.releaseAt = .max
        self.answerPoll(into: &actions)
    }
}
