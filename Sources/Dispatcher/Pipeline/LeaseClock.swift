// Carillon · LeaseClock.swift
// SPDX-License-Identifier: Apache-2.0

import Streams
import Synchronization

/// Knows by this process's own clock whether its lease still holds, so that a process which stood still notices it first.
final class LeaseClock: Sendable {
    // When the last renewal that succeeded began.
    private let renewedAt = Mutex<ContinuousClock.Instant?>(nil)

    /// The lease was renewed by a call that began at `start`.
    func renewed(at start: ContinuousClock.Instant) {
        self.renewedAt.withLock { $0 = start }
    }

    /// Whether nobody else can have taken this process's work over yet.
    var isHeld: Bool {
        guard let renewedAt = self.renewedAt.withLock({ $0 }) else { return false }
        return ContinuousClock.now - renewedAt < Lease.lifetime - .seconds(1)
    }
}
