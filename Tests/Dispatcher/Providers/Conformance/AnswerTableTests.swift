// Carillon · AnswerTableTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Testing

/// What is written about answers, against what providers' own words and statuses bring about over real connections.
@Suite("Documented answers", .timeLimit(.minutes(10)))
struct AnswerTableTests {
    /// An answer that came, and what it was taken for.
    private struct Exercised: Sendable, CustomStringConvertible {
        let marker: String
        let status: Int
        let reason: String
        let reaction: AnswerRule.Reaction

        var description: String { "\(self.marker) \(self.status) \(self.reason) as \(self.reaction.rawValue)" }

        /// Whether an entry of a table is about it.
        ///
        /// - Parameter known: the words that have a row.
        func shows(_ entry: AnswerTable.Entry, known: Set<String>) -> Bool {
            // A credential that is new already, and refused too, is a matter of the configuration.
            let reaction = entry.reaction == .staleCredential ? .configuration : entry.reaction
            guard self.reaction == reaction else { return false }
            return switch entry.answer {
            case .word(let word): self.reason == word
            case .status(let pattern): self.has(pattern)
            case .otherStatus(let pattern): !known.contains(self.reason) && (pattern.isEmpty || self.has(pattern))
            case .elsewhere: false
            }
        }

        /// Whether the status is such as `403` or `4xx`.
        private func has(_ pattern: String) -> Bool {
            let status = String(self.status)
            return status == pattern || pattern.hasSuffix("xx") && status.prefix(1) == pattern.prefix(1)
        }
    }

    /// What has neither a word nor a status of its own: the suite's HTTP/1.1, and addresses to which nothing is sent.
    private static let elsewhere: Set<String> = [
        "an answer by HTTP/1.1", "a private address", "a service that is not on the list",
    ]

    @Test("Every provider but e-mail has a table, and every class of answers a row")
    func complete() throws {
        let tables = try AnswerTable.all()
        #expect(Set(tables.map(\.provider)) == Set(ProviderKinds.providers).subtracting([.email]))
        for table in tables where table.provider != .webhook {
            #expect(table.reactions.count == AnswerRule.Reaction.allCases.count)
            #expect(Set(table.reactions) == Set(AnswerRule.Reaction.allCases))
        }
        for entry in tables.flatMap(\.entries) where entry.answer == .elsewhere {
            #expect(Self.elsewhere.contains(entry.text), "\(entry) has to be exercised somewhere")
        }
    }

    @Test("Each word and status of a table is exercised with its class, and what is exercised is in the table")
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
            // What the table names by its word is not meant by its "other".
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

    /// Sends to a token for each answer that the sandbox has for the provider.
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

    /// What an answer's transcript begins with: `HTTP/2 403`.
    private static func status(_ reply: ProviderReply) -> Int? {
        guard let line = reply.transcript?.split(separator: "\n").first, line.hasPrefix("HTTP/") else { return nil }
        return line.split(separator: " ").last.flatMap { Int($0) }
    }
}
