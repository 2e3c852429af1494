// Carillon · ConnectionTally.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Counts a listener's open connections, up to a bound.
package final class ConnectionTally: Sendable {
    private let limit: Int
    private let count = Atomic(0)

    package init(limit: Int) {
        self.limit = limit
    }

    /// Counts one more; false, and nothing is counted, where all places are taken.
    package func take() -> Bool {
        guard self.count.add(1, ordering: .relaxed).newValue <= self.limit else {
            self.giveBack()
            return false
        }
        return true
    }

    /// Counts one less.
    package func giveBack() {
        self.count.subtract(1, ordering: .relaxed)
    }
}
