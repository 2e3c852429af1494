// Carillon · LaneTurns.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Whose turn it is, where batches are taken from lanes until none has more.
///
/// The most urgent lane goes first, again after each full batch of another, and as often as it weighs while others have
/// more: so the urgent does not wait and nothing starves.
struct LaneTurns {
    private static let weights = Dictionary(uniqueKeysWithValues: Lane.allCases.map { ($0, $0.weight) })

    private var left = Self.weights
    private var empty: Set<Lane> = []

    /// The lane whose turn it is; nil when none has more.
    mutating func next() -> Lane? {
        let open = Lane.allCases.filter { !self.empty.contains($0) }
        if let lane = open.first(where: { self.left[$0, default: 0] > 0 }) { return lane }
        self.left = Self.weights
        return open.first
    }

    /// Notes what a lane had.
    mutating func note(_ lane: Lane, isFull: Bool) {
        guard isFull else {
            self.empty.insert(lane)
            return
        }
        self.left[lane, default: 0] -= 1
        // What is urgent may have come due meanwhile.
        self.empty = []
    }
}
