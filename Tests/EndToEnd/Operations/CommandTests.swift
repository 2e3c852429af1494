// Carillon · CommandTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Storage
import Support
import Testing

@testable import HTTP

/// `dispatcher trace`, `simulate` and `lag`, and the exit codes of commands.
@Suite(.timeLimit(.minutes(10)))
struct CommandTests {
    private static func json(_ text: String) throws -> JSONValue { try JSONParser.parse(Array(text.utf8)) }

    @Test("trace prints a timeline for people and the API's answer for programs")
    func trace() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let title = "Paid \u{1B}[2J"
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", title), ("id", "j1")])
            try await eventually("it is pushed") { try await stack.statuses(user: "ada") == [title: "sent"] }
            let id = try #require(
                try await stack.query("SELECT id::text FROM carillon.notifications").first?.text(0))
            for arguments in [["trace", id], ["trace", id, "--user", "ada"]] {
                let shown = try await stack.command(arguments)
                #expect(shown.code == 0, "\(shown.errors)")
                for words in ["ada", "payment_received", "enqueued", "stored", "provider fcm", "outcome accepted"] {
                    #expect(shown.output.contains(words), "\(words) in \(shown.output)")
                }
                #expect(!shown.output.contains("\u{1B}"))
            }
            let told = try await stack.command(["trace", id, "--json"])
            let route = try await gateway.call(
                .get, "/v1/admin/notifications/\(id)/trace", token: Stack.token(user: "root", scope: .admin))
            #expect(try Self.json(told.output) == route.body)
            let other = try await stack.command(["trace", id, "--user", "bob"])
            #expect(other.code == 1)
            #expect(other.output.isEmpty)
            #expect(other.errors.contains("there is no notification"))
        }
    }

    @Test("user shows presence, devices and what became of notifications, for an id or an address")
    func user() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "ada", platform: "android", token: "secret-token", name: "Pixel")
            try await gateway.set(#"{"email":"Ada@example.com","zone":"Europe/Berlin"}"#, of: "ada")
            try await gateway.set(#"{"email":"ben@example.com"}"#, of: "ben")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            for title in ["one", "two"] {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
            }
            try await eventually("both are there") { socket.titles == ["one", "two"] }
            try await eventually("both are proven") {
                Set(try await stack.statuses(user: "ada").values) == ["delivered"]
            }
            for name in ["ada", "ada@EXAMPLE.com"] {
                let shown = try await stack.command(["user", name])
                #expect(shown.code == 0, "\(shown.errors)")
                for words in ["Ada@example.com", "online: native", "Pixel", "2 unread of 2", "one", "via socket"] {
                    #expect(shown.output.contains(words), "\(words) in \(shown.output)")
                }
                #expect(!shown.output.contains("secret-token"))
            }
            let json = try await stack.command(["user", "ada", "--json", "--limit", "1"])
            let body = try Self.json(json.output)
            let failed = try Self.json(
                try await stack.command(["user", "ada", "--json", "--status", "failed"]).output)
            #expect(failed["notifications"]?.array?.isEmpty == true)
            let unknown = try await stack.command(["user", "cleo"])
            #expect(unknown.code == 1 && unknown.errors.contains("there is no user cleo"))

            // The API has the same for the operator's page.
            let admin = Stack.token(user: "root", scope: .admin)
            func call(_ path: String) async throws -> Gateway.Answer {
                try await gateway.call(.get, "/v1/admin/users\(path)", token: admin)
            }
            #expect(try await call("?q=ADA@example.com").body["users"]?.texts("user_id") == ["ada"])
            #expect(try await call("?q=example.com").body["users"]?.array?.isEmpty == true)
            let ada = try await call("/ada").body
            // The command has no catalog, so it knows neither preferences nor what they lack.
            for member in ["user_id", "inbox", "presence", "devices", "topics", "waiting", "email_fault"] {
                #expect(body[member] != nil && body[member] == ada[member], "\(member) in \(body)")
            }
            #expect(body["settings"]?["zone"] == ada["settings"]?["zone"])
            #expect(ada["presence"]?["online"]?.bool == true && ada["inbox"]?["unread"]?.integer == 2)
            #expect(ada["devices"]?.texts("name") == ["Pixel"] && !"\(ada)".contains("secret-token"))
            #expect(ada["settings"]?["zone"]?.string == "Europe/Berlin")
            #expect(ada["preferences"]?["types"]?.array?.isEmpty == false)
            #expect(ada["email_fault"] == .null)
            try await stack.query(
                """
                UPDATE carillon.user_settings SET email_invalid_at = now(), email_invalid_reason = 'SMTP_550'
                WHERE user_id = 'ada'
                """)
            #expect(try await call("/ada").body["email_fault"]?.string == "SMTP_550")
            let bounced = try await stack.command(["user", "ada"])
            #expect(bounced.output.contains("mail to it comes back: SMTP_550"), "\(bounced)")
            let page = try await call("/ada/notifications?limit=1").body
            #expect(page["notifications"]?.texts("title") == ["two"])
            #expect(page["notifications"] == body["notifications"])
            let cursor = try #require(page["next_cursor"]?.string)
            let next = try await call("/ada/notifications?cursor=\(cursor)&status=delivered").body
            #expect(next["notifications"]?.texts("title") == ["one"] && next["next_cursor"] == .null)
            #expect(try await call("/cleo").status == 404)
            #expect(try await call("/ada/notifications?status=lost").status == 400)
            let other = Stack.token(user: "ada")
            #expect(try await gateway.call(.get, "/v1/admin/users/ada", token: other).status == 403)
        }
    }

    @Test("events prints the newest events, filtered, and follows new ones")
    func events() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            // The same name in one scalar and in two: two users.
            for (user, id) in [("ren\u{e9}", "j1"), ("rene\u{301}", "j2")] {
                try await stack.append([("user", user), ("type", "invoice_created"), ("title", id), ("id", id)])
            }
            try await eventually("both are told") { try await stack.events().count >= 2 }
            let shown = try await stack.command(["events", "--user", "rene\u{301}"])
            #expect(shown.code == 0 && shown.output.contains("j2") && !shown.output.contains("j1"), "\(shown)")
            #expect(shown.output.hasPrefix("AT                        EVENT       USER "), "\(shown)")
            let misspelt = try await stack.command(["events", "--follow", "--event", "faild"])
            #expect(misspelt.code == 64 && misspelt.errors.contains("device_deactivated"), "\(misspelt)")
            #expect(try await stack.command(["events", "--event", "failed"]).output == "no events\n")
            let process = try await stack.spawn(
                "dispatcher", ["events", "--follow", "--count", "1", "--json"], name: "follow")
            _ = try await process.waitForLine("{")
            try await stack.append([("user", "cleo"), ("type", "invoice_created"), ("title", "c"), ("id", "j3")])
            try await eventually("it is printed") { process.output().contains("\"user\":\"cleo\"") }
            for line in process.output().split(separator: "\n") { #expect(try Self.json(String(line))["id"] != nil) }
            process.send(SIGINT)
            _ = try await process.waitForExit()
            _ = gateway
        }
    }

    @Test("a command whose reader has ended ends too")
    func closedPipe() async throws {
        try await Stack.with { stack in
            let follow = "\(try TestProducts.path("dispatcher")) events --follow; echo $? >&2"
            let process = try await ChildProcess.spawn(
                "sh", ["-c", "(\(follow)) | head -n 1"], name: "head", environment: stack.environment,
                directory: stack.directory.path)
            // Its reader has ended when the second event comes.
            try await eventually("it ends") {
                try await stack.connection.send("XADD", "carillon:events", "*", "event", "sent", "user", "ada")
                return process.exit != nil
            }
            #expect(process.output().split(separator: "\n").count == 1)
            #expect(process.errors().hasSuffix("141\n"), "\(process.errors())")
        }
    }

    @Test("a command that cannot write its output says so and fails")
    func fullDisk() async throws {
        try await Stack.with { stack in
            let lag = "\(try TestProducts.path("dispatcher")) lag --json > /dev/full"
            let process = try await ChildProcess.spawn(
                "sh", ["-c", lag], name: "full", environment: stack.environment, directory: stack.directory.path)
            #expect(try await process.waitForExit() == .code(74))
            #expect(process.errors().contains("cannot write to standard output: No space left on device"))
        }
    }

    @Test("enqueue --follow prints each step, and says where a job waits or why nothing is stored")
    func follow() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  paid: {severity: alert, delivery: push}
                  comment: {severity: info, delivery: push, digest: {window: 1h}}
                """)
            let gateway = try await stack.startGateway(environment: environment)
            let dispatcher = try await stack.startDispatcher(environment: environment)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            func follow(
                _ id: String, type: String = "paid", title: String = "Paid", more: [String] = []
            ) async throws -> (code: Int32, output: String, errors: String) {
                let job = ["--user", "ada", "--id", id, "--type", type, "--title", title]
                return try await stack.command(["enqueue", "--follow"] + job + more, environment: environment)
            }
            let shown = try await follow("j1")
            #expect(shown.code == 0, "\(shown.errors)")
            for words in [
                "for ada", " ms  stored      -", " ms  push        provider fcm, ", "outcome accepted",
                "ada: sent via fcm",
            ] { #expect(shown.output.contains(words), "\(words) in \(shown.output)") }
            let other = try await follow("j1", title: "Other")
            #expect(other.code == 1 && other.errors.contains("dead letter: id: was used before"), "\(other)")
            let same = try await follow("j1")
            #expect(same.code == 1 && same.errors.contains("its id was used before; `dispatcher job j1`"), "\(same)")
            for (number, time) in ["deliver_at=2099-01-01T08:00:00Z", "deliver_local=2099-01-01T08:00"].enumerated() {
                let later = try await follow("later-\(number)", more: ["--field", time])
                #expect(later.code == 0 && later.output.contains("scheduled for 2099-01-01T08:00"), "\(later)")
            }
            let moved = try await follow("later-0", more: ["--field", "deliver_at=2099-01-02T08:00:00Z"])
            #expect(moved.code == 1 && moved.errors.contains("dead letter: id: is scheduled already"), "\(moved)")
            let gathered = try await follow("c1", type: "comment", more: ["--field", "digest=post"])
            #expect(gathered.code == 0 && gathered.output.contains("gathered by a digest"), "\(gathered)")
            let again = try await follow("c1", type: "comment", more: ["--field", "digest=post"])
            #expect(again.code == 1 && again.errors.contains("its id was used before; `dispatcher job c1`"), "\(again)")
            _ = try await dispatcher.stop()
            // An older job with the id is stored, but this one is not.
            let stuck = try await follow("j1")
            #expect(stuck.code == 1 && stuck.errors.contains("is a dispatcher running?"), "\(stuck)")
        }
    }

    @Test("a job with a mistyped type, or without a variable of its texts, is refused before it is sent")
    func unfilled() async throws {
        try await Stack.with { stack in
            let refused = try await stack.command([
                "enqueue", "--user", "ada", "--type", "BalanceAlert", "--field", "vars={}",
            ])
            #expect(refused.code == 64 && refused.errors.contains("balance"), "\(refused)")
            let typo = try await stack.command(["enqueue", "--user", "ada", "--type", "invoice_craeted"])
            #expect(typo.code == 64 && typo.errors.contains("type: did you mean invoice_created?"), "\(typo)")
            #expect(try await stack.connection.send("XLEN", "carillon:jobs").integer() == 0)
        }
    }

    @Test("spaces around the commas of --users belong to no name")
    func users() async throws {
        try await Stack.with { stack in
            let job = ["--type", "invoice_created", "--title", "t", "--lane", "normal"]
            let sent = try await stack.command(["enqueue", "--users", "ada , ben b"] + job)
            #expect(sent.code == 0, "\(sent)")
            let entries = try await stack.connection.entries(of: "carillon:jobs")
            #expect(entries.map { $0.texts["users"] } == [#"["ada","ben b"]"#])
        }
    }

    @Test("catalog check lists faults with their lines, and advice")
    func catalogCheck() async throws {
        try await Stack.with { stack in
            let path = stack.directory.file("checked.yaml")
            func check(_ text: String, _ more: [String] = []) async throws -> (
                code: Int32, output: String, errors: String
            ) {
                try Data(text.utf8).write(to: URL(filePath: path))
                return try await stack.command(["catalog", "check", path] + more)
            }
            let faulty = try await check("types:\n  a: {colour: red}\n  b: {lane: fast}\n")
            #expect(faulty.code == 1)
            #expect(faulty.output.contains("checked.yaml:2: type a: unknown setting colour"))
            #expect(faulty.output.contains("checked.yaml:3: type b: lane must be one of"))
            let valid = "types:\n  a: {title: A, templates: {en: {title: x}, de: {title: y}}}\n"
            #expect(try await check(valid, ["--strict"]).code == 0)
            let partial = valid + "  b: {title: B, templates: {en: {title: x}}}\n"
            let advised = try await check(partial)
            #expect(advised.code == 0)
            #expect(advised.output.contains("advice: type b: has no templates for de"), "\(advised.output)")
            #expect(try await check(partial, ["--strict"]).code == 1)
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
                try await stack.command(["simulate", "--user", "ada"] + arguments, environment: environment)
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
            #expect(
                answer["channels"]?.texts("text") == [
                    "the user is online", "no rule holds it back", "it is off unless the user switches it on",
                ])

            let faulty = try await simulate(["--type", "offer", "--field", "vars={}"])
            #expect(faulty.code == 65)
            #expect(faulty.errors.contains("vars.n"))
            let unknown = try await simulate(["--type", "unheard-of"])
            #expect(unknown.code == 65)
            let stranger = try await stack.command(
                ["simulate", "--user", "nosuch", "--type", "offer", "--field", #"vars={"n":3}"#],
                environment: environment)
            #expect(stranger.code == 0 && stranger.errors.contains("there is no user nosuch"), "\(stranger)")
            #expect(try await simulate(["--job", "/nowhere/job.json"]).code == 66)
            try Data("{".utf8).write(to: URL(filePath: file))
            #expect(try await simulate(["--job", file]).code == 65)
            #expect(try await stack.query("SELECT 1 FROM carillon.notifications").isEmpty)
        }
    }

    @Test("lag reports each stream and exits with 1 when an entry has waited too long")
    func lag() async throws {
        try await Stack.with { stack in
            let calm = try await stack.command(["lag", "--max", "0"])
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
            let told = try await stack.command(["lag", "--json"])
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
            let late = try await stack.command(["lag", "--max", "60"])
            #expect(late.code == 1)
            #expect(late.errors.contains("which is more than 60 s"))
            #expect(try await stack.command(["lag", "--max", "4000000000"]).code == 0)
        }
    }

    @Test("lag --max counts the jobs of an overflow, but no deliveries that open circuit breakers keep back")
    func lagLimit() async throws {
        try await Stack.with { stack in
            try await stack.connection.send("ZADD", "carillon:{fcm}:retry:normal", "2000", "overdue")
            #expect(try await stack.command(["lag", "--max", "60"]).code == 1)
            // A report of the future does not age during the test.
            let now = Timestamp(seconds: 4_000_000_000)
            func report(_ breakers: [(app: String, breaker: ProviderState.Breaker)]) async throws {
                let states = breakers.map { app, breaker in
                    ProviderState(
                        provider: .fcm, app: app, dispatcher: "one", breaker: breaker,
                        until: breaker == .open ? now : nil, inFlight: 0)
                }
                try await Live(stack.connection).providerBoard.publish(states, dispatcher: "one", now: now)
            }
            try await report([("default", .open)])
            let calm = try await stack.command(["lag", "--max", "60"])
            #expect(calm.code == 0 && calm.output.contains("in overflow 0"), "\(calm)")
            // Retries move for an app with a closed breaker, held-back deliveries of others do not.
            try await report([("default", .open), ("shop", .closed)])
            #expect(try await stack.command(["lag", "--max", "60"]).code == 1)
            try await stack.connection.send("DEL", "carillon:{fcm}:retry:normal")
            try await stack.connection.send("ZADD", "carillon:{fcm}:held:normal:default", "2000", "held")
            try await stack.connection.send("SADD", "carillon:{fcm}:held:normal", "default")
            #expect(try await stack.command(["lag", "--max", "60"]).code == 0)
            try await report([("default", .closed), ("shop", .open)])
            #expect(try await stack.command(["lag", "--max", "60"]).code == 1)
            try await report([("default", .open)])
            // Moved just now, but appended to its lane long ago.
            try await stack.connection.send("SADD", "carillon:jobs:{overflow}", "loud")
            try await stack.connection.send(
                "XADD", "carillon:jobs:{overflow}:loud", "*", "carillon:origin", "carillon:jobs/1000-1")
            let late = try await stack.command(["lag", "--max", "60"])
            #expect(late.code == 1 && late.output.contains("in overflow 1"), "\(late)")
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
                let ended = try await stack.command(arguments, environment: gone, program: program)
                #expect(ended.code == 69, "\(arguments): \(ended.errors)")
                #expect(!ended.errors.contains("hunter2"))
            }
        }
    }

    @Test("servers that refuse the login exit with 69")
    func refusedLogin() async throws {
        try await Stack.with { stack in
            let url = try #require(stack.database?.url)
            let missing = ["DATABASE_URL": url + (url.contains("?") ? "&" : "?") + "dbname=nowhere"]
            let listed = try await stack.command(["dead", "list"], environment: missing)
            #expect(listed.code == 69 && listed.errors.contains("nowhere"), "\(listed)")
            try await stack.connection.send("CONFIG", "SET", "requirepass", "right")
            let lag = try await stack.command(["lag"])
            #expect(lag.code == 69 && lag.errors.contains("NOAUTH"), "\(lag)")
        }
    }

    @Test("lists are tables for people, JSON lines for programs and bare words for pipes")
    func lists() async throws {
        try await Stack.with { stack in
            let migrated = try await stack.command(["migrate", "--json"], program: "gateway")
            #expect(try Self.json(migrated.output)["applied"]?.array != nil)
            let check = try await stack.command(["migrate", "--check"], program: "gateway")
            #expect(check.code == 0)
            #expect(check.output == "nothing to do\n")
            let token = try await stack.command(["token", "--user", "ada", "--json"], program: "gateway")
            #expect(try Self.json(token.output)["token"]?.string?.split(separator: ".").count == 3)
            let entry = try await stack.command(
                ["enqueue", "--user", "ada", "--type", "invoice_created", "--title", "t", "--json"])
            let enqueued = try Self.json(entry.output)
            #expect(enqueued["stream"]?.string?.hasPrefix("carillon:jobs") == true)
            #expect(enqueued["entry"]?.string?.contains("-") == true)
            _ = try await stack.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                VALUES ('carillon:jobs', '1-1', $1, '[]', now())
                """,
                .text("type: " + String(repeating: "long ", count: 60)))
            let dead = try await stack.command(["dead", "list"])
            let lines = dead.output.split(separator: "\n")
            #expect(lines.count == 2)
            #expect(lines.first?.hasPrefix("NUMBER  AT") == true)
            // The output is not a terminal, so no line is cut.
            #expect(lines.last?.contains(String(repeating: "long ", count: 60).dropLast()) == true)
            #expect(!dead.output.contains("\u{1B}"))
            // A letter that the filter leaves out exists.
            let number = try #require(lines.last?.split(separator: " ").first)
            let others = try await stack.command(["dead", "replay", "\(number)", "--type", "nosuch"])
            #expect(others.code == 0 && others.output == "0 will be replayed\n", "\(others)")
            #expect(others.errors.isEmpty, "\(others)")
            let replayed = try await stack.command(["dead", "replay", "--all"])
            #expect(replayed.output.hasPrefix("1 will be replayed, the last at "), "\(replayed)")
            let again = try await stack.command(["dead", "replay", "\(number)"])
            #expect(again.code == 0 && again.output == "0 will be replayed\n", "\(again)")
            #expect(again.errors.contains("a replay of dead letter \(number) is scheduled already, at 2"), "\(again)")
            let strange = try await stack.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                VALUES ('elsewhere', '1-1', 'r', '[]', now()) RETURNING id
                """)
            let id = try #require(try strange.first?.int8(0))
            let kept = try await stack.command(["dead", "replay", "\(id)"])
            #expect(kept.errors.contains("the stream of dead letter \(id) takes no replays: elsewhere"), "\(kept)")
            for command in ["show", "replay", "discard"] {
                let gone = try await stack.command(["dead", command, "999"])
                #expect(gone.code == 1 && gone.errors.contains("there is no dead letter 999"), "\(gone)")
            }
            for (arguments, none) in [
                (["dead", "list", "--stream", "nosuch"], "no dead letters"), (["schedules", "list"], "no schedules"),
                (["broadcast", "list"], "no broadcasts"),
            ] {
                #expect(try await stack.command(arguments).output == none + "\n", "\(arguments)")
            }
            let missing = try await stack.command(
                ["schedules", "cancel", "0190b5a2-0000-7000-8000-000000000001", "--json"])
            #expect(missing.code == 1)
            #expect(try Self.json(missing.output)["missing"]?.array?.count == 1)
        }
    }
}

/// The help of both programs, and the page about it.
@Suite(.timeLimit(.minutes(10)))
struct CommandHelpTests {
    /// A command without subcommands.
    private struct Command {
        let path: [String]
        let discussion: String
        /// Long names of its options and flags.
        let options: [String]
    }

    private static func output(_ program: String, _ arguments: [String]) async throws -> String {
        let directory = try TemporaryDirectory("help")
        let process = try await ChildProcess.spawn(
            TestProducts.path(program), arguments, environment: ["CATALOG": ""], directory: directory.path)
        try #require(try await process.waitForExit() == .code(0), "\(program) \(arguments): \(process.errors())")
        return process.output()
    }

    private static func commands(_ program: String) async throws -> [Command] {
        let text = try await self.output(program, ["--experimental-dump-help"])
        let root = try JSONParser.parse(Array(text.utf8))["command"]
        return self.leaves(try #require(root), above: [])
    }

    private static func leaves(_ value: JSONValue, above: [String]) -> [Command] {
        let path = above + [value["commandName"]?.string ?? ""]
        let below = (value["subcommands"]?.array ?? []).filter { $0["commandName"]?.string != "help" }
        guard below.isEmpty else { return below.flatMap { self.leaves($0, above: path) } }
        let options = (value["arguments"]?.array ?? []).filter { $0["kind"]?.string != "positional" }
            .compactMap { $0["names"]?.array?.first { $0["kind"]?.string == "long" }?["name"]?.string }
            .filter { !["help", "version"].contains($0) }
        return [Command(path: path, discussion: value["discussion"]?.string ?? "", options: options)]
    }

    @Test("every command's help has examples of that command", arguments: ["gateway", "dispatcher"])
    func examples(program: String) async throws {
        let commands = try await Self.commands(program)
        #expect(commands.count >= 5)
        for command in commands {
            let name = command.path.joined(separator: " ")
            let parts = command.discussion.split(separator: "Examples:\n", maxSplits: 1)
            guard parts.count == 2 else {
                Issue.record("\(name) has no examples")
                continue
            }
            #expect(parts[1].contains("\(name)"), "\(name) has no example of its own")
            // Longer lines wrap on an 80-column terminal and cannot be copied.
            let lines = command.discussion.split(separator: "\n")
            #expect(lines.allSatisfy { $0.count <= 80 }, "\(name) has lines that are too long")
            let help = try await Self.output(program, Array(command.path.dropFirst()) + ["--help"])
            #expect(help.contains("Examples:"), "\(name) --help")
        }
    }

    @Test("docs/command-line.md lists every command with its options, and no others")
    func page() async throws {
        let text = try Stack.text("docs/command-line.md")
        var sections: [String: String] = [:]
        for section in text.split(separator: "\n### ").dropFirst() {
            let title = section.prefix { !$0.isNewline }
            let body = section.dropFirst(title.count).split(separator: "\n## ", maxSplits: 1).first ?? ""
            for name in title.split(separator: "`") where !name.allSatisfy({ " ·".contains($0) }) {
                sections[String(name)] = String(body)
            }
        }
        var known: Set<String> = []
        for program in ["gateway", "dispatcher"] {
            for command in try await Self.commands(program) {
                let name = command.path.joined(separator: " ")
                known.insert(name)
                guard let section = sections[name] else {
                    Issue.record("docs/command-line.md has no section `\(name)`")
                    continue
                }
                // Options that every command has are documented once.
                for option in command.options where !["config", "json"].contains(option) {
                    #expect(section.contains("`--\(option)"), "--\(option) of \(name)")
                }
                let named = section.matches(of: #/`--([a-z-]+)/#).map { String($0.output.1) }
                #expect(Set(named).subtracting(command.options).isEmpty, "options of \(name)")
            }
        }
        #expect(Set(sections.keys) == known)
    }

    @Test(
        "completion scripts are printed for each shell",
        arguments: ["gateway", "dispatcher"], ["bash", "zsh", "fish"]
    )
    func completion(program: String, shell: String) async throws {
        let script = try await Self.output(program, ["--generate-completion-script", shell])
        #expect(script.contains(program))
        #expect(script.contains("doctor"))
        #expect(script.utf8.count > 1_000)
    }

    @Test("types are completed from the catalog if there is one")
    func types() async throws {
        let directory = try TemporaryDirectory("completion")
        let catalog = directory.file("catalog.yaml")
        let text = "types: {invoice_created: {severity: info}, invoice_paid: {severity: info}, offer: {severity: info}}"
        try Data(text.utf8).write(to: URL(filePath: catalog))
        for (path, expected) in [(catalog, ["invoice_created", "invoice_paid"]), ("/nowhere", [])] {
            let process = try await ChildProcess.spawn(
                TestProducts.path("dispatcher"),
                ["---completion", "enqueue", "--", "--type", "3", "8", "dispatcher", "enqueue", "--type", "invoice_"],
                name: "completion-\(expected.count)",
                environment: ["CATALOG": path, "SAP_SHELL": "bash", "SAP_SHELL_VERSION": "5"],
                directory: directory.path
            )
            #expect(try await process.waitForExit() == .code(0), "\(process.errors())")
            #expect(process.output().split(separator: "\n").map { String($0) } == expected)
        }
    }

    @Test("a wrong command line exits with 64, a missing settings file with 78")
    func usage() async throws {
        let directory = try TemporaryDirectory("usage")
        let table: [(String, [String], Int32)] = [
            ("dispatcher", ["lag", "--watch", "--max", "1"], 64), ("dispatcher", ["lag", "--max", "-1"], 64),
            ("dispatcher", ["trace"], 64), ("dispatcher", ["nothing"], 64),
            ("dispatcher", ["simulate", "--user", "u", "--type", "x", "--at", "noon"], 64),
            ("gateway", ["token"], 64), ("gateway", ["serve", "--colour"], 64),
            ("gateway", ["migrate", "--config", "/nowhere/gateway.env"], 78),
            ("dispatcher", ["doctor", "--config", "/nowhere/dispatcher.env"], 78),
            ("dispatcher", ["lag", "--config", "/nowhere/dispatcher.env"], 78),
        ]
        for (index, (program, arguments, code)) in table.enumerated() {
            let process = try await ChildProcess.spawn(
                TestProducts.path(program), arguments, name: "usage-\(index)", directory: directory.path)
            #expect(try await process.waitForExit() == .code(code), "\(program) \(arguments): \(process.errors())")
        }
    }

    /// A command's standard error and exit code.
    private static func refusal(_ program: String, _ arguments: [String], _ environment: [String: String] = [:])
        async throws -> (text: String, code: Int32?)
    {
        let directory = try TemporaryDirectory("refusal")
        let process = try await ChildProcess.spawn(
            TestProducts.path(program), arguments, environment: environment, directory: directory.path)
        guard case .code(let code) = try await process.waitForExit() else { return (process.errors(), nil) }
        return (process.errors(), code)
    }

    @Test(
        "--version prints the newest release of the changelog, or the next one for a development build",
        arguments: ["gateway", "dispatcher"])
    func version(program: String) async throws {
        let version = try await Self.output(program, ["--version"]).trimmingCharacters(in: .newlines)
        let number = try #require(version.wholeMatch(of: #/(\d+\.\d+\.\d+)(-dev)?/#))
        let changes = try Stack.text("CHANGELOG.md")
        let newest = try #require(changes.firstMatch(of: #/\n## (\S+)/#)).output.1
        #expect(newest == (number.output.2 == nil ? number.output.1 : "Unreleased"))
    }

    @Test("a wrong command line prints that command's usage and a suggestion")
    func suggestions() async throws {
        let table: [(String, [String], message: String, usage: String)] = [
            ("dispatcher", ["enqeue"], "Unknown command 'enqeue'. Did you mean 'enqueue'?", "dispatcher <subcommand>"),
            ("dispatcher", ["dead", "lits"], "Did you mean 'list'?", "dispatcher dead <subcommand>"),
            ("dispatcher", ["broad"], "Did you mean 'broadcast'?", "dispatcher <subcommand>"),
            ("gateway", ["start"], "Unknown command 'start'. Known are serve, migrate,", "gateway <subcommand>"),
            ("dispatcher", ["srve"], "Did you mean 'gateway serve'?", "dispatcher <subcommand>"),
            ("dispatcher", ["lag", "--wach"], "Did you mean '--watch'?", "dispatcher lag [--config"),
            (
                "dispatcher", ["enqueue", "--user", "u", "--typ", "x"],
                "Unknown option '--typ'. Did you mean '--type'?", "dispatcher enqueue ["
            ),
            ("dispatcher", ["broadcast", "--al"], "Did you mean '--all'?", "dispatcher broadcast send ["),
            ("gateway", ["token", "--usr", "u"], "Did you mean '--user'?", "gateway token [--config"),
            ("gateway", ["token", "--user", "u", "--scope", "x"], "--scope must be", "gateway token [--config"),
            ("dispatcher", ["enqueue", "--user", "u", "--type", "x", "--data", "{"], "data: ", "dispatcher enqueue ["),
            ("dispatcher", ["dead", "replay"], "give a number, a filter", "dispatcher dead replay ["),
            (
                "dispatcher", ["dead", "replay", "--reason", ""], "--reason must not be empty",
                "dispatcher dead replay ["
            ),
            (
                "dispatcher", ["dead", "discard", "--reason", ""], "--reason must not be empty",
                "dispatcher dead discard ["
            ),
            ("dispatcher", ["simulate", "--user", "u", "--at", "noon"], "--at must be", "dispatcher simulate ["),
            (
                "dispatcher", ["broadcast", "send", "--all", "--type", "x", "--confirm", "--detach"],
                "--confirm: give it without --detach", "dispatcher broadcast send ["
            ),
            (
                "dispatcher", ["send-test", "--user", "u", "--title", "a" + String(repeating: "\u{300}", count: 65)],
                "title: has more than 64 combining marks in a row", "dispatcher send-test ["
            ),
            ("dispatcher", ["trace"], "give an id, or --user", "dispatcher trace ["),
            ("dispatcher", ["enqueue", "--type", "x"], "for a topic or everyone use", "dispatcher enqueue ["),
            (
                "dispatcher", ["broadcast", "--all", "--topic", "news", "--type", "x"],
                "topic: give only one of topic, all", "dispatcher broadcast send ["
            ),
            ("dispatcher", ["broadcast", "--type", "x"], "give --topic or --all", "dispatcher broadcast send ["),
            ("gateway", ["token", "--user", " "], "--user must not be empty", "gateway token [--config"),
            (
                "gateway", ["token", "--user", "u", "--scope", "service", "--types", ""], "--types must be names",
                "gateway token [--config"
            ),
        ]
        for (program, arguments, message, usage) in table {
            let (text, code) = try await Self.refusal(program, arguments)
            let lines = text.split(separator: "\n")
            #expect(code == 64, "\(program) \(arguments): \(text)")
            #expect(lines.first?.hasPrefix("Error: ") == true && text.contains(message), "\(text)")
            #expect(lines.contains { $0.hasPrefix("Usage: \(usage)") }, "\(text)")
            let name = usage.split(separator: " ").prefix { $0.first?.isLetter == true }.joined(separator: " ")
            #expect(lines.last?.contains("See '\(name) --help'") == true, "\(text)")
        }
        for (program, other) in [("gateway", "dispatcher"), ("dispatcher", "gateway")] {
            for command in try await Self.commands(program) where command.path.last != "doctor" {
                let name = command.path.prefix(2).joined(separator: " ")
                let text = try await Self.refusal(other, Array(command.path.dropFirst())).text
                #expect(text.contains("Did you mean '\(name)'?"), "\(text)")
            }
        }
    }

    @Test("unreachable servers and unreadable files are reported without Swift types, files or lines")
    func plainMessages() async throws {
        let directory = try TemporaryDirectory("plain")
        let catalog = directory.file("catalog.yaml")
        try Data("types: {offer: {severity: info}}".utf8).write(to: URL(filePath: catalog))
        let stores = [
            "CATALOG": catalog, "REDIS_URL": "redis://127.0.0.1:1", "DATABASE_URL": "postgresql://x@127.0.0.1:1/x",
            "AUTH_JWT_SECRET": String(repeating: "s", count: 32),
        ]
        let table: [(String, [String], [String: String], String)] = [
            (
                "dispatcher", ["lag"], [:],
                "redis unavailable: no connection: Connection refused (redis://127.0.0.1:1/0); see REDIS_URL"
            ),
            ("gateway", ["migrate"], [:], "postgres unavailable: connection to server at"),
            (
                "gateway", ["migrate"], ["DATABASE_URL": "postgresql://x:a@b@127.0.0.1:1/x"],
                "DATABASE_URL must have valid hosts and ports"
            ),
            (
                "dispatcher", ["run"], ["DATABASE_URL": "postgresql://x:a@127.0.0.1:1/x?schema=public"],
                "DATABASE_URL cannot be read by libpq"
            ),
            ("gateway", ["serve"], ["GATEWAY_TLS_CERT": catalog, "GATEWAY_TLS_KEY": catalog], "no certificate in PEM"),
        ]
        for (program, arguments, environment, words) in table {
            let (text, code) = try await Self.refusal(program, arguments, stores.merging(environment) { $1 })
            #expect(code == 69 || code == 78, "\(text)")
            #expect(text.contains(words), "\(text)")
            let ours = text.matches(of: #/\.swift:|\.cc:|errno|Error\(|Failure\(|\[[A-Z]\w+:/#)
            #expect(ours.isEmpty, "\(text)")
        }
    }
}
