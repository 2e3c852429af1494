// Carillon · Release.swift
// SPDX-License-Identifier: Apache-2.0

/// This release of Carillon.
package enum Release {
    /// The newest version of the changelog, or the next one with `-dev`.
    package static let version = "1.0.0-dev"
}
