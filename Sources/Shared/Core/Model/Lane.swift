// Carillon · Lane.swift
// SPDX-License-Identifier: Apache-2.0

/// How urgent work is, from jobs to providers; the most urgent first.
package enum Lane: String, Sendable, CaseIterable, Comparable {
    case critical, normal, bulk

    /// Its place, 0 for the most urgent.
    package var rank: Int {
        switch self {
        case .critical: 0
        case .normal: 1
        case .bulk: 2
        }
    }

    /// How many batches a reader takes of this lane while it takes one of `bulk`.
    package var weight: Int {
        switch self {
        case .critical: 16
        case .normal: 4
        case .bulk: 1
        }
    }

    package static func < (left: Lane, right: Lane) -> Bool {
        left.weight > right.weight
    }

    /// The more urgent of two.
    package static func mostUrgent(_ one: Lane, _ other: Lane) -> Lane {
        min(one, other)
    }
}
