// Carillon · CapScope.swift
// SPDX-License-Identifier: Apache-2.0

/// What a frequency cap counts.
package enum CapScope: String, Sendable, CaseIterable {
    case user, type, category
}
