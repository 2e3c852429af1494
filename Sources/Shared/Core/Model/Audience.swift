// Carillon · Audience.swift
// SPDX-License-Identifier: Apache-2.0

/// Whom a job is for.
package enum Audience: Sendable, Equatable {
    /// At most 1,000 users, each once.
    case users([String])
    case topic(String)
    case everyone
}
