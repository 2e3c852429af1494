// Carillon · PolledProofs.swift
// SPDX-License-Identifier: Apache-2.0

/// The proofs awaited from a polling client; each is given once the client has a certain number of
/// messages.
struct PolledProofs {
    private var awaited: [(sequence: UInt64, messages: UInt64)] = []

    /// The last proof that is awaited.
    var last: UInt64? { self.awaited.last?.sequence }

    /// Awaits a proof of everything up to a message; it replaces an earlier one for that message.
    mutating func await(_ sequence: UInt64, after messages: UInt64) {
        if self.awaited.last?.messages == messages { self.awaited.removeLast() }
        self.awaited.append((sequence, messages))
    }

    /// Removes the proofs that are given once a client has this many messages.
    ///
    /// - Returns: the last of them, which covers the others.
    mutating func settle(_ messages: UInt64) -> UInt64? {
        let settled = self.awaited.prefix { $0.messages <= messages }
        // Frees the storage while the socket is idle.
        if settled.count == self.awaited.count { self.awaited = [] } else { self.awaited.removeFirst(settled.count) }
        return settled.last?.sequence
    }

    mutating func removeAll() { self.awaited = [] }
}
