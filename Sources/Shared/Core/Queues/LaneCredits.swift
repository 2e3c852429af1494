// Carillon · LaneCredits.swift
// SPDX-License-Identifier: Apache-2.0

/// Whose turn it is among lanes that have something: the urgent first, each as often as it weighs, so that none starves.
struct LaneCredits {
    private var credits: [Lane: Int] = [:]

    /// The lane whose turn it is, which is charged for it; nil if none has something.
    mutating func next(among filled: [Lane]) -> Lane? {
        guard let first = filled.first else { return nil }
        if !filled.contains(where: { self.credits[$0, default: $0.weight] > 0 }) { self.credits = [:] }
        let lane = filled.first { self.credits[$0, default: $0.weight] > 0 } ?? first
        self.credits[lane, default: lane.weight] -= 1
        return lane
    }
}
