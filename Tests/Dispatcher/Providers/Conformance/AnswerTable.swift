// Carillon · AnswerTable.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Providers
import Testing

/// A provider's table of answers in `docs/providers.md`: its words and statuses, each with its class.
struct AnswerTable: Sendable {
    struct Entry: Sendable, CustomStringConvertible {
        /// By what it is known; whatever follows that is for readers.
        enum Answer: Sendable, Equatable {
            case word(String)
            /// A status such as `403` or `4xx`, whatever its word.
            case status(String)
            /// A status whose word has no row, or any such status if it is empty.
            case otherStatus(String)
            /// What is no answer with a word or a status.
            case elsewhere
        }

        let text: String
        let answer: Answer
        let reaction: AnswerRule.Reaction

        var description: String { "\(self.text) as \(self.reaction.rawValue)" }

        init(_ text: String, _ reaction: AnswerRule.Reaction) {
            var words = text.split(separator: " ").map { String($0) }
            let isOther = words.first == "other"
            if isOther { words.removeFirst() }
            let first = words.first ?? ""
            self.text = text
            self.reaction = reaction
            if isOther {
                self.answer = .otherStatus(first)
            } else if first.first?.isNumber == true {
                self.answer = .status(first)
            } else {
                self.answer = first.first?.isUppercase == true ? .word(first) : .elsewhere
            }
        }
    }

    let provider: Provider
    let entries: [Entry]
    /// The classes of its rows.
    let reactions: [AnswerRule.Reaction]

    private static let columns: [(provider: Provider, name: String)] = [
        (.fcm, "FCM"), (.apns, "APNs"), (.webpush, "Web Push"),
    ]
    /// Rows of what is no answer, and of what needs none.
    private static let others = ["accepted", "no answer"]

    /// Every table that goes by words and statuses; a relay's goes by what its reply was to.
    static func all() throws -> [AnswerTable] {
        let shared = try Self.rows(under: "| class | ")
        let header = try #require(shared.first)
        let names = ["class"] + Self.columns.map(\.name) + ["reaction"]
        try #require(header == names)
        var tables = try Self.columns.enumerated().map { index, column in
            try AnswerTable(column.provider, shared.dropFirst().map { (name: $0[0], answers: $0[index + 1]) })
        }
        let webhook = try Self.rows(under: "| answer | class |")
        tables.append(try AnswerTable(.webhook, webhook.dropFirst().map { (name: $0[1], answers: $0[0]) }))
        return tables
    }

    private init(_ provider: Provider, _ rows: [(name: String, answers: String)]) throws {
        var entries: [Entry] = []
        var reactions: [AnswerRule.Reaction] = []
        for row in rows {
            let name = String(row.name.prefix { $0 != "," && $0 != ":" })
            if Self.others.contains(name) { continue }
            let reaction: AnswerRule.Reaction? = name == "our fault" ? .refused : AnswerRule.Reaction(rawValue: name)
            let known = try #require(reaction, "the class \(name) is none")
            reactions.append(known)
            for text in row.answers.split(separator: ",") {
                let trimmed = text.trimmingCharacters(in: .whitespaces)
                if !trimmed.isEmpty { entries.append(Entry(trimmed, known)) }
            }
        }
        self.provider = provider
        self.entries = entries
        self.reactions = reactions
    }

    /// The cells of a table of the page, its header first.
    private static func rows(under header: String) throws -> [[String]] {
        let page = URL(filePath: #filePath).appending(path: "../../../../../docs/providers.md").standardized
        let lines = try String(contentsOf: page, encoding: .utf8).split(
            separator: "\n", omittingEmptySubsequences: false)
        let start = try #require(lines.firstIndex { $0.hasPrefix(header) }, "no table begins with \(header)")
        let rows = lines[start...].prefix { $0.hasPrefix("|") }.map { line in
            line.split(separator: "|", omittingEmptySubsequences: false).dropFirst().dropLast()
                .map { $0.trimmingCharacters(in: .whitespaces) }
        }
        try #require(rows.allSatisfy { $0.count == rows[0].count })
        // The second has hyphens only.
        return [rows[0]] + rows.dropFirst(2)
    }
}
