// Carillon · SocketIORecovery.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Protocols

/// What a client of Socket.IO had before it was cut off: its id there, and the version of its inbox.
///
/// The `pid` is the id with a digest of id and user, so that nobody resumes by another user's version. It opens nothing by
/// itself: the token is checked all the same.
struct SocketIORecovery {
    /// The client's id of before.
    let id: String
    let version: Int64
    private let digest: String

    /// Nil if it says nothing that could have been ours.
    init?(_ recovery: SocketIOConnectRequest.Recovery) {
        let parts = recovery.pid.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 2, (1...64).contains(parts[0].utf8.count), let version = Int64(recovery.offset),
            version >= 0
        else { return nil }
        self.id = String(parts[0])
        self.digest = String(parts[1])
        self.version = version
    }

    func isOf(user: String) -> Bool { self.digest == Self.digest(self.id, user) }

    /// The `pid` of a client by the name that it has there.
    static func pid(id: String, user: String) -> String { "\(id).\(Self.digest(id, user))" }

    private static func digest(_ id: String, _ user: String) -> String {
        let digest = SHA256.hash(data: Array("\(id).\(user)".utf8))
        return digest.prefix(16).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}
