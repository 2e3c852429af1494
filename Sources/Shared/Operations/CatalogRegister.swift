// Carillon · CatalogRegister.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
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

    /// The reason to check the files: jobs or notifications name an unknown type or template.
    private enum Cause {
        case jobs, notifications

        /// The least time between two checks.
        ///
        /// Any app may send an unknown type continuously, and notifications of a removed type are
        /// sent until they expire.
        var interval: Duration {
            switch self {
            case .jobs: .seconds(1)
            case .notifications: .seconds(10)
            }
        }
    }

    /// The last checks of the files.
    private struct Look {
        /// When they started; a check for notifications does not defer one for jobs.
        var starts: [Cause: Timestamp] = [:]
        /// The fault that was logged last; nil after a reload.
        var fault: String?
    }

    private let path: String?
    private let now: @Sendable () -> Timestamp
    private let state: Mutex<State>
    /// Held while files are read, so that the later of two reloads wins.
    private let reading = Mutex(Look())

    /// - Parameters:
    ///   - path: the file or folder it was loaded from; nil for a catalog that cannot be reloaded.
    ///   - now: the clock.
    package init(_ catalog: Catalog, path: String? = nil, now: @escaping @Sendable () -> Timestamp) {
        self.path = path
        self.now = now
        self.state = Mutex(State(entry: Entry(catalog: catalog, loadedAt: now())))
        CatalogMetrics.types.set(catalog.all.count)
        CatalogMetrics.refusal.set(0)
    }

    /// The catalog that new work uses.
    package var current: Catalog { self.state.withLock { $0.entry.catalog } }

    /// The current catalog and when it was loaded.
    package var entry: Entry { self.state.withLock { $0.entry } }

    /// The last refusal; nil once a later reload or check succeeds.
    package var refusal: Refusal? { self.state.withLock { $0.refusal } }

    /// Reloads the files, and logs a replaced or rejected catalog; a faulty one changes nothing.
    ///
    /// - Throws: ``CatalogFaults``.
    package func reload(logger: Logger) throws(CatalogFaults) -> Outcome {
        do throws(CatalogFaults) {
            let outcome = try self.reload()
            if outcome == .replaced { Self.log(self.current, logger) }
            return outcome
        } catch {
            for fault in error.faults {
                logger.error("catalog rejected; the previous one stays in use", metadata: ["fault": "\(fault)"])
            }
            throw error
        }
    }

    /// Returns a newer catalog for jobs that name a type or a template that `catalog` lacks.
    ///
    /// Reads the files at most once a second. They become the current catalog only if they make one
    /// of the jobs valid and remove no type, because an operator may still be editing them. Logs
    /// their first fault or the first missing type, once.
    ///
    /// - Parameter jobs: the fields of the jobs.
    /// - Returns: nil if there is none.
    package func newer(
        than catalog: Catalog,
        for jobs: [[(name: String, value: ArraySlice<UInt8>)]],
        logger: Logger
    ) async -> Catalog? {
        await self.newer(than: catalog, for: .jobs, logger: logger) { newer in
            jobs.contains { (try? newer.job($0)) != nil }
        }
    }

    /// Returns a newer catalog for notifications of types that `catalog` lacks.
    ///
    /// The rules are those for jobs, except that it reads the files at most every 10 seconds.
    ///
    /// - Returns: nil if there is none.
    package func newer(than catalog: Catalog, forTypes types: [String], logger: Logger) async -> Catalog? {
        await self.newer(than: catalog, for: .notifications, logger: logger) { newer in
            types.contains { newer[$0] != nil }
        }
    }

    private func newer(
        than catalog: Catalog,
        for cause: Cause,
        logger: Logger,
        isWanted: @escaping @Sendable (Catalog) -> Bool
    ) async -> Catalog? {
        guard let path else { return nil }
        // Detached, because reading files blocks, and the caller's thread serves other batches.
        return await Task.detached { self.look(path, than: catalog, for: cause, logger, isWanted) }.value
    }

    private func look(
        _ path: String,
        than catalog: Catalog,
        for cause: Cause,
        _ logger: Logger,
        _ isWanted: (Catalog) -> Bool
    ) -> Catalog? {
        self.reading.withLock { last in
            let current = self.current
            // Another reload came first.
            guard current.digest == catalog.digest else { return current }
            let start = self.now()
            if let last = last.starts[cause], (last..<last + cause.interval).contains(start) { return nil }
            last.starts[cause] = start
            let newer: Catalog
            do throws(CatalogFaults) {
                newer = try CatalogLoader.load(path: path)
            } catch {
                self.refuse(error, &last, logger)
                return nil
            }
            guard isWanted(newer) else { return nil }
            let missing = catalog.all.filter { newer[$0.name] == nil }
            guard missing.isEmpty else {
                let faults = missing.map { CatalogFault("type \($0.name) is missing; a reload removes it") }
                self.refuse(CatalogFaults(faults), &last, logger)
                return nil
            }
            last.fault = nil
            CatalogMetrics.count(self.record(.success(newer)))
            Self.log(newer, logger)
            return newer
        }
    }

    /// Counts the refusal and logs its first fault, unless it is the last one logged.
    ///
    /// Jobs may cause a check every second.
    private func refuse(_ faults: CatalogFaults, _ look: inout Look, _ logger: Logger) {
        guard let fault = faults.faults.first?.description, fault != look.fault else { return }
        look.fault = fault
        CatalogMetrics.count(self.record(.failure(faults)))
        logger.warning(
            "new catalog is faulty; keeping the previous one",
            metadata: ["fault": "\(fault)", "count": "\(faults.faults.count)"])
    }

    private static func log(_ catalog: Catalog, _ logger: Logger) {
        logger.notice(
            "catalog reloaded",
            metadata: ["catalog.digest": "\(catalog.digest)", "types": "\(catalog.all.count)"]
        )
    }

    /// Reloads the files without logging.
    ///
    /// - Throws: ``CatalogFaults``.
    func reload() throws(CatalogFaults) -> Outcome {
        guard let path else { return .unchanged }
        let result = self.reading.withLock { last in
            last.fault = nil
            let result = Result { () throws(CatalogFaults) in try CatalogLoader.load(path: path) }
            return self.record(result)
        }
        CatalogMetrics.count(result)
        return try result.get()
    }

    private func record(_ result: Result<Catalog, CatalogFaults>) -> Result<Outcome, CatalogFaults> {
        self.state.withLock { state in
            switch result {
            case .success(let catalog):
                state.refusal = nil
                CatalogMetrics.refusal.set(0)
                guard catalog.digest != state.entry.catalog.digest else { return .success(.unchanged) }
                state.entry = Entry(catalog: catalog, loadedAt: self.now())
                CatalogMetrics.types.set(catalog.all.count)
                return .success(.replaced)
            case .failure(let faults):
                state.refusal = Refusal(faults: faults, at: self.now())
                CatalogMetrics.refusal.set(1)
                return .failure(faults)
            }
        }
    }
}

/// Metrics of the catalog.
enum CatalogMetrics {
    /// Types in the current catalog.
    static let types = Meter(label: "carillon.catalog.types")
    /// 1 from a refusal until a later reload or check succeeds.
    static let refusal = Meter(label: "carillon.catalog.refused")
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
