// Carillon · CatalogRegister.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Synchronization

/// The catalog in force, which a good one may replace at any time.
///
/// Whoever works through a batch takes ``current`` once and keeps it to the end.
package final class CatalogRegister: Sendable {
    /// A catalog, and since when it is in force.
    package struct Entry: Sendable {
        package let catalog: Catalog
        package let loadedAt: Timestamp
    }

    /// How a reading went.
    package enum Outcome: String, Sendable, CaseIterable {
        case replaced, unchanged, refused
    }

    /// A catalog that was refused.
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
    /// Held while the files are read, so that of two readings the later one wins.
    private let reading = Mutex(())

    /// - Parameters:
    ///   - path: the file or folder that it came from; nil for a catalog that cannot be read again.
    ///   - now: the time.
    package init(_ catalog: Catalog, path: String? = nil, now: @escaping @Sendable () -> Timestamp) {
        self.path = path
        self.now = now
        self.state = Mutex(State(entry: Entry(catalog: catalog, loadedAt: now())))
        CatalogMetrics.types.set(catalog.all.count)
    }

    /// The catalog in force.
    package var current: Catalog { self.state.withLock { $0.entry.catalog } }

    /// The catalog in force and since when it is.
    package var entry: Entry { self.state.withLock { $0.entry } }

    /// What the last reading refused; nil if the last one was good.
    package var refusal: Refusal? { self.state.withLock { $0.refusal } }

    /// Reads the files again; a faulty catalog changes nothing.
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
