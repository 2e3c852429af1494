// Carillon · EventStreamFault.swift
// SPDX-License-Identifier: Apache-2.0

/// Why an event cannot be encoded.
package struct EventStreamFault: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Field: String, Sendable {
        /// Holds CR, LF or NUL; a client ignores an id with NUL.
        case id
        /// Holds CR or LF.
        case name = "event"
        /// Is negative; a client takes digits only.
        case retry
    }

    package let field: Field

    package init(_ field: Field) {
        self.field = field
    }

    package var description: String {
        switch self.field {
        case .id: "the id of an event holds CR, LF or NUL"
        case .name: "the name of an event holds CR or LF"
        case .retry: "the retry time of an event is negative"
        }
    }
}
