// Carillon · AccountRateLimiter.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage

/// The rate limit of a provider's accounts, shared through Redis and taken in small lots.
actor AccountRateLimiter {
    private struct Lot {
        var left = 0
        /// The next lot may be taken at this moment.
        var emptyUntil: ContinuousClock.Instant?
        /// The number of critical callers that wait for a turn.
        var waiting = 0
        /// When the next refused caller of each lane may ask again, by rank.
        var nextTurns = [ContinuousClock.Instant?](repeating: nil, count: Lane.allCases.count)
        /// The rate of ``nextTurns``.
        var perSecond = 0
        /// The number of turns given since a caller was last refused.
        var streak = 0
        /// Takes the next lot.
        var taking: Task<Void, Never>?
    }

    /// The longest pause before an empty bucket is asked again, and the longest wait of a critical
    /// caller.
    private static let longestWait: Duration = .seconds(2)
    /// After this many turns without a refusal (at least one second's worth), forgets when refused
    /// callers may ask again.
    private static let longStreak = 16

    private let provider: Provider
    private let buckets: TokenBuckets
    private let instant: @Sendable () -> ContinuousClock.Instant
    private var lots: [String: Lot] = [:]

    init(
        _ provider: Provider,
        buckets: TokenBuckets,
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.provider = provider
        self.buckets = buckets
        self.instant = instant
    }

    /// Takes a turn of an account; returns nil, or how long to wait before asking again.
    ///
    /// Critical callers wait here, up to as many as get turns in a second; meanwhile other lanes
    /// are refused. Refused callers are spread at the account's rate, each lane on its own.
    ///
    /// - Parameter perSecond: the account's rate, which must be the same in all calls.
    func take(_ account: String, perSecond: Int, lane: Lane) async -> Duration? {
        let end = self.instant() + Self.longestWait
        var isWaiting = false
        defer { if isWaiting { self.lots[account]?.waiting -= 1 } }
        while true {
            var lot = self.lots[account] ?? Lot()
            let isNext = lane == .critical || lot.waiting == 0
            if isNext, lot.left > 0 {
                lot.left -= 1
                lot.streak += 1
                if lot.streak == max(perSecond, Self.longStreak) { lot.nextTurns = Lot().nextTurns }
                self.lots[account] = lot
                return nil
            }
            let now = self.instant()
            let until = max(now, lot.emptyUntil ?? now)
            if !isNext || until > now {
                guard lane == .critical, isWaiting || lot.waiting < perSecond, until < end else {
                    return self.nextTurn(of: lane, account, from: until, perSecond) - now
                }
                if !isWaiting { self.lots[account]?.waiting += 1 }
                isWaiting = true
                // Until the bucket has a turn, which it does not signal; cancelled only when the
                // process ends.
                guard (try? await Task.sleep(for: until - now)) != nil else { return Self.longestWait }
            }
            await self.takeLot(account, perSecond: perSecond)
        }
    }

    /// Takes the next lot, once for all concurrent callers.
    private func takeLot(_ account: String, perSecond: Int) async {
        if let taking = self.lots[account]?.taking { return await taking.value }
        // An unstructured task: cancelling one caller must not cancel the take for the others.
        let task = Task<Void, Never> {
            // A twentieth of a second at a time leaves turns to other dispatchers.
            let reply = try? await self.buckets.takeAvailable(
                max(1, perSecond / 20), account: "\(self.provider.rawValue):\(account)",
                perSecond: Double(perSecond), burst: max(1, perSecond / 4))
            // The bucket's server in a cluster may be away or full while the others work, so a
            // failure counts as an empty bucket.
            let (taken, wait) = reply ?? (taken: 0, wait: Self.longestWait.inMilliseconds)
            var lot = self.lots[account] ?? Lot()
            lot.taking = nil
            lot.left += taken
            let pause = min(.milliseconds(max(1, wait)), Self.longestWait)
            lot.emptyUntil = lot.left == 0 ? self.instant() + pause : nil
            self.lots[account] = lot
        }
        self.lots[account, default: Lot()].taking = task
        await task.value
    }

    /// Returns when a refused caller may ask again: at its lane's next turn.
    ///
    /// So each lane of a backlog asks as often as the rate allows, in each dispatcher.
    private func nextTurn(
        of lane: Lane, _ account: String, from moment: ContinuousClock.Instant, _ perSecond: Int
    ) -> ContinuousClock.Instant {
        var lot = self.lots[account] ?? Lot()
        // Turns that were spread at a lower rate would come too late.
        if lot.perSecond != perSecond { (lot.perSecond, lot.nextTurns) = (perSecond, Lot().nextTurns) }
        let due = max(moment, lot.nextTurns[lane.rank] ?? moment)
        lot.nextTurns[lane.rank] = due + Duration.seconds(1) / perSecond
        lot.streak = 0
        self.lots[account] = lot
        return due
    }
}
