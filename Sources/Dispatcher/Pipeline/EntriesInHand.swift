// Carillon · EntriesInHand.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// The stream entries that this process works on.
///
/// Redis may hand out entries in a reply that never arrives: they are pending for this process, which knows nothing of
/// them. What is pending and not in hand is what got lost that way. Bounded by what the queues and stages hold.
final class EntriesInHand: Sendable {
    private let ids = Mutex<[String: Set<String>]>([:])

    /// Notes what was taken from a stream, before anything else is done with it.
    func take(_ entries: some Sequence<String>, of stream: String) {
        self.ids.withLock { $0[stream, default: []].formUnion(entries) }
    }

    /// Forgets what was acknowledged, or is somebody else's by now.
    func release(_ entries: some Sequence<String>, of stream: String) {
        self.ids.withLock { $0[stream]?.subtract(entries) }
    }

    /// How many there are of a stream.
    func count(of stream: String) -> Int {
        self.ids.withLock { $0[stream]?.count ?? 0 }
    }

    func contains(_ entry: String, of stream: String) -> Bool {
        self.ids.withLock { $0[stream]?.contains(entry) ?? false }
    }
}
