// Carillon · FieldFault.swift
// SPDX-License-Identifier: Apache-2.0

/// The fault of one field, setting or file, worded to follow its name; never holds a secret.
package struct FieldFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}
