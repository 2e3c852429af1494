// Carillon · CommandTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Support
import Testing

/// `dispatcher trace`, `simulate` and `lag`, and the exit codes of commands.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct CommandTests {
    private static func run(
        _ stack: Stack,
        _ arguments: [String],
        environment: [String: String] = [:],
        program: String = "dispatcher"
    ) async throws -> (code: Int32, output: String, errors: String) {
        let process = try await stack.spawn(
            program, arguments, name: "command-\(UUID().uuidString.prefix(8))", environment: environment)
        guard case .code(let code) = try await process.waitForExit() else {
            throw FixtureError("\(arguments) ended by a signal")
        }
        return (code, process.output(), process.errors())
    }

    private static func json(_ text: String) throws -> JSONValue { try JSONParser.parse(Array(text.utf8)) }

    @Test("trace prints a timeline for people and the API's answer for programs")
    func trace() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let title = "Paid \u{1B}[2J"
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", title), ("id", "j1")])
            try await eventually("it is pushed") { try await stack.statuses(user: "ada") == [title: "sent"] }
            let id = try #require(
                try await stack.query("SELECT id::text FROM carillon.notifications").first?.text(0))
            for arguments in [["trace", id], ["trace", id, "--user", "ada"]] {
                let shown = try await Self.run(stack, arguments)
                #expect(shown.code == 0, "\(shown.errors)")
                for words in ["ada", "payment_received", "enqueued", "stored", "provider fcm", "outcome accepted"] {
                    #expect(shown.output.contains(words), "\(words) in \(shown.output)")
                }
                #expect(!shown.output.contains("\u{1B}"))
            }
            let told = try await Self.run(stack, ["trace", id, "--json"])
            let route = try await gateway.call(
                .get, "/v1/admin/notifications/\(id)/trace", token: try await Stack.token(user: "root", scope: .admin))
            #expect(try Self.json(told.output) == route.body)
            let other = try await Self.run(stack, ["trace", id, "--user", "bob"])
            #expect(other.code == 1)
            #expect(other.output.isEmpty)
            #expect(other.errors.contains("there is no notification"))
        }
    }

    @Test("simulate explains each channel for a job from options, file or standard input, and stores nothing")
    func simulate() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  offer:
                    severity: info
                    delivery: push
                    channels: [in_app, push, email]
                    templates:
                      en: {title: "{{n}} offers", body: "For you"}
                """
            )
            let gateway = try await stack.startGateway(environment: environment)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await gateway.set(
                #"{"zone":"Europe/Berlin","quiet_hours":{"start":"22:00","end":"07:00"}}"#, of: "ada")
            func simulate(_ arguments: [String]) async throws -> (code: Int32, output: String, errors: String) {
                try await Self.run(stack, ["simulate", "--user", "ada"] + arguments, environment: environment)
            }
            let night = ["--at", "2026-11-20T23:10:00+01:00"]
            let shown = try await simulate(["--type", "offer", "--field", #"vars={"n":3}"#] + night)
            #expect(shown.code == 0, "\(shown.errors)")
            for words in [
                "3 offers", "quiet until", "device  ", "devices fcm ", "it waits in the inbox", "(quiet_hours)",
                "(not_asked_for)",
                "2026-11-21T06:00:00",
            ] { #expect(shown.output.contains(words), "\(words) in \(shown.output)") }

            let file = stack.directory.file("job.json")
            try Data(#"{"type":"offer","vars":{"n":4}}"#.utf8).write(to: URL(filePath: file))
            let noon = ["--at", "2026-11-20T12:00:00Z"]
            let told = try await simulate(["--job", file, "--json", "--presence", "online", "--unproven"] + noon)
            let answer = try Self.json(told.output)
            #expect(answer["title"]?.string == "4 offers")
            #expect(answer["channels"]?.texts("channel") == ["in_app", "push", "email"])
            #expect(answer["channels"]?.array?.map { $0["used"]?.bool } == [true, true, false])
            #expect(answer["channels"]?.texts("reason") == ["online", "due", "not_asked_for"])

            let faulty = try await simulate(["--type", "offer", "--field", "vars={}"])
            #expect(faulty.code == 65)
            #expect(faulty.errors.contains("vars.n"))
            let unknown = try await simulate(["--type", "unheard-of"])
            #expect(unknown.code == 65)
            #expect(try await simulate(["--job", "/nowhere/job.json"]).code == 66)
            try Data("{".utf8).write(to: URL(filePath: file))
            #expect(try await simulate(["--job", file]).code == 65)
            #expect(try await stack.query("SELECT 1 FROM carillon.notifications").isEmpty)
        }
    }

    @Test("lag reports each stream and exits with 1 when an entry has waited too long")
    func lag() async throws {
        try await Stack.with { stack in
            let calm = try await Self.run(stack, ["lag", "--max", "0"])
            #expect(calm.code == 0, "\(calm.errors)")
            #expect(calm.output.contains("carillon:jobs:critical"))
            // Four very old entries, one of them taken.
            for number in 1...4 {
                try await stack.connection.send("XADD", "carillon:jobs", .text("1000-\(number)"), "type", "x")
            }
            try await stack.connection.send("XGROUP", "CREATE", "carillon:jobs", "dispatchers", "0")
            try await stack.connection.send(
                "XREADGROUP", "GROUP", "dispatchers", "someone", "COUNT", "1", "STREAMS", "carillon:jobs", ">")
            try await stack.connection.send("ZADD", "carillon:{fcm}:retry:normal", "2000", "overdue")
            try await stack.connection.send("ZADD", "carillon:{fcm}:held:normal:shop", "99999999999999", "held")
            try await stack.connection.send("SADD", "carillon:{fcm}:held:normal", "shop")
            // A retry that has waited for an hour and is due far in the future.
            let since = Int64(Date().timeIntervalSince1970 * 1_000) - 3_600_000
            let id = "018f0000-0000-8000-8000-000000000001"
            try await stack.connection.send(
                "ZADD", "carillon:{fcm}:retry:bulk", "99999999999999", .text("1 \(id) \(id) 1 r\(since) ada"))
            let told = try await Self.run(stack, ["lag", "--json"])
            #expect(told.code == 0)
            let report = try Self.json(told.output)
            let jobs = try #require(report["streams"]?.array?.first { $0["name"]?.string == "carillon:jobs" })
            #expect(jobs["length"]?.integer == 4)
            #expect(jobs["lag"]?.integer == 3)
            #expect(jobs["pending"]?.integer == 1)
            #expect(jobs["consumers"]?.integer == 1)
            #expect(jobs["lane"]?.string == "normal")
            #expect(jobs["provider"] == .null)
            #expect((jobs["oldest_pending_seconds"]?.integer ?? 0) > 1_000_000)
            #expect((report["worst_seconds"]?.integer ?? 0) > 1_000_000)
            let retries = report["streams"]?.array?.first { $0["name"]?.string == "carillon:{fcm}:deliveries:normal" }
            #expect(retries?["retries"]?.integer == 2)
            #expect((retries?["overdue_seconds"]?.integer ?? 0) > 1_000_000)
            let bulk = report["streams"]?.array?.first { $0["name"]?.string == "carillon:{fcm}:deliveries:bulk" }
            #expect(bulk?["overdue_seconds"] == .null)
            #expect((3_600..<4_200).contains(bulk?["waited_seconds"]?.integer ?? 0))
            let late = try await Self.run(stack, ["lag", "--max", "60"])
            #expect(late.code == 1)
            #expect(late.errors.contains("which is more than 60 s"))
            #expect(try await Self.run(stack, ["lag", "--max", "4000000000"]).code == 0)
        }
    }

    @Test("unreachable servers exit with 69, and passwords are never printed")
    func unavailable() async throws {
        try await Stack.with { stack in
            let port = try FreePort.next()
            let gone = [
                "REDIS_URL": "redis://:hunter2@127.0.0.1:\(port)/0",
                "DATABASE_URL": "postgresql://ada:hunter2@127.0.0.1:\(port)/none",
            ]
            let commands: [(String, [String])] = [
                ("dispatcher", ["lag"]), ("dispatcher", ["enqueue", "--user", "u", "--type", "invoice_created"]),
                ("dispatcher", ["dead", "list"]), ("dispatcher", ["schedules", "list"]), ("gateway", ["migrate"]),
                ("dispatcher", ["trace", "01a1f866-0d7b-841c-a9a6-5597aa0575f3"]),
            ]
            for (program, arguments) in commands {
                let ended = try await Self.run(stack, arguments, environment: gone, program: program)
                #expect(ended.code == 69, "\(arguments): \(ended.errors)")
                #expect(!ended.errors.contains("hunter2"))
            }
        }
    }

    @Test("lists are tables for people, JSON lines for programs and bare words for pipes")
    func lists() async throws {
        try await Stack.with { stack in
            let migrated = try await Self.run(stack, ["migrate", "--json"], program: "gateway")
            #expect(try Self.json(migrated.output)["applied"]?.array != nil)
            let check = try await Self.run(stack, ["migrate", "--check"], program: "gateway")
            #expect(check.code == 0)
            #expect(check.output == "nothing to do\n")
            let token = try await Self.run(stack, ["token", "--user", "ada", "--json"], program: "gateway")
            #expect(try Self.json(token.output)["token"]?.string?.split(separator: ".").count == 3)
            let entry = try await Self.run(
                stack, ["enqueue", "--user", "ada", "--type", "invoice_created", "--title", "t", "--json"])
            let enqueued = try Self.json(entry.output)
            #expect(enqueued["stream"]?.string?.hasPrefix("carillon:jobs") == true)
            #expect(enqueued["entry"]?.string?.contains("-") == true)
            _ = try await stack.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                VALUES ('carillon:jobs', '1-1', $1, '[]', now())
                """,
                .text("type: " + String(repeating: "long ", count: 60)))
            let dead = try await Self.run(stack, ["dead", "list"])
            let lines = dead.output.split(separator: "\n")
            #expect(lines.count == 2)
            #expect(lines.first?.hasPrefix("NUMBER  AT") == true)
            // The output is not a terminal, so no line is cut.
            #expect(lines.last?.contains(String(repeating: "long ", count: 60).dropLast()) == true)
            #expect(!dead.output.contains("\u{1B}"))
            let missing = try await Self.run(
                stack, ["schedules", "cancel", "0190b5a2-0000-7000-8000-000000000001", "--json"])
            #expect(missing.code == 1)
            #expect(try Self.json(missing.output)["missing"]?.array?.count == 1)
        }
    }
}
