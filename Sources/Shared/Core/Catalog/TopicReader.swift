// Carillon · TopicReader.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// Reads the topics of a catalog file: `topics:` with an entry a name or pattern.
struct TopicReader {
    private let reader: NodeReader

    init(_ reader: NodeReader) {
        self.reader = reader
    }

    func read(_ node: Node, into document: inout CatalogDocument) {
        for entry in self.reader.entries(node, "`topics:` with an entry for each topic") {
            guard let name = self.reader.name(entry.key, "a topic's name") else { continue }
            let reader = self.reader.of("topic \(name)")
            var rule = TopicRule(pattern: name)
            for setting in reader.entries(entry.value, "settings") {
                guard setting.name == "open" else {
                    reader.fault(setting.key, "unknown setting \(setting.name)")
                    continue
                }
                rule.isOpen = reader.bool(setting.value, "open") ?? false
            }
            document.topics.append(Placed(rule, at: reader.place(entry.key)))
        }
    }
}
