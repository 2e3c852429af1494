// Carillon · CatalogReloadTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Support
import Testing

/// Catalog reloads during work.
@Suite(.serialized, .timeLimit(.minutes(10)))
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
            let admin = try await Stack.token(user: "root", scope: .admin)
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
            try await eventually("every copy is stored", within: .seconds(60)) {
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

    @Test("a faulty catalog never replaces a good one, and each fault is answered, counted and shown")
    func faulty() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog("Hello"))
            let gateway = try await stack.startGateway(environment: environment)
            let dispatcher = try await stack.startDispatcher(environment: environment)
            let admin = try await Stack.token(user: "root", scope: .admin)
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

            // On SIGHUP the dispatcher reads the file, refuses it and goes on.
            dispatcher.send(SIGHUP)
            try await eventually("the dispatcher says so") { dispatcher.errors().contains("catalog refused") }
            try await stack.append([("user", "ada"), ("type", "hello"), ("vars", #"{"n":1}"#)])
            try await eventually("the old words") { try await stack.texts(user: "ada") == [["Hello 1", ""]] }
            try stack.catalog(Self.catalog("Salut"))
            for process in [dispatcher, gateway.process] { process.send(SIGHUP) }
            try await eventually("the new words") {
                try await stack.append([("user", "eve"), ("type", "hello"), ("vars", #"{"n":1}"#)])
                return try await stack.texts(user: "eve").last == ["Salut 1", ""]
            }
            try await eventually("the gateway has it too") {
                try await gateway.call(.get, "/v1/admin/catalog", token: admin).body["refused"] == .null
            }
            let user = try await Stack.token(user: "ada")
            #expect(try await gateway.call(.get, "/v1/admin/catalog", token: user).status == 403)
            #expect(try await gateway.call(.post, "/v1/admin/catalog/reload", token: user).status == 403)
        }
    }
}
