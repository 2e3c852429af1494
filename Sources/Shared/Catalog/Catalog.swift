// Carillon · Catalog.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// All notification types that jobs may name.
package struct Catalog: Sendable {
    private let types: [String: NotificationType]
    private let topics: TopicRules
    /// How many interruptions a user gets of all types together; nil for any number.
    package let userCap: FrequencyCap?
    private let categoryCaps: [String: FrequencyCap]

    /// - Throws: ``CatalogFault`` if a name or an integer code occurs twice.
    package init(
        _ types: [NotificationType],
        topics: [TopicRule] = [],
        userCap: FrequencyCap? = nil,
        categoryCaps: [String: FrequencyCap] = [:]
    ) throws(CatalogFault) {
        var byName: [String: NotificationType] = [:]
        var codes: [Int: String] = [:]
        for type in types {
            guard byName.updateValue(type, forKey: type.name) == nil else {
                throw CatalogFault("type \(type.name) is defined twice")
            }
            if let code = type.code, let other = codes.updateValue(type.name, forKey: code) {
                throw CatalogFault("types \(other) and \(type.name) share the code \(code)")
            }
        }
        self.types = byName
        self.categories = types.compactMap { type in type.category.map { (type.name, $0) } }
        self.topics = try TopicRules(topics)
        self.userCap = userCap
        self.categoryCaps = categoryCaps
    }

    /// The categories of types that have one.
    package let categories: [(type: String, category: String)]

    /// Whether users may subscribe to a topic themselves.
    package func isOpen(topic: String) -> Bool { self.topics[topic]?.isOpen ?? false }

    /// How many interruptions a user gets of a category; nil for any number.
    package func cap(category: String) -> FrequencyCap? { self.categoryCaps[category] }

    package subscript(_ name: String) -> NotificationType? {
        self.types[name]
    }

    /// All types, by name.
    package var all: [NotificationType] {
        self.types.values.sorted { $0.name < $1.name }
    }
}

/// What is wrong with a catalog, with its file and line where they are known.
package struct CatalogFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}
