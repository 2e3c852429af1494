// Carillon · CatalogReloadTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

@testable import HTTP

/// Catalog reloads during work.
@Suite(.timeLimit(.minutes(10)))
struct CatalogReloadTests {
    private static func catalog(_ greeting: String) -> String {
        """
        types:
          hello:
            templates: {en: {title: "\(greeting) {{n}}"}}
        """
    }

    private static func sum(_ metrics: String, _ name: String) -> Double {
        metrics.split(separator: "\n").filter { $0.hasPrefix(name) }
            .compactMap { $0.split(separator: " ").last.flatMap { Double($0) } }.reduce(0, +)
    }

    @Test("a reload reaches all gateways and dispatchers at work, and no job is lost")
    func duringWork() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog("Hello"))
            let one = try await stack.startGateway(name: "one", environment: environment)
            let other = try await stack.startGateway(name: "other", environment: environment)
            _ = try await stack.startDispatcher(environment: environment)
            let admin = Stack.token(user: "root", scope: .admin)
            let before = try await one.call(.get, "/v1/admin/catalog", token: admin)
            #expect(before.status == 200)
            #expect(before.body["types"]?.texts("name") == ["hello"])
            let digest = try #require(before.body["digest"]?.string)
            try await eventually("all listen") {
                let reply = try await stack.connection.send("PUBLISH", "carillon:catalog", "")
                return try reply.integer() == 3
            }

            let users = (0..<200).map { #""u\#($0)""# }.joined(separator: ",")
            let jobs = 40
            for number in 0..<jobs {
                if number == jobs / 2 {
                    try stack.catalog(Self.catalog("Salut"))
                    let answer = try await one.call(.post, "/v1/admin/catalog/reload", token: admin)
                    #expect(answer.status == 200)
                    #expect(answer.body["outcome"]?.string == "replaced")
                    // Two gateways and a dispatcher.
                    #expect(answer.body["told"]?.integer == 3)
                    #expect(answer.body["digest"]?.string != digest)
                }
                try await stack.append([
                    ("users", "[\(users)]"), ("type", "hello"), ("vars", #"{"n":\#(number)}"#),
                ])
            }
            try await eventually("every copy is stored") {
                try await stack.query("SELECT count(*) FROM carillon.notifications").first?.int8(0) == Int64(jobs * 200)
            }
            #expect(try await stack.deadReasons().isEmpty)
            // All copies of a job have the text of one catalog, and the last job has the new one's.
            let rows = try await stack.query(
                "SELECT title, count(*) FROM carillon.notifications GROUP BY title ORDER BY min(id::text)")
            let titles = try rows.map { try $0.text(0) }
            #expect(titles.count == jobs)
            #expect(try rows.allSatisfy { try $0.int8(1) == 200 })
            let firstNew = try #require(titles.firstIndex { $0.hasPrefix("Salut") })
            #expect(titles[firstNew...].allSatisfy { $0.hasPrefix("Salut") })
            try await eventually("the other gateway has it too") {
                let status = try await other.call(.get, "/v1/admin/catalog", token: admin)
                return status.body["digest"]?.string != digest
            }
        }
    }

    @Test("a job finds a type that was added to the file without a reload")
    func added() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog("Hello"))
            _ = try await stack.startDispatcher(environment: environment)
            try stack.catalog(Self.catalog("Hello") + "\n  bye: {}\n")
            try await stack.append([("user", "ada"), ("type", "bye"), ("title", "Bye")])
            try await eventually("it is stored") { try await stack.texts(user: "ada") == [["Bye", ""]] }
            #expect(try await stack.deadReasons().isEmpty)
        }
    }

    @Test("a faulty catalog never replaces a good one, and each fault is answered, counted and shown")
    func faulty() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog("Hello"))
            let gateway = try await stack.startGateway(environment: environment)
            let dispatcher = try await stack.startDispatcher(environment: environment)
            let admin = Stack.token(user: "root", scope: .admin)
            try stack.catalog("types:\n  a: {lane: slow}\n  b: {code: x}\n")
            let answer = try await gateway.call(.post, "/v1/admin/catalog/reload", token: admin)
            #expect(answer.status == 422)
            #expect(answer.type == "application/problem+json")
            let reasons = answer.body["errors"]?.texts("reason") ?? []
            #expect(reasons.count == 2)
            #expect(reasons.first?.hasSuffix(":2: type a: lane must be one of critical, normal, bulk") == true)
            let status = try await gateway.call(.get, "/v1/admin/catalog", token: admin)
            #expect(status.body["types"]?.texts("name") == ["hello"])
            #expect(status.body["refused"]?["faults"]?.array?.count == 2)
            let metrics = try await gateway.call(.get, "/metrics", token: nil).response.body
            let text = String(decoding: metrics, as: UTF8.self)
            #expect(Self.sum(text, #"carillon_catalog_reloads{outcome="refused"}"#) >= 1)
            #expect(Self.sum(text, "carillon_catalog_types") == 1)
            #expect(Self.sum(text, "carillon_catalog_refused") == 1)

            // On SIGHUP the dispatcher reads the file, refuses it and goes on.
            dispatcher.send(SIGHUP)
            try await eventually("the dispatcher says so") { dispatcher.errors().contains("catalog rejected") }
            try await stack.append([("user", "ada"), ("type", "hello"), ("vars", #"{"n":1}"#)])
            try await eventually("the old text") { try await stack.texts(user: "ada") == [["Hello 1", ""]] }
            try stack.catalog(Self.catalog("Salut"))
            for process in [dispatcher, gateway.process] { process.send(SIGHUP) }
            try await eventually("the new text") {
                try await stack.append([("user", "eve"), ("type", "hello"), ("vars", #"{"n":1}"#)])
                return try await stack.texts(user: "eve").last == ["Salut 1", ""]
            }
            try await eventually("the gateway has it too") {
                try await gateway.call(.get, "/v1/admin/catalog", token: admin).body["refused"] == .null
            }
            let later = try await gateway.call(.get, "/metrics", token: nil).response.body
            #expect(Self.sum(String(decoding: later, as: UTF8.self), "carillon_catalog_refused") == 0)
            // A job of a new type makes the dispatcher read its files, too.
            let address = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            func refused() async throws -> Double? {
                try await MetricsText.page("\(address)/metrics", stack).samples["carillon_catalog_refused"]
            }
            let before = try await refused()
            #expect(before == 0)
            try stack.catalog("types:\n  bye: {lane: slow}\n")
            try await stack.append([("user", "ada"), ("type", "bye"), ("title", "Bye")])
            try await eventually("the dispatcher counts it") { try await refused() == 1 }
            let user = Stack.token(user: "ada")
            #expect(try await gateway.call(.get, "/v1/admin/catalog", token: user).status == 403)
            #expect(try await gateway.call(.post, "/v1/admin/catalog/reload", token: user).status == 403)
        }
    }
}

/// A catalog that changes while a broadcast is expanded.
@Suite(.timeLimit(.minutes(10)))
struct CatalogBroadcastTests {
    private static let count = 2_000

    private static func catalog(_ greeting: String, type: String = "hello") -> String {
        """
        types:
          \(type):
            lane: bulk
            templates: {en: {title: "\(greeting) {{n}}"}}
          probe:
            templates: {en: {title: "\(greeting)"}}
        """
    }

    /// Starts both programs and a broadcast that is half expanded.
    private static func with(_ body: (Stack, Gateway, ChildProcess) async throws -> Void) async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog("Hello"))
            let gateway = try await stack.startGateway(environment: environment)
            try await stack.query(
                """
                INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, $1::int4) n
                UNION ALL SELECT 'eve'
                """,
                .int4(Int32(Self.count)))
            let dispatcher = try await stack.startDispatcher(
                environment: environment.merging(Stack.holdingBroadcasts) { $1 })
            try await stack.expandHalf("b1", gateway, #""all":true,"type":"hello","vars":{"n":1}"#)
            try await body(stack, gateway, dispatcher)
        }
    }

    @Test("a broadcast shows its type and its own text, or the template's text in the default locale")
    func words() async throws {
        try await Stack.with { stack in
            let texts = #"{en: {title: "Hello {{n}}", body: "All {{n}}"}, de: {title: "Hallo {{n}}"}}"#
            let catalog = "types: {hello: {templates: \(texts)}, plain: {severity: info}}"
            let environment = try stack.catalog(catalog)
            let gateway = try await stack.startBoth(environment: environment)
            try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('eve')")
            let service = Stack.token(user: "backend", scope: .service)
            let admin = Stack.token(user: "root", scope: .admin)
            for (id, words) in [
                ("b1", #""type":"hello","vars":{"n":7}"#), ("b2", #""type":"plain","title":"Own","body":"words""#),
            ] {
                let job = #"{"id":"\#(id)","all":true,\#(words)}"#
                #expect(try await gateway.call(.post, "/v1/jobs", token: service, json: job).status == 202)
                try await eventually("it is stored") {
                    try await gateway.call(.get, "/v1/jobs/\(id)", token: service).body["broadcast"]?["state"]?.string
                        == "done"
                }
            }
            let list = try await gateway.call(.get, "/v1/admin/broadcasts", token: admin).body["broadcasts"]?.array
            let said = list?.map { broadcast in ["type", "title", "body"].map { broadcast[$0]?.string } }
            #expect(said == [["plain", "Own", "words"], ["hello", "Hello 7", "All 7"]])
            let one = try await gateway.call(.get, "/v1/jobs/b1", token: service).body["broadcast"]
            #expect(one?["title"]?.string == "Hello 7")
            // The type is removed from the catalog.
            try stack.catalog("types: {plain: {severity: info}}")
            #expect(try await gateway.call(.post, "/v1/admin/catalog/reload", token: admin).status == 200)
            let gone = try await gateway.call(.get, "/v1/jobs/b1", token: service).body["broadcast"]
            #expect(gone?["type"]?.string == "hello")
            #expect(gone?["title"] == .null)
            #expect(gone?["stored"]?.integer == 1)
        }
    }

    private static func state(_ gateway: Gateway) async throws -> JSONValue? {
        let service = Stack.token(user: "backend", scope: .service)
        return try await gateway.call(.get, "/v1/jobs/b1", token: service).body["broadcast"]
    }

    /// The number of notifications by title.
    private static func titles(_ stack: Stack) async throws -> [String: Int] {
        let rows = try await stack.query(
            """
            SELECT title, count(*)::int4, count(DISTINCT user_id)::int4 FROM carillon.notifications
            WHERE type <> 'probe' GROUP BY title
            """)
        var titles: [String: Int] = [:]
        for row in rows {
            #expect(try row.int4(1) == row.int4(2), "a user has it twice")
            titles[try row.text(0)] = Int(try row.int4(1))
        }
        return titles
    }

    /// Reloads the dispatcher's catalog and waits until a new job uses the new text.
    private static func reload(_ greeting: String, _ dispatcher: ChildProcess, _ stack: Stack) async throws {
        dispatcher.send(SIGHUP)
        try await eventually("the new text") {
            try await stack.append([("user", "eve"), ("type", "probe"), ("vars", "{}")])
            return try await stack.texts(user: "eve").last?.first == greeting
        }
    }

    @Test("each page uses the catalog in force when it is stored, and a faulty file changes nothing")
    func replaced() async throws {
        try await Self.with { stack, gateway, dispatcher in
            let first = try await Self.titles(stack)
            #expect(Set(first.keys) == ["Hello 1"])
            try stack.catalog("types:\n  hello: {lane: slow}\n")
            dispatcher.send(SIGHUP)
            try await eventually("it is refused") { dispatcher.errors().contains("catalog rejected") }
            try await stack.freeChains(below: 12)
            try await eventually("three quarters are expanded") {
                try await Self.state(gateway)?["chains_done"]?.integer == 12
            }
            let second = try await Self.titles(stack)
            #expect(Set(second.keys) == ["Hello 1"])
            #expect((second["Hello 1"] ?? 0) > (first["Hello 1"] ?? 0))

            try stack.catalog(Self.catalog("Salut"))
            try await Self.reload("Salut", dispatcher, stack)
            try await stack.freeChains(below: 16)
            try await eventually("all is expanded") { try await Self.state(gateway)?["state"]?.string == "done" }
            let last = try await Self.titles(stack)
            #expect(Set(last.keys) == ["Hello 1", "Salut 1"])
            #expect(last["Hello 1"] == second["Hello 1"])
            #expect(last.values.reduce(0, +) == Self.count + 1)
            #expect(try await stack.deadReasons().isEmpty)
        }
    }

    @Test("a page finds a type that is back in the file without a reload")
    func back() async throws {
        try await Self.with { stack, gateway, dispatcher in
            try stack.catalog(Self.catalog("Bye", type: "other"))
            try await Self.reload("Bye", dispatcher, stack)
            try stack.catalog(Self.catalog("Hello") + "\n  other: {}")
            try await stack.freeChains(below: 16)
            try await eventually("all is expanded") { try await Self.state(gateway)?["state"]?.string == "done" }
            #expect(try await Self.titles(stack) == ["Hello 1": Self.count + 1])
            #expect(try await stack.deadReasons().isEmpty)
        }
    }

    @Test("a type that disappears half-way fails the broadcast; replayed when it is back, the rest is notified")
    func removed() async throws {
        try await Self.with { stack, gateway, dispatcher in
            let half = try await Self.titles(stack)["Hello 1"] ?? 0
            #expect((1..<Self.count).contains(half))
            try stack.catalog(Self.catalog("Bye", type: "other"))
            try await Self.reload("Bye", dispatcher, stack)
            try await stack.freeChains(below: 16)
            try await eventually("it is given up") { try await Self.state(gateway)?["state"]?.string == "failed" }
            try await eventually("its job is a dead letter") {
                try await stack.deadReasons().values.contains { $0.hasPrefix("type: ") }
            }
            #expect(try await Self.titles(stack) == ["Hello 1": half])

            try stack.catalog(Self.catalog("Hello"))
            try await Self.reload("Hello", dispatcher, stack)
            let admin = Stack.token(user: "root", scope: .admin)
            try await eventually("the dead letter is replayed") {
                let answer = try await gateway.call(
                    .post, "/v1/admin/dead-letters/replay", token: admin, json: #"{"type":"hello"}"#)
                return answer.body["count"]?.integer == 1
            }
            try await eventually("the rest is expanded") { try await Self.state(gateway)?["state"]?.string == "done" }
            #expect(try await Self.titles(stack) == ["Hello 1": Self.count + 1])
        }
    }
}
