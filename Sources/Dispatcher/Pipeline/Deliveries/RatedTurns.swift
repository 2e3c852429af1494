// Carillon · RatedTurns.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Storage

/// Turns to send through a provider whose rate is bounded, taken from Redis in lots that last a moment.
actor RatedTurns {
    private struct Lot {
        var left = 0
        /// Until when nobody asks again, as there is none.
        var emptyUntil: Timestamp?
        var waiting = 0
    }

    private let provider: Provider
    private let turns: SendingTurns
    private let now: @Sendable () -> Timestamp
    private var lots: [String: Lot] = [:]

    init(_ provider: Provider, turns: SendingTurns, now: @escaping @Sendable () -> Timestamp) {
        self.provider = provider
        self.turns = turns
        self.now = now
    }

    /// Takes a turn for an app out of its account's; nil if there was one, else when it is worth to ask again.
    ///
    /// - Parameter perSecond: the account's rate: by another one its bucket would be never full enough, or too full.
    func take(_ app: String, account: String, perSecond: Int) async -> Timestamp? {
        var lot = self.lots[app] ?? Lot()
        if lot.left == 0 {
            if let until = lot.emptyUntil, until > self.now() { return self.putOff(app, from: until, perSecond) }
            // A twentieth of a second's worth at a time, so that other dispatchers have theirs.
            let reply = try? await self.turns.take(
                max(1, perSecond / 20), provider: self.provider, account: account, perSecond: perSecond)
            lot = self.lots[app] ?? Lot()
            // Without Redis nothing goes out anyway; a lot of one keeps what is in hand moving.
            let (taken, wait) = reply ?? (1, 0)
            lot.left += taken
            lot.waiting = 0
            lot.emptyUntil = lot.left == 0 ? self.now() + .milliseconds(max(1, wait)) : nil
            self.lots[app] = lot
            if lot.left == 0 { return self.putOff(app, from: self.now() + .milliseconds(max(1, wait)), perSecond) }
        }
        lot.left -= 1
        self.lots[app] = lot
        return nil
    }

    /// Those that wait are spread over the time that they will take.
    private func putOff(_ app: String, from moment: Timestamp, _ perSecond: Int) -> Timestamp {
        self.lots[app, default: Lot()].waiting += 1
        let place = self.lots[app, default: Lot()].waiting
        return moment + .milliseconds(place * 1_000 / max(1, perSecond))
    }
}
