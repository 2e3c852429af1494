// Carillon · MissTally.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// Finds the users of a batch of changes whom no shard of the node knows.
final class MissTally: Sendable {
    private struct State {
        var reports = 0
        var misses: [ExactText: Int] = [:]
    }

    private let state = Mutex(State())
    private let shards: Int

    /// - Parameter shards: how many will report.
    init(shards: Int) {
        self.shards = shards
    }

    /// Takes the users whom one shard does not know.
    ///
    /// - Returns: whom none knows, when the last shard has reported; nothing before.
    func note(_ missing: Set<ExactText>) -> [ExactText] {
        self.state.withLock { state in
            state.reports += 1
            for user in missing { state.misses[user, default: 0] += 1 }
            guard state.reports == self.shards else { return [] }
            return state.misses.filter { $0.value == self.shards }.map(\.key)
        }
    }
}
