// Carillon · TransferOutcome.swift
// SPDX-License-Identifier: Apache-2.0

/// How a request ended.
package enum TransferOutcome: Sendable {
    /// The server said something, be it 200 or 503.
    case answered(TransferResponse)
    /// Nobody said anything: the work is to be tried again, or was given up by its caller.
    case unanswered(TransferFailure)
}
