// Carillon · CatalogFault.swift
// SPDX-License-Identifier: Apache-2.0

/// One thing that is wrong with a catalog, with its file and line where they are known.
package struct CatalogFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}

/// All that is wrong with a catalog.
package struct CatalogFaults: Error, Sendable, Equatable, CustomStringConvertible {
    package let faults: [CatalogFault]

    package init(_ faults: [CatalogFault]) {
        self.faults = faults
    }

    package var description: String { self.faults.map(\.description).joined(separator: "\n") }
}

/// Collects what is wrong, so that one reading names it all.
final class CatalogFaultLog {
    /// How many are named; of more, the last says how many there are.
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
        throw CatalogFaults(self.faults.prefix(Self.mostFaults) + [CatalogFault("and \(rest) faults more")])
    }
}

/// Where an entry of a catalog stands.
struct CatalogPlace: Sendable, CustomStringConvertible {
    let file: String
    let line: Int?

    var description: String { self.line.map { "\(self.file):\($0)" } ?? self.file }
}

/// An entry and where it stands; in memory if that is nil.
struct Placed<Value: Sendable>: Sendable {
    let value: Value
    let place: CatalogPlace?

    init(_ value: Value, at place: CatalogPlace? = nil) {
        self.value = value
        self.place = place
    }
}
