// Carillon · CatalogMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics

/// What the catalog counts.
enum CatalogMetrics {
    /// Types in force.
    static let types = Meter(label: "carillon.catalog.types")
    private static let replaced = Self.reloads(.replaced)
    private static let unchanged = Self.reloads(.unchanged)
    private static let refused = Self.reloads(.refused)

    static func count(_ result: Result<CatalogRegister.Outcome, CatalogFaults>) {
        switch result {
        case .success(.replaced): Self.replaced.increment()
        case .success: Self.unchanged.increment()
        case .failure: Self.refused.increment()
        }
    }

    private static func reloads(_ outcome: CatalogRegister.Outcome) -> Counter {
        Counter(label: "carillon.catalog.reloads", dimensions: [("outcome", outcome.rawValue)])
    }
}
