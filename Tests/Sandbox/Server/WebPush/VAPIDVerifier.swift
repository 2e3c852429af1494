// Carillon · VAPIDVerifier.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import Synchronization

/// Verifies VAPID credentials (RFC 8292), each header value once; the cache holds 1,000 and is
/// cleared when full.
final class VAPIDVerifier: Sendable {
    private static let cacheLimit = 1_000
    /// The longest lifetime of a token in seconds (RFC 8292 section 2).
    private static let longestLife = 86_400.0

    private struct Sender {
        let audience: String
        let expiry: Double
        /// The hash of the key, as in the subscription's endpoint.
        let mark: String
    }

    private let verified = Mutex<[String: Sender]>([:])

    /// Checks the credential of a request against the service's origin and the subscription's key.
    func check(_ authorization: String?, origin: String, mark: String, at now: Date) throws(WebPushRefusal) {
        guard let authorization else { throw .unauthorized("Missing Authorization") }
        let sender = try self.sender(authorization)
        let time = now.timeIntervalSince1970
        guard sender.audience == origin else { throw .unauthorized("VAPID: aud is not \(origin)") }
        guard sender.expiry > time else { throw .unauthorized("VAPID: the token has expired") }
        guard sender.expiry <= time + Self.longestLife else { throw .unauthorized("VAPID: exp is over a day ahead") }
        guard sender.mark == mark else { throw .forbidden }
    }

    private func sender(_ authorization: String) throws(WebPushRefusal) -> Sender {
        if let known = self.verified.withLock({ $0[authorization] }) { return known }
        let (text, key) = try Self.parameters(authorization)
        guard let bytes = JSONWebToken.decode(key.utf8), bytes.count == 65,
            let publicKey = try? P256.Signing.PublicKey(x963Representation: bytes)
        else { throw .unauthorized("VAPID: k is not a P-256 point") }
        guard let token = JSONWebToken(text), token.header.member("typ")?.string == "JWT",
            token.isSigned(by: publicKey)
        else { throw .unauthorized("VAPID: t has no valid ES256 signature by k") }
        guard let audience = token.claims.member("aud")?.string, let expiry = token.claims.member("exp")?.double else {
            throw .unauthorized("VAPID: aud and exp are required")
        }
        // Apple requires this claim.
        guard let subject = token.claims.member("sub")?.string,
            ["mailto:", "https:"].contains(where: { subject.hasPrefix($0) && subject.count > $0.count })
        else { throw .unauthorized("VAPID: sub must be mailto: or https:") }
        let sender = Sender(audience: audience, expiry: expiry, mark: SandboxSubscription.mark(bytes))
        self.verified.withLock { cache in
            if cache.count >= Self.cacheLimit { cache.removeAll() }
            cache[authorization] = sender
        }
        return sender
    }

    /// Parses `vapid t=…, k=…` in any order.
    private static func parameters(_ text: String) throws(WebPushRefusal) -> (token: Substring, key: Substring) {
        guard text.prefix(6).lowercased() == "vapid " else { throw .unauthorized("The scheme must be vapid") }
        var values: [Substring: Substring] = [:]
        for part in text.dropFirst(6).split(separator: ",") {
            let pair = part.drop { $0 == " " }.split(separator: "=", maxSplits: 1)
            if pair.count == 2 { values[pair[0]] = pair[1] }
        }
        guard let token = values["t"], let key = values["k"] else { throw .unauthorized("VAPID: t and k are required") }
        return (token, key)
    }
}
