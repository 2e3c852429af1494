// Carillon · JobCommandTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

@testable import HTTP

/// The commands about jobs, broadcasts and presence.
@Suite(.timeLimit(.minutes(10)))
struct JobCommandTests {
    @Test("job shows counts and notifications, and trace the story of each, by job, entry and user")
    func job() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let entry = try await stack.append([
                ("users", #"["ada","ben"]"#), ("type", "invoice_created"), ("title", "One"), ("id", "j1"),
                ("org", "shop"),
            ])
            try await eventually("both have it") { try await stack.statuses(user: "ben") == ["One": "sent"] }
            let shown = try await stack.command(["job", "j1", "--org", "shop"])
            #expect(shown.code == 0, "\(shown.errors)")
            for words in ["shop", "done", "yes", "sent", "ada", "ben", "One"] {
                #expect(shown.output.contains(words), "\(words) in \(shown.output)")
            }
            let one = try await stack.command(["job", "j1", "--org", "shop", "--limit", "1"])
            #expect(!one.output.contains("ben"))
            let json = try await stack.command(["job", entry, "--org", "shop", "--json"])
            let route = try await gateway.call(
                .get, "/v1/jobs/\(entry)?org=shop", token: Stack.token(user: "root", scope: .admin))
            #expect(try JSONParser.parse(Array(json.output.utf8)) == route.body)
            let refused = try await stack.command(["job", entry, "--org", "shop", "--json", "--status", "failed"])
            #expect(refused.code == 64 && refused.errors.contains("--status does not apply"), "\(refused)")
            let none = try await stack.command(["job", "j1"])
            #expect(none.code == 1)
            #expect(none.errors.contains("nothing is known of the job j1"))

            for arguments in [["j1", "--org", "shop"], [entry, "--org", "shop"]] {
                let told = try await stack.command(["trace"] + arguments)
                #expect(told.code == 0, "\(told.errors)")
                #expect(told.output.components(separatedBy: "enqueued").count == 3, "\(told.output)")
            }
            let told = try await stack.command(["trace", "--user", "ada", "--json"])
            let lines = try told.output.split(separator: "\n").map { try JSONParser.parse(Array($0.utf8)) }
            #expect(lines.map { $0["user_id"]?.string } == ["ada"])
            #expect(lines.first?["org_id"]?.string == "shop")
            for arguments in [
                ["trace", "j2"], ["trace", "--user", "cleo"], ["trace", "j1", "--org", "shop", "--user", "cleo"],
            ] {
                #expect(try await stack.command(arguments).code == 1, "\(arguments)")
            }
            #expect(try await stack.command(["trace"]).code == 64)

            // `POST /v1/jobs` makes such ids.
            let id = UUID().uuidString.lowercased()
            try await stack.append([("user", "dora"), ("type", "invoice_created"), ("title", "Two"), ("id", id)])
            try await eventually("she has it") { try await stack.statuses(user: "dora").keys.contains("Two") }
            let traced = try await stack.command(["trace", id])
            #expect(traced.code == 0 && traced.output.contains("Two"), "\(traced.errors)")
            let gone = try await stack.command(["trace", UUID().uuidString.lowercased()])
            #expect(gone.code == 1 && gone.errors.contains("--user finds one that was never tried"), "\(gone.errors)")
        }
    }

    @Test("broadcasts are listed, confirmed and cancelled, and what their state does not allow is refused")
    func broadcast() async throws {
        try await Stack.with(settings: ["BROADCAST_CONFIRM_ABOVE": "1"]) { stack in
            _ = try await stack.startBoth()
            _ = try await stack.query(
                "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 5) n")
            let sent = try await stack.command([
                "broadcast", "--all", "--type", "breaking_news", "--title", "Extra", "--id", "b1",
            ])
            #expect(sent.code == 75, "\(sent.errors)")
            #expect(sent.errors.contains("`dispatcher broadcast confirm b1`"), "\(sent.errors)")
            let listed = try await stack.command(["broadcast", "list"])
            for words in ["b1", "everyone", "awaiting_confirmation", "5"] {
                #expect(listed.output.contains(words), "\(words) in \(listed.output)")
            }
            let json = try await stack.command(["broadcast", "list", "--state", "awaiting_confirmation", "--json"])
            #expect(try JSONParser.parse(Array(json.output.utf8))["job_id"]?.string == "b1")
            #expect(try await stack.command(["broadcast", "list", "--state", "done", "--json"]).output.isEmpty)
            #expect(try await stack.command(["broadcast", "list", "--state", "gone"]).code == 64)

            let early = try await stack.command(["broadcast", "resume", "b1"])
            #expect(early.code == 1)
            #expect(early.errors.contains("awaiting_confirmation"))
            let confirmed = try await stack.command(["broadcast", "confirm", "b1"])
            #expect(confirmed.code == 0, "\(confirmed.errors)")
            try await eventually("all have it") {
                try await stack.query("SELECT FROM carillon.notifications").count == 5
            }
            try await eventually("it is done") {
                try await stack.command(["broadcast", "list", "--state", "done"]).output.contains("b1")
            }
            let late = try await stack.command(["broadcast", "pause", "b1"])
            #expect(late.code == 1)
            #expect(late.errors.contains("done"))
            let cancelled = try await stack.command(["broadcast", "cancel", "b1"])
            #expect(cancelled.code == 0, "\(cancelled.errors)")
            try await eventually("all are withdrawn") {
                try await stack.query("SELECT FROM carillon.notifications WHERE status = 'cancelled'").count == 5
            }
            for order in ["pause", "resume", "confirm", "cancel"] {
                let unknown = try await stack.command(["broadcast", order, "b2"])
                #expect(unknown.code == 1, "\(order)")
                #expect(unknown.errors.contains("there is no broadcast b2"), "\(unknown.errors)")
            }
            let unheard = try await stack.command([
                "broadcast", "--topic", "nosuch", "--type", "breaking_news", "--title", "Extra",
            ])
            #expect(unheard.code == 0, "\(unheard)")
            #expect(unheard.errors.contains("no user subscribes to the topic nosuch"), "\(unheard)")
        }
    }

    /// Commands that send a job and read its outcome from PostgreSQL.
    private static let following = [
        ["broadcast", "--all", "--type", "breaking_news", "--title", "Extra"],
        ["broadcast", "--all", "--type", "breaking_news", "--title", "Extra", "--json"],
        ["enqueue", "--user", "ada", "--type", "invoice_created", "--title", "Paid", "--follow"],
    ]

    /// Whether a lane has a job.
    private static func isSent(_ stack: Stack) async throws -> Bool {
        try await stack.connection.send("EXISTS", "carillon:jobs", "carillon:jobs:bulk", "carillon:jobs:critical")
            .integer() > 0
    }

    /// Whether a lane has a job that no dispatcher has finished.
    private static func isWaiting(_ stack: Stack) async throws -> Bool {
        for stream in ["carillon:jobs", "carillon:jobs:bulk", "carillon:jobs:critical"] {
            if try await stack.connection.send("XLEN", .text(stream)).integer() > 0 { return true }
        }
        return false
    }

    @Test("a command that reads the outcome from PostgreSQL sends nothing without it", arguments: Self.following)
    func unreadable(arguments: [String]) async throws {
        try await Stack.with { stack in
            let gone = ["DATABASE_URL": "postgresql://nobody@127.0.0.1:\(try FreePort.next())/none"]
            let ended = try await stack.command(arguments, environment: gone)
            #expect(ended.code == 69 && !ended.errors.contains("was sent"), "\(ended)")
            #expect(try await !Self.isSent(stack))
        }
    }

    @Test("a command whose PostgreSQL fails after it has sent the job says so", arguments: Self.following)
    func unfinished(arguments: [String]) async throws {
        // On a slow machine, --follow may end before its PostgreSQL fails.
        while try await self.endsEarly(arguments) {}
    }

    private func endsEarly(_ arguments: [String]) async throws -> Bool {
        try await Stack.with { stack in
            #expect(try await stack.command(["migrate"], program: "gateway").code == 0)
            let process = try await stack.spawn("dispatcher", arguments, name: "following")
            try await eventually("the job is sent") { try await Self.isSent(stack) }
            try await stack.query("DROP SCHEMA carillon CASCADE")
            #expect(try await process.waitForExit() == .code(1))
            let errors = process.errors()
            guard !errors.contains("nothing is stored yet") else { return true }
            #expect(errors.contains("the job was sent as carillon:jobs") && errors.contains("goes on"), "\(errors)")
            guard arguments.contains("--json") else { return false }
            let output = try JSONParser.parse(Array(process.output().utf8))
            #expect(output.object?.map(\.key) == ["stream", "entry"])
            return false
        }
    }

    @Test(
        "a command that may have sent the job names the id with which a repeat notifies once",
        arguments: [
            ["broadcast", "--all", "--type", "breaking_news", "--title", "Extra"],
            ["enqueue", "--user", "ada", "--type", "invoice_created", "--title", "Extra"],
        ])
    func ambiguous(arguments: [String]) async throws {
        try await Stack.with { stack in
            _ = try await stack.startBoth()
            try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('ada')")
            // The test's Redis has no replica.
            let ended = try await stack.command(arguments, environment: ["JOB_REPLICAS": "1"])
            #expect(ended.code == 69 && ended.errors.contains("notReplicated"), "\(ended)")
            let id = try #require(
                ended.errors.firstMatch(of: #/the job may have been sent; repeat it only with --id (\S+)/#)?.output.1)
            try await eventually("it was sent") { try await stack.statuses(user: "ada").keys.contains("Extra") }
            let jobs = { try await stack.query("SELECT FROM carillon.notifications WHERE job_id = '\(id)'").count }
            #expect(try await jobs() == 1)
            let repeated = try await stack.command(arguments + ["--id", String(id)])
            #expect(repeated.code == 0, "\(repeated)")
            try await eventually("the dispatcher has finished both") { try await !Self.isWaiting(stack) }
            #expect(try await stack.query("SELECT FROM carillon.notifications").count == 1)
        }
    }

    @Test("carillon runs the commands of both programs")
    func carillon() async throws {
        try await Stack.with { stack in
            func carillon(_ arguments: String...) async throws -> (code: Int32, output: String, errors: String) {
                try await stack.command(arguments, program: "carillon")
            }
            for name in ["gateway", "dispatcher"] {
                let own = try await stack.command(["--help"], program: name)
                #expect(try await carillon(name, "--help").output == own.output)
            }
            #expect(try await carillon("--version").output == stack.command(["--version"]).output)
            #expect(try await carillon("token", "--user", "u1").output.split(separator: ".").count == 3)
            #expect(try await carillon("trace", "--user", "u1").errors.contains("there is no notification for u1"))
            #expect(try await carillon("gateway", "serv").code == 64)
            #expect(try await carillon("unheard-of").code == 64)
            #expect(try await carillon("srve").errors.contains("Did you mean 'gateway serve'?"))
            #expect(try await carillon("doctor").errors.contains("carillon gateway doctor"))
            #expect(try await carillon("--help").output.contains("carillon gateway|dispatcher COMMAND"))
            #expect(try await carillon().code == 64)
        }
    }

    @Test("token trims the names of its lists")
    func token() async throws {
        try await Stack.with { stack in
            let made = try await stack.command(
                ["token", "--user", "u1", "--scope", "service", "--types", " a, b_*", "--audiences", "user, topic"],
                program: "gateway")
            #expect(made.code == 0, "\(made.errors)")
            let claims = try #require(made.output.split(separator: ".").dropFirst().first)
            let payload = try JSONParser.parse(try #require(Base64.url.decode(claims.utf8)))
            #expect(payload["types"]?.array?.map(\.string) == ["a", "b_*"])
            #expect(payload["audiences"]?.array?.map(\.string) == ["user", "topic"])
        }
    }

    @Test("token puts the user into the claim of AUTH_USER_CLAIM")
    func userClaim() async throws {
        try await Stack.with { stack in
            let made = try await stack.command(
                ["token", "--user", "ada"], environment: ["AUTH_USER_CLAIM": "uid"], program: "gateway")
            #expect(made.code == 0, "\(made.errors)")
            let claims = try #require(made.output.split(separator: ".").dropFirst().first)
            let payload = try JSONParser.parse(try #require(Base64.url.decode(claims.utf8)))
            #expect(payload["uid"]?.string == "ada")
            #expect(payload["sub"] == nil)
        }
    }

    @Test("presence shows each open socket with its gateway")
    func presence() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            let shown = try await stack.command(["presence", "ada", "ben"])
            #expect(shown.code == 0, "\(shown.errors)")
            for words in ["ada", "native", "active", "ben", "offline"] {
                #expect(shown.output.contains(words), "\(words) in \(shown.output)")
            }
            let json = try await stack.command(["presence", "ada", "ben", "--json"])
            let lines = try json.output.split(separator: "\n").map { try JSONParser.parse(Array($0.utf8)) }
            #expect(lines.map { $0["user_id"]?.string } == ["ada", "ben"])
            #expect(lines.map { $0["online"] } == [.bool(true), .bool(false)])
            #expect(lines.first?["connections"]?.array?.first?["dialect"]?.string == "native")
            #expect(try await stack.command(["presence", "ben"]).code == 1)
            await socket.close()
        }
    }
}
