// Carillon · AttemptLedger.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// How often each token with a fault was tried.
///
/// Keeps at least the last 50,000 tokens and at most 100,000: when the younger half is full, the older is dropped.
final class AttemptLedger: Sendable {
    private struct Halves {
        var younger: [String: Int] = [:]
        var older: [String: Int] = [:]
    }

    private static let limit = 50_000

    private let halves = Mutex(Halves())

    /// Every count that is kept.
    var counts: [String: Int] {
        self.halves.withLock { $0.older.merging($0.younger) { _, younger in younger } }
    }

    /// Counts one more try and tells which it is, from 1.
    func count(_ token: String) -> Int {
        self.halves.withLock { halves in
            let count = (halves.younger[token] ?? halves.older[token] ?? 0) + 1
            if halves.younger.count >= Self.limit, halves.younger[token] == nil {
                halves.older = halves.younger
                halves.younger = [:]
            }
            halves.younger[token] = count
            return count
        }
    }

    func reset() {
        self.halves.withLock { $0 = Halves() }
    }
}
