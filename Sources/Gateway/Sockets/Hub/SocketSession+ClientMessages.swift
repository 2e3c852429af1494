// Carillon · SocketSession+ClientMessages.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a client asks for.
extension SocketSession {
    /// Takes one message off the client's allowance; a client that has none left is closed.
    func spend() -> Bool {
        guard self.phase != .closing else { return false }
        guard self.allowance > 0 else {
            self.close(.policyViolation("too many messages"))
            return false
        }
        self.allowance -= 1
        self.unreported += 1
        guard self.unreported >= self.shard.configuration.messagesPerReport, let user = self.identity?.user else {
            return true
        }
        let count = self.unreported
        self.unreported = 0
        if self.shard.admits(messages: count, of: user) { return true }
        self.close(.policyViolation("too many messages on all sockets of this user"))
        return false
    }

    /// Obeys a message; `reference` comes back with the answer.
    func obey(_ message: ClientMessage, reference: [UInt8]?) {
        switch (message, self.identity) {
        case (.auth(let token), _):
            self.checks += 1
            guard !self.shard.request(.authenticate(self, token: token, reference: reference)) else { return }
            self.checks -= 1
            self.sayBusy(reference)
        case (_, nil):
            self.wire?.answer(.error("send auth first"), to: reference)
        case (.resume(let version), _):
            if !self.resume(Resumption(version: version, reference: reference)) { self.sayBusy(reference) }
        case (.resync, _):
            self.resync()
            self.wire?.answer(.done, to: reference)
        case (.acknowledge(let ids), _):
            self.report(self.proofs.acknowledge(Set(ids)))
            self.wire?.answer(.done, to: reference)
        case (.focus(let isActive), .some(let identity)):
            self.focus(isActive, identity)
            self.wire?.answer(.done, to: reference)
        case (.read, .some) where self.phase == .opening, (.unread, .some) where self.phase == .opening:
            if !self.hold(message, reference: reference) { self.sayBusy(reference) }
        case (.read(let ids, let isBulk), .some(let identity)):
            let reading = Reading(user: identity.user, ids: ids, isBulk: isBulk)
            self.hand(.markRead(self, reading, reference: reference), reference)
        case (.unread, .some(let identity)):
            self.hand(.unread(self, user: identity.user, reference: reference), reference)
        }
    }

    /// The presence that a client never speaks of stays active.
    private func focus(_ isActive: Bool, _ identity: SocketIdentity) {
        let state: ConnectionPresence.State = isActive ? .active : .idle
        guard state != self.state else { return }
        self.state = state
        // Before that, presence is not registered; `opened` tells it then.
        if self.phase == .open { self.shard.presence(self, user: identity.user) }
    }

    private func hand(_ request: HubShard.Request, _ reference: [UInt8]?) {
        if !self.shard.request(request) { self.sayBusy(reference) }
    }

    func sayBusy(_ reference: [UInt8]?) {
        self.wire?.answer(.busy("the server is busy, try again"), to: reference)
    }
}
