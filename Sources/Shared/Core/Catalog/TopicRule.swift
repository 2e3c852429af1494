// Carillon · TopicRule.swift
// SPDX-License-Identifier: Apache-2.0

import Yams

/// The rule for a topic, or for all topics that match a pattern.
package struct TopicRule: Sendable, Equatable {
    /// A name, in which `*` matches any number of characters.
    let pattern: String
    /// Whether users may subscribe themselves.
    package var isOpen = false
}

/// The topic rules of a catalog: an exact name wins, then the longest matching pattern.
struct TopicRules: Sendable {
    private var exact: [ExactText: TopicRule] = [:]
    private var patterns: [TopicRule] = []

    init(_ rules: [TopicRule]) {
        for rule in rules {
            if rule.pattern.utf8.contains(UInt8(ascii: "*")) {
                self.patterns.append(rule)
            } else {
                self.exact[ExactText(rule.pattern)] = rule
            }
        }
        self.patterns.sort { ($1.pattern.utf8.count, $0.pattern) < ($0.pattern.utf8.count, $1.pattern) }
    }

    subscript(_ topic: String) -> TopicRule? {
        if let rule = self.exact[ExactText(topic)] { return rule }
        let name = Array(topic.utf8)
        return self.patterns.first { Self.matches(Array($0.pattern.utf8)[...], name[...]) }
    }

    /// Matches bytes.
    ///
    /// Backtracks only to the last star, so the time is at most pattern length × name length.
    private static func matches(_ pattern: ArraySlice<UInt8>, _ name: ArraySlice<UInt8>) -> Bool {
        var pattern = pattern
        var name = name
        var retry: (pattern: ArraySlice<UInt8>, name: ArraySlice<UInt8>)?
        while true {
            if pattern.first == UInt8(ascii: "*") {
                pattern = pattern.dropFirst()
                retry = (pattern, name)
            } else if let byte = name.first, byte == pattern.first {
                pattern = pattern.dropFirst()
                name = name.dropFirst()
            } else if pattern.isEmpty, name.isEmpty {
                return true
            } else if let last = retry, !last.name.isEmpty {
                pattern = last.pattern
                name = last.name.dropFirst()
                retry = (pattern, name)
            } else {
                return false
            }
        }
    }
}

/// Reads `topics:`, one entry for each name or pattern.
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
                    reader.unknown(setting.key, among: ["open"])
                    continue
                }
                rule.isOpen = reader.bool(setting.value, "open") ?? false
            }
            document.topics.append(Located(rule, at: reader.location(of: entry.key)))
        }
    }
}
