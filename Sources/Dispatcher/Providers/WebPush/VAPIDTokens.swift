// Carillon · VAPIDTokens.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// The `Authorization` values of one key, made once for each push service.
package final class VAPIDTokens: Sendable {
    /// Services take a token for a day at most (RFC 8292 section 2).
    private static let lifetime: Duration = .seconds(12 * 3_600)
    /// A token is used for half of its time, so that clocks may differ.
    private static let use: Duration = .seconds(6 * 3_600)

    private struct Token {
        let text: String
        let renewAt: Timestamp
    }

    private let key: VAPIDKey
    private let subject: String
    /// How many origins are remembered: there are four services of weight, and endpoints are others' words.
    private let capacity: Int
    private let tokens = Mutex<[String: Token]>([:])

    package init(key: VAPIDKey, subject: String, capacity: Int = 256) {
        self.key = key
        self.subject = subject
        self.capacity = capacity
    }

    /// What names us to the service at `origin`; at the capacity another one takes the place of some.
    package func authorization(origin: String, now: Timestamp) throws(VAPIDKey.Fault) -> String {
        if let known = self.tokens.withLock({ $0[origin] }), now < known.renewAt { return known.text }
        let token = try self.key.token(audience: origin, subject: self.subject, expiresAt: now + Self.lifetime)
        let text = "vapid t=\(token), k=\(self.key.publicKey)"
        self.tokens.withLock { tokens in
            if tokens.count >= self.capacity, tokens[origin] == nil {
                tokens = tokens.filter { now < $0.value.renewAt }
                while tokens.count >= self.capacity, let other = tokens.keys.first { tokens[other] = nil }
            }
            tokens[origin] = Token(text: text, renewAt: now + Self.use)
        }
        return text
    }

    /// How many are remembered.
    package var count: Int { self.tokens.withLock { $0.count } }
}
