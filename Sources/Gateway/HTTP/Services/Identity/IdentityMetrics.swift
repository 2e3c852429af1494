// Carillon · IdentityMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics

/// What identity counts.
enum IdentityMetrics {
    /// Tokens and tickets that were refused.
    static let refused = Counter(label: "carillon.tokens.refused")
    /// Those that could not be checked.
    static let unchecked = Counter(label: "carillon.tokens.unchecked")
    static let keySetReadings = Counter(label: "carillon.keyset.readings")
    static let keySetFailures = Counter(label: "carillon.keyset.failures")
    /// Users looked up one by one, as not all revocations are in memory.
    static let revocationLookups = Counter(label: "carillon.revocations.lookups")
    /// Users whose revocations are in memory.
    static let revocationsHeld = Meter(label: "carillon.revocations.held")

    static func count(_ fault: TokenFault) {
        switch fault.code {
        case .refused, .forbidden: Self.refused.increment()
        case .unavailable: Self.unchecked.increment()
        }
    }
}
