// Carillon · CatalogRegister.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Metrics
import Synchronization

/// The current catalog, which a reload replaces.
///
/// Read ``current`` once per batch and use that value for the whole batch.
package final class CatalogRegister: Sendable {
    /// A catalog and the time it was loaded.
    package struct Entry: Sendable {
        package let catalog: Catalog
        package let loadedAt: Timestamp
    }

    /// The result of a reload.
    package enum Outcome: String, Sendable, CaseIterable {
        case replaced, unchanged, refused
    }

    /// A rejected catalog.
    package struct Refusal: Sendable {
        package let faults: CatalogFaults
        package let at: Timestamp
    }

    private struct State {
        var entry: Entry
        var refusal: Refusal?
    }

    private let path: String?
    private let now: @Sendable () -> Timestamp
    private let state: Mutex<State>
    /// Held while files are read, so that of two reloads the later one wins.
    private let reading = Mutex(())

    /// - Parameters:
    ///   - path: the file or folder it was loaded from; nil for a catalog that cannot be reloaded.
    ///   - now: the clock.
    package init(_ catalog: Catalog, path: String? = nil, now: @escaping @Sendable () -> Timestamp) {
        self.path = path
        self.now = now
        self.state = Mutex(State(entry: Entry(catalog: catalog, loadedAt: now())))
        CatalogMetrics.types.set(catalog.all.count)
    }

    /// The current catalog.
    package var current: Catalog { self.state.withLock { $0.entry.catalog } }

    /// The current catalog and when it was loaded.
    package var entry: Entry { self.state.withLock { $0.entry } }

    /// The faults of the last reload; nil if it succeeded.
    package var refusal: Refusal? { self.state.withLock { $0.refusal } }

    /// Reloads the files; a faulty catalog changes nothing.
    ///
    /// - Throws: ``CatalogFaults``.
    package func reload() throws(CatalogFaults) -> Outcome {
        guard let path else { return .unchanged }
        let result = self.reading.withLock { _ in
            let result = Result { () throws(CatalogFaults) in try CatalogLoader.load(path: path) }
            return self.take(result)
        }
        CatalogMetrics.count(result)
        return try result.get()
    }

    private func take(_ result: Result<Catalog, CatalogFaults>) -> Result<Outcome, CatalogFaults> {
        self.state.withLock { state in
            switch result {
            case .success(let catalog):
                state.refusal = nil
                guard catalog.digest != state.entry.catalog.digest else { return .success(.unchanged) }
                state.entry = Entry(catalog: catalog, loadedAt: self.now())
                CatalogMetrics.types.set(catalog.all.count)
                return .success(.replaced)
            case .failure(let faults):
                state.refusal = Refusal(faults: faults, at: self.now())
                return .failure(faults)
            }
        }
    }
}

/// Metrics of the catalog.
enum CatalogMetrics {
    /// Types in the current catalog.
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
