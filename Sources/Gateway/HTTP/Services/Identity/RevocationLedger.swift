// Carillon · RevocationLedger.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// What a gateway knows of revoked tokens: those of all users if they fit, and else those of some.
///
/// At the bound of what is held, users who are not held are looked up one by one and remembered for a short time; at the
/// bound of what is remembered, all of it is forgotten.
struct RevocationLedger {
    struct Bounds {
        var held = 100_000
        var remembered = 10_000
        var remembrance: Duration = .seconds(5)
    }

    enum Answer: Equatable {
        /// The tokens made before are not good; nil if all are.
        case known(Timestamp?)
        case unknown
    }

    private let bounds: Bounds
    private var held: [ExactText: Timestamp] = [:]
    private var remembered: [ExactText: (before: Timestamp?, until: ContinuousClock.Instant)] = [:]
    /// Up to which change it has seen all.
    private(set) var version: Int64 = 0
    private var isLoaded = false
    private var isFull = false

    init(bounds: Bounds = Bounds()) {
        self.bounds = bounds
    }

    var count: Int { self.held.count }

    func answer(user: String, now: ContinuousClock.Instant) -> Answer {
        let user = ExactText(user)
        if let before = self.held[user] { return .known(before) }
        if self.isLoaded, !self.isFull { return .known(nil) }
        if let found = self.remembered[user], now < found.until { return .known(found.before) }
        return .unknown
    }

    /// Takes changes in their order, beginning after ``version``.
    ///
    /// - Parameter isLast: whether these were all there are.
    mutating func take(_ revocations: [RevocationStore.Revocation], isLast: Bool) {
        for revocation in revocations {
            self.note(revocation)
            self.version = max(self.version, revocation.version)
        }
        if isLast { self.isLoaded = true }
    }

    /// Takes one change, others before it may be missing.
    mutating func note(_ revocation: RevocationStore.Revocation) {
        let user = ExactText(revocation.user)
        self.remembered[user] = nil
        if let before = self.held[user] {
            self.held[user] = max(before, revocation.before)
        } else if self.held.count < self.bounds.held {
            self.held[user] = revocation.before
        } else {
            self.isFull = true
        }
    }

    /// Keeps what was looked up for a while.
    ///
    /// - Parameter version: the ledger's when the look-up began; what changed since then may not be in it.
    mutating func remember(user: String, before: Timestamp?, version: Int64, now: ContinuousClock.Instant) {
        guard version == self.version else { return }
        if self.remembered.count >= self.bounds.remembered { self.remembered = [:] }
        self.remembered[ExactText(user)] = (before, now + self.bounds.remembrance)
    }
}
