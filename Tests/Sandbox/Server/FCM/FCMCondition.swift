// Carillon · FCMCondition.swift
// SPDX-License-Identifier: Apache-2.0

/// A topic condition: `'a' in topics && ('b' in topics || !('c' in topics))`.
struct FCMCondition {
    private static let maximumTopics = 5
    private static let maximumDepth = 16

    private var rest: Substring
    private var topics = 0

    /// Whether the text is a condition of five topics at most.
    static func isValid(_ text: String) -> Bool {
        var condition = FCMCondition(rest: text[...])
        return condition.disjunction(depth: 0) && condition.rest.isEmpty && condition.topics <= Self.maximumTopics
    }

    private mutating func disjunction(depth: Int) -> Bool {
        guard depth < Self.maximumDepth, self.term(depth: depth) else { return false }
        while self.take("&&") || self.take("||") {
            guard self.term(depth: depth) else { return false }
        }
        return true
    }

    private mutating func term(depth: Int) -> Bool {
        if self.take("!") { return depth < Self.maximumDepth && self.term(depth: depth + 1) }
        if self.take("(") { return self.disjunction(depth: depth + 1) && self.take(")") }
        let quote: Character = self.rest.first == "\"" ? "\"" : "'"
        guard self.take(String(quote)), let end = self.rest.firstIndex(of: quote),
            FCMText.isLabel(self.rest[..<end])
        else { return false }
        self.rest = self.rest[self.rest.index(after: end)...]
        self.topics += 1
        return self.take("in") && self.take("topics")
    }

    private mutating func take(_ token: String) -> Bool {
        let start = self.rest.drop { $0 == " " }
        guard start.hasPrefix(token) else { return false }
        self.rest = start.dropFirst(token.count).drop { $0 == " " }
        return true
    }
}
