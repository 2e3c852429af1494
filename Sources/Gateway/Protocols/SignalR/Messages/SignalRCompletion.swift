// Carillon · SignalRCompletion.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The end of an invocation or of a stream.
package struct SignalRCompletion: Sendable, Equatable {
    package enum Outcome: Sendable, Equatable {
        case void
        case result(JSONValue)
        case error(String)
    }

    package let invocationID: String
    package let outcome: Outcome

    package init(invocationID: String, outcome: Outcome) {
        self.invocationID = invocationID
        self.outcome = outcome
    }
}
