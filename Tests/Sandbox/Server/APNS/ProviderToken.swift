// Carillon · ProviderToken.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Synchronization

/// A provider token with a valid signature.
struct ProviderToken: Sendable {
    /// The whole `authorization` value.
    let authorization: String
    /// The claim `iat`.
    let issuedAt: Date

    private static let lifetime: TimeInterval = 3600
    private static let updateInterval: TimeInterval = 20 * 60
    private static let clockSkew: TimeInterval = 300

    /// Whether the token is older than its lifetime of one hour.
    func hasExpired(at now: Date) -> Bool {
        now.timeIntervalSince(self.issuedAt) > Self.lifetime
    }

    /// Whether the token was issued in the future.
    func isPremature(at now: Date) -> Bool {
        self.issuedAt.timeIntervalSince(now) > Self.clockSkew
    }

    /// Whether this token follows `other` within 20 minutes, which APNs refuses on one connection.
    ///
    /// - Parameter change: when `other` took the place of another token; nil if it was the first.
    func isTooSoon(after other: ProviderToken, change: Date?, at now: Date) -> Bool {
        if let change, now.timeIntervalSince(change) < Self.updateInterval { return true }
        return abs(self.issuedAt.timeIntervalSince(other.issuedAt)) < Self.updateInterval
    }
}

/// Verifies APNs provider tokens, each one once; the cache holds 1,000 and is cleared when full.
final class ProviderTokenVerifier: Sendable {
    private static let cacheLimit = 1000

    private let provider: SandboxCredentials.Provider
    private let verified = Mutex<[String: ProviderToken]>([:])

    init(_ provider: SandboxCredentials.Provider) {
        self.provider = provider
    }

    /// Checks the token of a request, also against the previous token of its connection.
    func check(
        _ authorization: String?, on connection: inout SandboxConnection, at now: Date
    ) throws(APNSRefusal) {
        guard let authorization else { throw APNSRefusal(.missingProviderToken) }
        if let accepted = connection.providerToken, accepted.authorization == authorization {
            guard !accepted.hasExpired(at: now) else { throw APNSRefusal(.expiredProviderToken) }
            return
        }
        let token = try self.verify(authorization)
        if token.hasExpired(at: now) { throw APNSRefusal(.expiredProviderToken) }
        if token.isPremature(at: now) { throw APNSRefusal(.invalidProviderToken) }
        if let before = connection.providerToken, !before.hasExpired(at: now),
            token.isTooSoon(after: before, change: connection.providerTokenChange, at: now)
        {
            throw APNSRefusal(.tooManyProviderTokenUpdates)
        }
        connection.providerTokenChange = connection.providerToken.map { _ in now }
        connection.providerToken = token
        connection.isTrusted = true
    }

    private func verify(_ authorization: String) throws(APNSRefusal) -> ProviderToken {
        if let known = self.verified.withLock({ $0[authorization] }) { return known }
        guard authorization.prefix(7).lowercased() == "bearer ", let token = JSONWebToken(authorization.dropFirst(7)),
            token.header.member("kid")?.string == self.provider.keyID,
            token.claims.member("iss")?.string == self.provider.teamID,
            let issued = token.claims.member("iat")?.double, token.isSigned(by: self.provider.publicKey)
        else { throw APNSRefusal(.invalidProviderToken) }
        let verified = ProviderToken(
            authorization: authorization, issuedAt: Date(timeIntervalSince1970: issued))
        self.verified.withLock { cache in
            if cache.count >= Self.cacheLimit { cache.removeAll() }
            cache[authorization] = verified
        }
        return verified
    }
}
