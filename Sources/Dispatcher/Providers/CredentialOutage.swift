// Carillon · CredentialOutage.swift
// SPDX-License-Identifier: Apache-2.0

/// Whoever hands out tokens cannot be reached or is out of order.
///
/// Nothing is wrong with what we have, so it passes by itself.
package struct CredentialOutage: Error, Sendable, Equatable, CustomStringConvertible {
    /// A status such as `503`, or why there is no answer, such as `timeout`.
    package let cause: String

    package init(_ cause: String) {
        self.cause = cause
    }

    /// The word of records and metrics.
    package var reason: String { "token_endpoint_\(self.cause)" }

    package var description: String { self.reason }
}
