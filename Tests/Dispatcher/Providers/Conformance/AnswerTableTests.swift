// Carillon · AnswerTableTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Testing

@testable import Providers

/// Compares the documented answers with the reactions to providers' answers over real connections.
@Suite("Documented answers", .timeLimit(.minutes(10)))
struct AnswerTableTests {
    /// An answer and the reaction to it.
    private struct Exercised: Sendable, CustomStringConvertible {
        let marker: String
        let status: Int
        let reason: String
        let reaction: AnswerRule.Reaction

        var description: String { "\(self.marker) \(self.status) \(self.reason) as \(self.reaction.rawValue)" }

        /// Whether an entry of a table describes it.
        ///
        /// - Parameter known: the reasons that have a row.
        func shows(_ entry: AnswerTable.Entry, known: Set<String>) -> Bool {
            // A rejected new credential is a configuration fault.
            let reaction = entry.reaction == .staleCredential ? .configuration : entry.reaction
            guard self.reaction == reaction else { return false }
            return switch entry.answer {
            case .word(let word): self.reason == word
            case .status(let pattern): self.has(pattern)
            case .otherStatus(let pattern): !known.contains(self.reason) && (pattern.isEmpty || self.has(pattern))
            case .elsewhere: false
            }
        }

        /// Whether the status matches a pattern such as `403` or `4xx`.
        private func has(_ pattern: String) -> Bool {
            let status = String(self.status)
            return status == pattern || pattern.hasSuffix("xx") && status.prefix(1) == pattern.prefix(1)
        }
    }

    /// Entries without a reason or a status: answers over HTTP/1.1, and addresses that get no
    /// request.
    private static let elsewhere: Set<String> = [
        "an answer by HTTP/1.1", "a private address", "a service that is not on the list",
    ]

    @Test("every provider but e-mail has a table, and every reaction a row")
    func complete() throws {
        let tables = try AnswerTable.all()
        #expect(Set(tables.map(\.provider)) == Set(Provider.all).subtracting([.email]))
        for table in tables where table.provider != .webhook {
            #expect(table.reactions.count == AnswerRule.Reaction.allCases.count)
            #expect(Set(table.reactions) == Set(AnswerRule.Reaction.allCases))
        }
        for entry in tables.flatMap(\.entries) where entry.answer == .elsewhere {
            #expect(Self.elsewhere.contains(entry.text), "\(entry) has to be exercised somewhere")
        }
    }

    @Test("the tables list exactly the reasons and statuses that the suite exercises")
    func exercised() async throws {
        for table in try AnswerTable.all() {
            let profile = try #require(ProviderProfile.all.first { $0.provider == table.provider })
            let known = Set(try profile.kind.rules.map(\.reason))
            let exercised = try await Self.exercise(profile)
            #expect(!exercised.isEmpty)
            for entry in table.entries where entry.answer != .elsewhere {
                #expect(
                    exercised.contains { $0.shows(entry, known: known) }, "\(table.provider): nothing shows \(entry)")
            }
            // A reason with its own entry does not count as "other".
            let named = Set(
                table.entries.compactMap { entry -> String? in
                    if case .word(let word) = entry.answer { word } else { nil }
                })
            for answer in exercised {
                #expect(
                    table.entries.contains { answer.shows($0, known: named) },
                    "\(table.provider): \(answer) is in no row")
            }
        }
    }

    /// Sends to one token for each answer of the provider's sandbox.
    private static func exercise(_ profile: ProviderProfile) async throws -> [Exercised] {
        var markers = profile.rows.values.map(\.marker)
        markers += profile.answers.keys
        markers += profile.nonsense
        return try await ProviderBench.with(profile) { bench in
            var exercised: [Exercised] = []
            for marker in markers {
                let reply = await bench.send(marker)
                guard let reaction = reply.reaction, case .answered(let answer) = reply.result,
                    let reason = answer.reason, let status = Self.status(reply)
                else { continue }
                exercised.append(Exercised(marker: marker, status: status, reason: reason, reaction: reaction))
            }
            return exercised
        }
    }

    /// Returns the status from a transcript's first line, such as `HTTP/2 403`.
    private static func status(_ reply: ProviderReply) -> Int? {
        guard let line = reply.transcript?.split(separator: "\n").first, line.hasPrefix("HTTP/") else { return nil }
        return line.split(separator: " ").last.flatMap { Int($0) }
    }
}

/// A provider's answer table in `docs/providers.md`: its reasons and statuses with their reactions.
struct AnswerTable: Sendable {
    struct Entry: Sendable, CustomStringConvertible {
        /// The key of an entry; any text after it is for readers.
        enum Answer: Sendable, Equatable {
            case word(String)
            /// A status such as `403` or `4xx` with any reason.
            case status(String)
            /// A status whose reason has no row, or any such status if empty.
            case otherStatus(String)
            /// An entry without a reason or a status.
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
    /// The reactions of the table's rows.
    let reactions: [AnswerRule.Reaction]

    private static let columns: [(provider: Provider, name: String)] = [
        (.fcm, "FCM"), (.apns, "APNs"), (.webpush, "Web Push"),
    ]
    /// Rows that need no answer to be exercised.
    private static let others = ["accepted", "no answer"]

    /// Returns every table keyed by reasons and statuses; a relay's is keyed by stage instead.
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

    /// Returns the cells of a table on the page, header first.
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
        // The second row has only hyphens.
        return [rows[0]] + rows.dropFirst(2)
    }
}
