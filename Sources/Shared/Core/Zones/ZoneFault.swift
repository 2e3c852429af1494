// Carillon · ZoneFault.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a file holds no zone rules.
package struct ZoneFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}
