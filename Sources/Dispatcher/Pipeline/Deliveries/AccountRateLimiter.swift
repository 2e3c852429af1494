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
        /// Takes the next lot.
        var taking: Task<Void, Never>?
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
        while self.lots[app, default: Lot()].left == 0 {
            let now = self.now()
            // A later moment was noted before the clock stepped back.
            if let until = self.lots[app]?.emptyUntil, until > now, until <= now + Self.longestWait {
                return self.postpone(app, from: until, perSecond)
            }
            await self.takeLot(app, account: account, perSecond: perSecond)
        }
        self.lots[app, default: Lot()].left -= 1
        return nil
    }

    /// Takes the next lot, once for all concurrent callers.
    private func takeLot(_ app: String, account: String, perSecond: Int) async {
        if let taking = self.lots[app]?.taking { return await taking.value }
        // An unstructured task: cancelling one caller must not cancel the take for the others.
        let task = Task<Void, Never> {
            // A twentieth of a second at a time leaves turns to other dispatchers.
            let reply = try? await self.limit.take(
                max(1, perSecond / 20), provider: self.provider, account: account, perSecond: perSecond)
            // The bucket's server in a cluster may be away or full while the others work, so a
            // failure counts as an empty bucket.
            let (taken, wait) = reply ?? (taken: 0, wait: Self.longestWait.inMilliseconds)
            var lot = self.lots[app] ?? Lot()
            lot.taking = nil
            lot.left += taken
            lot.waiting = 0
            let pause = min(.milliseconds(max(1, wait)), Self.longestWait)
            lot.emptyUntil = lot.left == 0 ? self.now() + pause : nil
            self.lots[app] = lot
        }
        self.lots[app, default: Lot()].taking = task
        await task.value
    }

    /// Spreads waiting deliveries over the time that they will take.
    private func postpone(_ app: String, from moment: Timestamp, _ perSecond: Int) -> Timestamp {
        self.lots[app, default: Lot()].waiting += 1
        let place = self.lots[app, default: Lot()].waiting
        return moment + .milliseconds(place * 1_000 / max(1, perSecond))
    }
}
