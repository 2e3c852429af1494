// Carillon · TopicReader.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Yams

/// Reads the topics of a catalog file: `topics:` with an entry a name or pattern.
package enum TopicReader {
    /// The topics of one document; none if it has no `topics:`.
    ///
    /// - Throws: ``CatalogFault`` that names file, line, topic and what is expected.
    package static func parse(_ text: String, file: String) throws(CatalogFault) -> [TopicRule] {
        let root: Node?
        do {
            root = try Yams.compose(yaml: text)
        } catch {
            throw CatalogFault("\(file): \(error)")
        }
        guard let topics = root?.mapping?["topics"] else { return [] }
        guard let entries = topics.mapping else {
            throw Self.fault(topics, file, "expected `topics:` with an entry for each topic")
        }
        var rules: [TopicRule] = []
        for (key, node) in entries {
            guard let name = key.string, (1...JobLimits.name).contains(name.unicodeScalars.count) else {
                throw Self.fault(key, file, "a topic's name has 1 to \(JobLimits.name) characters")
            }
            guard let settings = node.mapping else { throw Self.fault(node, file, "topic \(name): expected settings") }
            var rule = TopicRule(pattern: name)
            for (key, value) in settings {
                guard key.string == "open" else {
                    throw Self.fault(key, file, "topic \(name): unknown setting \(key.string ?? "?")")
                }
                guard let isOpen = value.bool else {
                    throw Self.fault(value, file, "topic \(name): open must be true or false")
                }
                rule.isOpen = isOpen
            }
            rules.append(rule)
        }
        return rules
    }

    private static func fault(_ node: Node, _ file: String, _ reason: String) -> CatalogFault {
        CatalogFault("\(file)\(node.mark.map { ":\($0.line)" } ?? ""): \(reason)")
    }
}
