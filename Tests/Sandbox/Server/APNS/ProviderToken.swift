// Carillon · ProviderToken.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// A provider token whose signature was found good.
struct ProviderToken: Sendable {
    /// The whole `authorization` value.
    let authorization: String
    /// `iat`.
    let issuedAt: Date

    private static let lifetime: TimeInterval = 3600
    private static let updateInterval: TimeInterval = 20 * 60
    private static let clockSkew: TimeInterval = 300

    /// Whether its hour has passed.
    func hasExpired(at now: Date) -> Bool {
        now.timeIntervalSince(self.issuedAt) > Self.lifetime
    }

    /// Whether it is dated in the future.
    func isPremature(at now: Date) -> Bool {
        self.issuedAt.timeIntervalSince(now) > Self.clockSkew
    }

    /// Whether it follows the other sooner than APNs allows on one connection, in 20 minutes.
    func isTooSoon(after other: ProviderToken) -> Bool {
        abs(self.issuedAt.timeIntervalSince(other.issuedAt)) < Self.updateInterval
    }
}
