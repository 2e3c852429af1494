// Carillon · BroadcastTextTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// Broadcasts whose text cannot be rendered for some users.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct BroadcastTextTests {
    private static func catalog(german: String) -> String {
        """
        types:
          notice:
            templates:
              en: {title: "Hello {{name}}"}
              de: {title: "\(german)"}
        """
    }

    /// Creates users u1 to u40, who read German, and u41 to u48, who do not.
    private static func makeReaders(in stack: Stack) async throws {
        try await stack.query("INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 48) n")
        try await stack.query(
            """
            INSERT INTO carillon.user_settings (user_id, locale) SELECT 'u' || n, 'de' FROM generate_series(1, 40) n
            """
        )
    }

    @Test("users whose text fails go to one dead letter a page; after a fix, replaying notifies each once")
    func failingText() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog(german: "Hallo {{name}}{{late}}"))
            let gateway = try await stack.startGateway(environment: environment)
            let first = try await stack.startDispatcher(name: "first", environment: environment)
            try await Self.makeReaders(in: stack)
            let entry = try await stack.append([("all", "true"), ("type", "notice"), ("vars", #"{"name":"all"}"#)])
            let report = try await Broadcasts.waitFor("done", gateway, entry)
            #expect(report["broadcast"]?["stored"]?.integer == 8)
            #expect(report["broadcast"]?["not_stored"]?["text_failed"]?.integer == 40)
            #expect(report["broadcast"]?["not_stored"]?["held"] == nil)
            let letters = try await stack.query("SELECT entry, fields FROM carillon.dead_letters")
            // Forty users fall into several of the sixteen chains, and some chains hold none of the
            // others.
            #expect(letters.count > 1)
            let names = try letters.map { try $0.text(0) }
            #expect(names.allSatisfy { $0.hasPrefix(entry + ".") })
            let reasons = try await stack.deadReasons()
            #expect(Set(reasons.keys) == Set(names))
            let fields: [[[String]]] = try letters.map { row in
                let json = try #require(try row.optionalJSON(1))
                return try JSONParser.parse(json).array?.compactMap { $0.strings } ?? []
            }
            #expect(fields.allSatisfy { letter in !letter.contains { $0.first == "all" } })
            let named = try fields.flatMap { letter -> [String] in
                let users = try #require(letter.first { $0.first == "users" }?.last)
                return try JSONParser.parse(Array(users.utf8)).strings ?? []
            }
            #expect(named.sorted() == (1...40).map { "u\($0)" }.sorted())

            try await first.stop()
            try stack.catalog(Self.catalog(german: "Hallo {{name}}"))
            _ = try await stack.startDispatcher(name: "second", environment: environment)
            let admin = try await Stack.token(user: "root", scope: .admin)
            let replayed = try await gateway.call(
                .post, "/v1/admin/dead-letters/replay", token: admin, json: #"{"all":true}"#)
            #expect(replayed.body["count"]?.integer == Int64(letters.count))
            try await eventually("all are notified, and the letters are gone") {
                let stored = try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.notifications")
                let left = try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.dead_letters")
                return stored == 48 && left == 0
            }
            // Appends one of them again, as a dispatcher does that crashed right after the append.
            let again = try #require(fields.first)
            try await stack.append(again.map { ($0[0], $0[1]) })
            try await stack.append([("user", "last"), ("type", "notice"), ("vars", #"{"name":"last"}"#)])
            try await eventually("the last one has come") {
                try await stack.texts(user: "last") == [["Hello last", ""]]
            }
            #expect(try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.notifications") == 49)
            let distinct = "SELECT count(DISTINCT user_id) FROM carillon.notifications"
            #expect(try await Broadcasts.number(stack, distinct) == 49)
            #expect(try await stack.texts(user: "u1") == [["Hallo all", ""]])
            #expect(try await stack.texts(user: "u48") == [["Hello all", ""]])
            // The broadcast's report counts them too.
            let counted = try await Broadcasts.report(gateway, entry)["recipients"]?.object?.compactMap {
                $0.value.integer
            }
            #expect(counted?.reduce(0, +) == 48)
        }
    }
}
