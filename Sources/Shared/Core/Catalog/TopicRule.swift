// Carillon · TopicRule.swift
// SPDX-License-Identifier: Apache-2.0

/// What holds for a topic, or for all topics whose names match a pattern.
package struct TopicRule: Sendable, Equatable {
    /// A name, in which `*` stands for any characters, also none.
    package let pattern: String
    /// Whether users may subscribe themselves.
    package var isOpen = false

    package init(pattern: String) {
        self.pattern = pattern
    }
}

/// The rules of a catalog: an exact name decides first, then the longest pattern that matches.
struct TopicRules: Sendable {
    private var exact: [String: TopicRule] = [:]
    private var patterns: [TopicRule] = []

    init(_ rules: [TopicRule]) {
        for rule in rules {
            if rule.pattern.utf8.contains(UInt8(ascii: "*")) {
                self.patterns.append(rule)
            } else {
                self.exact[rule.pattern] = rule
            }
        }
        self.patterns.sort { ($1.pattern.utf8.count, $0.pattern) < ($0.pattern.utf8.count, $1.pattern) }
    }

    subscript(_ topic: String) -> TopicRule? {
        if let rule = self.exact[topic] { return rule }
        let name = Array(topic.utf8)
        return self.patterns.first { Self.matches(Array($0.pattern.utf8)[...], name[...]) }
    }

    /// Compares by bytes, going back to the last star only: linear in the pattern for each byte of the name.
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
