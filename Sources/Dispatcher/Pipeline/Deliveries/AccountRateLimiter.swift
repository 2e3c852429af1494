// Carillon · AccountRateLimiter.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Storage

/// The rate limit of a provider's accounts, shared through Redis and taken in small lots.
actor AccountRateLimiter {
    private struct Lot {
        var left = 0
        /// The next lot may be taken at this moment.
        var emptyUntil: Timestamp?
        var waiting = 0
    }

    /// No bucket is empty for longer.
    private static let longestWait: Duration = .seconds(2)

    private let provider: Provider
    private let limit: AccountRateLimit
    private let now: @Sendable () -> Timestamp
    private var lots: [String: Lot] = [:]

    init(_ provider: Provider, limit: AccountRateLimit, now: @escaping @Sendable () -> Timestamp) {
        self.provider = provider
        self.limit = limit
        self.now = now
    }

    /// Takes a turn for an app from its account; returns nil, or when to ask again.
    ///
    /// - Parameter perSecond: the account's rate, which must be the same in all calls.
    func take(_ app: String, account: String, perSecond: Int) async -> Timestamp? {
        var lot = self.lots[app] ?? Lot()
        if lot.left == 0 {
            let now = self.now()
            // A later moment was noted before the clock stepped back.
            if let until = lot.emptyUntil, until > now, until <= now + Self.longestWait {
                return self.postpone(app, from: until, perSecond)
            }
            // A twentieth of a second at a time leaves turns to other dispatchers.
            let reply = try? await self.limit.take(
                max(1, perSecond / 20), provider: self.provider, account: account, perSecond: perSecond)
            lot = self.lots[app] ?? Lot()
            // Without Redis, a lot of one lets deliveries in flight continue.
            let (taken, wait) = reply ?? (1, 0)
            lot.left += taken
            lot.waiting = 0
            lot.emptyUntil = lot.left == 0 ? self.now() + .milliseconds(max(1, wait)) : nil
            self.lots[app] = lot
            if lot.left == 0 { return self.postpone(app, from: self.now() + .milliseconds(max(1, wait)), perSecond) }
        }
        lot.left -= 1
        self.lots[app] = lot
        return nil
    }

    /// Spreads waiting deliveries over the time that they will take.
    private func postpone(_ app: String, from moment: Timestamp, _ perSecond: Int) -> Timestamp {
        self.lots[app, default: Lot()].waiting += 1
        let place = self.lots[app, default: Lot()].waiting
        return moment + .milliseconds(place * 1_000 / max(1, perSecond))
    }
}
