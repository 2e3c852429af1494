// Carillon · CatalogFault.swift
// SPDX-License-Identifier: Apache-2.0

/// A fault of a catalog, with file and line where known.
package struct CatalogFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}

/// All faults of a catalog.
package struct CatalogFaults: Error, Sendable, Equatable, CustomStringConvertible {
    package let faults: [CatalogFault]

    package init(_ faults: [CatalogFault]) {
        self.faults = faults
    }

    package var description: String { self.faults.map(\.description).joined(separator: "\n") }
}

/// Collects faults, so that one load reports them all.
final class CatalogFaultLog {
    /// The number of faults listed; a last line counts the rest.
    private static let mostFaults = 1_000

    private(set) var faults: [CatalogFault] = []

    func add(_ description: String) {
        self.faults.append(CatalogFault(description))
    }

    /// - Throws: ``CatalogFaults`` if there are any.
    func finish() throws(CatalogFaults) {
        guard !self.faults.isEmpty else { return }
        let rest = self.faults.count - Self.mostFaults
        guard rest > 0 else { throw CatalogFaults(self.faults) }
        throw CatalogFaults(self.faults.prefix(Self.mostFaults) + [CatalogFault("and \(rest) more faults")])
    }
}

/// The file and line of a catalog entry.
struct CatalogLocation: Sendable, CustomStringConvertible {
    let file: String
    let line: Int?

    var description: String { self.line.map { "\(self.file):\($0)" } ?? self.file }
}

/// An entry and its location.
struct Located<Value: Sendable>: Sendable {
    let value: Value
    let location: CatalogLocation

    init(_ value: Value, at location: CatalogLocation) {
        self.value = value
        self.location = location
    }
}
