// Carillon · AddressTally.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Counts what each address holds open, up to a bound.
///
/// Holds an entry an address that has something open, so that it is bounded by the open connections.
package final class AddressTally: Sendable {
    private let limit: Int
    private let counts = Mutex<[[UInt8]: Int]>([:])

    package init(limit: Int) {
        self.limit = limit
    }

    /// Counts one more; false, and nothing is counted, where the address has its share already.
    package func take(_ address: ClientAddress) -> Bool {
        self.counts.withLock { counts in
            let count = counts[address.share, default: 0]
            guard count < self.limit else { return false }
            counts[address.share] = count + 1
            return true
        }
    }

    /// Counts one less.
    package func giveBack(_ address: ClientAddress) {
        self.counts.withLock { counts in
            guard let count = counts[address.share] else { return }
            counts[address.share] = count > 1 ? count - 1 : nil
        }
    }
}
