// Carillon · AccessTokens.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Synchronization

/// The OAuth access tokens that were given out.
///
/// At most 10,000 live: beyond that the one to expire first is dropped.
final class AccessTokens: Sendable {
    /// What Google grants, in seconds.
    static let lifetime = 3599
    private static let limit = 10_000

    private struct Desk {
        var asked = 0
        var issued = 0
        var fault: TokenFault?
    }

    /// The `Authorization` value that carries a token, with the time of its end.
    private let live = Mutex<[String: Date]>([:])
    private let desk = Mutex(Desk())

    /// What becomes of requests; nil for tokens.
    var fault: TokenFault? {
        get { self.desk.withLock { $0.fault } }
        set { self.desk.withLock { $0.fault = newValue } }
    }

    /// How many valid requests there were, and how many tokens were given out.
    var counts: (asked: Int, issued: Int) { self.desk.withLock { ($0.asked, $0.issued) } }

    /// Counts a valid request and tells what becomes of it.
    func ask() -> TokenFault? {
        self.desk.withLock { desk in
            desk.asked += 1
            return desk.fault
        }
    }

    /// Makes a new token.
    func issue(at now: Date) -> String {
        let random = (0..<8).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }
        let token = "ya29.c." + random.joined(separator: "-")
        self.desk.withLock { $0.issued += 1 }
        self.live.withLock { live in
            if live.count >= Self.limit {
                live = live.filter { $0.value > now }
                if live.count >= Self.limit, let first = live.min(by: { $0.value < $1.value }) {
                    live.removeValue(forKey: first.key)
                }
            }
            live["Bearer " + token] = now.addingTimeInterval(Double(Self.lifetime))
        }
        return token
    }

    /// Whether an `Authorization` value carries a live token.
    func accepts(_ authorization: String, at now: Date) -> Bool {
        let key: String
        if authorization.hasPrefix("Bearer ") {
            key = authorization
        } else if authorization.prefix(7).lowercased() == "bearer " {
            key = "Bearer " + authorization.dropFirst(7)
        } else {
            return false
        }
        return self.live.withLock { live in live[key].map { $0 > now } ?? false }
    }

    /// Forgets them all.
    func revokeAll() {
        self.live.withLock { $0.removeAll() }
    }
}
