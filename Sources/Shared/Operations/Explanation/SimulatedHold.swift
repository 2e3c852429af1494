// Carillon · SimulatedHold.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What keeps a job before its user's rules are asked, or what it takes the place of.
package struct SimulatedHold: Sendable, Equatable {
    package enum Kind: String, Sendable, CaseIterable {
        /// It waits for its moment.
        case schedule
        /// A digest gathers it.
        case gather
        /// Older ones with its collapse key, if there are any, give way to it.
        case replace
    }

    package let kind: Kind
    package let at: Timestamp
    /// Until when it waits; nil if it does not.
    package let until: Timestamp?
    /// `deliver_at` or `deliver_local`, or the key of the digest or of what is replaced.
    package let what: String

    /// What it says, by name.
    package var members: [(name: String, value: String?)] { [("what", self.what), ("until", self.until?.rfc3339)] }
}
