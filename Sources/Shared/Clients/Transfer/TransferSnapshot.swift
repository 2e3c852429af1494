// Carillon · TransferSnapshot.swift
// SPDX-License-Identifier: Apache-2.0

/// What a ``TransferClient`` is doing, and has done since its start.
package struct TransferSnapshot: Sendable, Equatable {
    /// Under way in libcurl.
    package var inFlight: Int
    /// In our own queue.
    package var waiting: Int
    /// Answered, whatever the status.
    package var completed: Int
    /// Ended without an answer, the refused ones included.
    package var failed: Int
    /// Turned away because too many were waiting.
    package var refused: Int

    package init(inFlight: Int = 0, waiting: Int = 0, completed: Int = 0, failed: Int = 0, refused: Int = 0) {
        self.inFlight = inFlight
        self.waiting = waiting
        self.completed = completed
        self.failed = failed
        self.refused = refused
    }
}
