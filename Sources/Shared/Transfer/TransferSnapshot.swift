// Carillon · TransferSnapshot.swift
// SPDX-License-Identifier: Apache-2.0

/// What a ``TransferClient`` is doing, and has done since its start.
package struct TransferSnapshot: Sendable, Equatable {
    /// Under way in libcurl.
    package var inFlight = 0
    /// In our own queue.
    package var waiting = 0
    /// Answered, whatever the status.
    package var completed = 0
    /// Ended without an answer, the refused ones included.
    package var failed = 0
    /// Turned away because too many were waiting.
    package var refused = 0
}
