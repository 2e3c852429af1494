// Carillon · StallGuard.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols

/// Skips one round of timeouts after a stall, so that the input that arrived meanwhile is read
/// before clients count as silent.
struct StallGuard {
    /// A longer time between two rounds means that the process stalled.
    private static let stall: Milliseconds = 5_000

    /// When the last round ran; nil after a skipped round.
    private var last: Milliseconds?

    /// Returns whether to run the round that is due.
    mutating func admitsRound(at now: Milliseconds) -> Bool {
        if let last, now - last > Self.stall {
            self.last = nil
            return false
        }
        self.last = now
        return true
    }
}
