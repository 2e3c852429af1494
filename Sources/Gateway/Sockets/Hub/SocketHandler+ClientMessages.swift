// Carillon · SocketHandler+ClientMessages.swift
// SPDX-License-Identifier: Apache-2.0

import Model

/// What a client asks for.
extension SocketHandler {
    /// Takes one message off the client's allowance; a client that has none left is closed.
    func spend() -> Bool {
        guard self.allowance > 0 else {
            self.close(.policyViolation, reason: "too many messages")
            return false
        }
        self.allowance -= 1
        return true
    }

    func receive(_ text: String) {
        guard self.phase != .closing, self.spend() else { return }
        do throws(ClientFault) {
            let (message, reference) = try NativeDialect.decode(text)
            self.obey(message, reference)
        } catch {
            self.send(NativeDialect.error(error.reason, reference: error.reference))
        }
    }

    private func obey(_ message: ClientMessage, _ reference: [UInt8]?) {
        switch (message, self.identity) {
        case (.auth(let token), _):
            if !self.shard.authenticate(self, token: token, reference: reference) { self.sayBusy(reference) }
        case (_, nil):
            self.send(NativeDialect.error("send auth first", reference: reference))
        case (.resume(let version), _):
            self.since = version
            if self.phase == .open, !self.requestChanges(since: version) { self.sayBusy(reference) }
        case (.acknowledge(let ids), _):
            self.report(self.proofs.acknowledge(Set(ids)))
            self.answerDone(reference)
        case (.focus, _):
            self.answerDone(reference)
        case (.read(let ids), .some(let identity)):
            if !self.shard.request(.markRead(self, user: identity.user, ids: ids, reference: reference)) {
                self.sayBusy(reference)
            }
        case (.unread, .some(let identity)):
            if !self.shard.request(.unread(self, user: identity.user, reference: reference)) {
                self.sayBusy(reference)
            }
        }
    }

    func answerDone(_ reference: [UInt8]?) {
        if let reference { self.send(NativeDialect.done(reference: reference)) }
    }

    private func sayBusy(_ reference: [UInt8]?) {
        self.send(NativeDialect.error("the server is busy, try again", reference: reference))
    }
}
