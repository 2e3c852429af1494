// Carillon · InFlightEntries.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// The stream entries that this process is working on.
///
/// If a reply of Redis gets lost, its entries are pending for this process but not in flight; that
/// is how ``ClaimService`` finds them. The queues and stages bound the number.
final class InFlightEntries: Sendable {
    private let ids = Mutex<[ExactText: Set<String>]>([:])

    /// Adds entries before anything else is done with them.
    func take(_ entries: some Sequence<String>, of stream: String) {
        self.ids.withLock { $0[ExactText(stream), default: []].formUnion(entries) }
    }

    /// Removes entries that were acknowledged, or that another dispatcher took over.
    func release(_ entries: some Sequence<String>, of stream: String) {
        let stream = ExactText(stream)
        self.ids.withLock { ids in
            ids[stream]?.subtract(entries)
            // Each organisation has an overflow of its own, so empty sets would add up.
            if ids[stream]?.isEmpty == true { ids[stream] = nil }
        }
    }

    /// The number of streams with entries in flight.
    var streamCount: Int { self.ids.withLock { $0.count } }

    func count(of stream: String) -> Int {
        self.ids.withLock { $0[ExactText(stream)]?.count ?? 0 }
    }

    func contains(_ entry: String, of stream: String) -> Bool {
        self.ids.withLock { $0[ExactText(stream)]?.contains(entry) ?? false }
    }
}
