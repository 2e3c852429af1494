// Carillon · SocketSession+Tokens.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// By what a socket speaks for its user.
extension SocketSession {
    /// A token was found good.
    func authenticated(_ identity: SocketIdentity, reference: [UInt8]?) {
        self.checks -= 1
        switch self.phase {
        case .anonymous:
            self.identity = identity
            self.phase = .opening
            self.wire?.answer(.done, to: reference)
            self.shard.identified(self, identity: identity)
            self.shard.open(self, identity: identity, since: self.since)
        case .opening, .open:
            guard ExactText(identity.user) == self.identity.map({ ExactText($0.user) }) else {
                self.wire?.answer(.error("the token is another user's"), to: reference)
                break
            }
            self.identity = identity
            self.wire?.answer(.done, to: reference)
        case .closing: break
        }
        self.flush()
    }

    /// A token was refused.
    func refused(_ refusal: SocketRefusal, reference: [UInt8]?) {
        self.checks -= 1
        // A token that cannot be checked now may be good.
        let isTemporary = refusal.status == 503
        self.wire?.answer(isTemporary ? .busy(refusal.reason) : .error(refusal.reason), to: reference)
        if self.phase == .anonymous { self.close(isTemporary ? .tryAgainLater : .unauthorized(refusal.reason)) }
        self.flush()
    }

    /// Goes on by another token of its user's, unless that is older than its own.
    ///
    /// Requests may overtake each other, so that one with an older token can come later.
    func renew(_ identity: SocketIdentity) {
        guard self.phase != .closing, let current = self.identity,
            ExactText(identity.user) == ExactText(current.user), identity.isNewer(than: current)
        else { return }
        self.identity = identity
    }

    /// Ends the socket if its token was made before a moment.
    func revoke(before: Timestamp) {
        guard let identity, identity.issuedAt.map({ $0 < before }) ?? true else { return }
        self.close(.unauthorized("the token was revoked"))
        self.flush()
    }
}
