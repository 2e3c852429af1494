// Carillon · Finding.swift
// SPDX-License-Identifier: Apache-2.0

/// What one check found, and how to mend it.
package struct Finding: Sendable, Equatable {
    /// How bad it is, the best first.
    package enum Outcome: String, Sendable, CaseIterable {
        case ok
        /// It was not looked at.
        case skipped
        /// It works, and will not some day, or not for all.
        case warn
        /// It does not work, or loses what it was given.
        case fail
    }

    /// What was looked at, such as `redis persistence`.
    package let check: String
    package let outcome: Outcome
    /// What was found; never a secret.
    package let found: String
    /// What to do about it; nil where nothing is to be done.
    package let remedy: String?

    package init(_ outcome: Outcome, _ check: String, _ found: String, mend remedy: String? = nil) {
        self.check = check
        self.outcome = outcome
        self.found = found
        self.remedy = remedy
    }
}
