// Carillon · JobIntakeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

@testable import Pipeline

@Suite("Intake of jobs", .timeLimit(.minutes(10)))
struct JobIntakeTests {
    private static let everyone = #"["ada","bob","eve"]"#

    /// Takes jobs with the same id, one after the other, and returns the letters that are stored.
    private static func letters(
        of jobs: [[(String, String)]],
        _ prepare: (TestDatabase) async throws -> Void = { _ in }
    ) async throws -> [DeadLetterStore.Letter] {
        let catalog = try CatalogParser.parse([
            (
                "c.yaml",
                """
                types:
                  news:
                    templates:
                      en: {title: "{{n}}"}
                      de: {title: "{{n}} {{late}}"}
                """
            )
        ])
        return try await TestDispatcher.with(catalog: catalog) { dispatcher, database in
            var settings = UserSettings()
            settings.locale = "de"
            _ = try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            try await prepare(database)
            let group = dispatcher.group(dispatcher.keys.jobs(.normal))
            for (number, job) in jobs.enumerated() {
                let fields = [("type", "news"), ("id", "x")] + job
                let entry = StreamEntry(
                    id: "\(TestDispatcher.now.milliseconds)-\(number)",
                    fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
                let stored = try await JobIntake(dispatcher: dispatcher).take(
                    LaneBatch(lane: .normal, group: group, entries: [entry]))
                try await DeadLetterQueue(dispatcher: dispatcher).setAside(stored.dead)
            }
            return try await dispatcher.database.deadLetters.list(DeadLetterStore.Filter(), limit: 10)
        }
    }

    private static func users(of letter: DeadLetterStore.Letter?) -> String? {
        letter?.fields.first { $0.name == "users" }.map { String(decoding: $0.value, as: UTF8.self) }
    }

    @Test("a text that fails for one user and an id that another user has make one letter with both")
    func both() async throws {
        let letters = try await Self.letters(of: [
            [("user", "bob"), ("vars", #"{"n":1}"#)],
            [("users", Self.everyone), ("vars", #"{"n":2}"#)],
        ])
        #expect(letters.count == 1)
        let reasons = ["vars.late: is missing, in type news, locale de", JobIntake.conflictReason]
        #expect(letters.first?.reason == reasons.joined(separator: "; "))
        #expect(Self.users(of: letters.first) == #"["ada","bob"]"#)
    }

    @Test("a job that PostgreSQL refuses has a letter with all users, even if a text fails for some")
    func refused() async throws {
        let letters = try await Self.letters(of: [[("users", Self.everyone), ("vars", #"{"n":1}"#)]]) { database in
            _ = try await database.pool.query(
                "ALTER TABLE carillon.notifications ADD CONSTRAINT no_bob CHECK (user_id <> 'bob')")
        }
        #expect(letters.count == 1)
        #expect(letters.first?.reason == "PostgreSQL refused it: SQLSTATE 23514")
        #expect(Self.users(of: letters.first) == Self.everyone)
    }
}
