// Carillon · LogTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

@testable import HTTP

/// Logs of both programs: a request is found by its id, a job by the job's id.
@Suite(.timeLimit(.minutes(10)))
struct LogTests {
    private static let verbose = ["LOG_LEVEL": "debug", "LOG_FORMAT": "json"]

    /// The lines of a log; each must be a JSON object with the keys that every line has.
    private static func lines(_ process: ChildProcess, _ name: String) throws -> [[String: String]] {
        try process.errors().split(separator: "\n").map { text in
            let members = try JSONParser.parse(Array(text.utf8)).object
            let line = try #require(members, "\(text)").reduce(into: [String: String]()) {
                $0[$1.key] = $1.value.string
            }
            for key in ["at", "level", "logger", "message"] { #expect(line[key] != nil, "\(text)") }
            // Lines logged before the service has its name lack it.
            if line["logger"] == "carillon.\(name)" {
                #expect(line[name == "gateway" ? "node.id" : "dispatcher.name"] != nil, "\(text)")
            }
            return line
        }
    }

    @Test("a plain request id is kept, any other is replaced, and every answer carries one")
    func identifiers() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            func id(_ given: String?, _ path: String, token: String?) async throws -> String? {
                let headers = given.map { [(name: "x-request-id", value: $0)] } ?? []
                return try await gateway.call(.get, path, token: token, headers: headers).header("x-request-id")
            }
            #expect(try await id("trace-1/a.b:c", "/v1/notifications", token: token) == "trace-1/a.b:c")
            #expect(try await id("trace-2", "/v1/notifications", token: nil) == "trace-2")
            #expect(try await id("trace-3", "/v1/nothing", token: token) == "trace-3")
            #expect(try await id("trace-4", "/healthz", token: nil) == "trace-4")
            let made = try await id(nil, "/healthz", token: nil)
            let other = try await id("has a space", "/healthz", token: nil)
            let third = try await id(String(repeating: "x", count: 129), "/healthz", token: nil)
            for one in [made, other, third] { #expect(one?.wholeMatch(of: #/[0-9a-f]{16}/#) != nil) }
            #expect(Set([made, other, third]).count == 3)
        }
    }

    @Test("a migration logs in the format and at the level of the settings")
    func migration() async throws {
        for (level, isLogged) in [("info", true), ("error", false)] {
            try await Stack.with { stack in
                try await stack.query("DROP SCHEMA carillon CASCADE")
                let process = try await stack.spawn(
                    "gateway", ["migrate"], name: "migrate",
                    environment: ["LOG_LEVEL": level, "LOG_FORMAT": "json"])
                #expect(try await process.waitForExit() == .code(0))
                let lines = try Self.lines(process, "gateway")
                #expect(lines.contains { $0["message"] == "migration applied" } == isLogged)
            }
        }
    }

    @Test("a call with which an operator changes something is logged: who, what, and the result")
    func operators() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["LOG_FORMAT": "json"])
            let admin = Stack.token(user: "root", scope: .admin)
            let service = Stack.token(user: "app", scope: .service)
            // Calls that only read, that act on the operator's own inbox, or that are an app's.
            _ = try await gateway.call(.get, "/v1/admin/dead-letters", token: admin)
            _ = try await gateway.call(.post, "/v1/admin/presence", token: admin, json: #"{"users":["ada"]}"#)
            _ = try await gateway.call(.post, "/v1/socket-tickets", token: admin)
            _ = try await gateway.call(.delete, "/v1/jobs/order-17", token: service)

            let cancelled = try await gateway.call(.delete, "/v1/jobs/order-17", token: admin)
            let refused = try await gateway.call(.delete, "/v1/admin/dead-letters", token: admin)
            let revoked = try await gateway.call(.post, "/v1/users/ada/revoke-tokens", token: admin)
            #expect(refused.status >= 400 && revoked.status == 200)
            try await eventually("the last is logged") { gateway.process.errors().contains("revokeTokens") }
            let lines = try Self.lines(gateway.process, "gateway").filter { $0["operation"] != nil }
            #expect(lines.map { $0["operation"] } == ["cancelJob", "discardDeadLetters", "revokeTokens"])
            let statuses: [String?] = [cancelled, refused, revoked].map { "\($0.status)" }
            #expect(lines.map { $0["http.status"] } == statuses)
            // The id of a user is not logged.
            #expect(lines.map { $0["target"] } == ["order-17", nil, nil])
            for line in lines {
                #expect(line["caller"] == "root" && line["level"] == "notice" && line["request.id"] != nil)
            }
            #expect(!gateway.process.errors().contains(admin))
        }
    }

    @Test("a job can be followed by its id from the request to the provider")
    func job() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: Self.verbose)
            let dispatcher = try await stack.startDispatcher(environment: Self.verbose)
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            let answer = try await gateway.call(
                .post,
                "/v1/jobs",
                token: Stack.token(user: "app", scope: .service),
                json: #"{"id":"order-17","user":"ada","type":"payment_received","title":"Hello"}"#,
                headers: [(name: "x-request-id", value: "checkout-9")]
            )
            #expect(answer.status == 202)
            let entry = try #require(answer.body["entry"]?.string)
            try await stack.append([("id", "order-18"), ("user", "ada"), ("type", "no\nsuch\ntype")])
            try await eventually("the dispatcher has logged all of it") {
                let log = dispatcher.errors()
                return log.contains("delivery ended") && log.contains("dead-letter queue")
            }

            let taken = try Self.lines(gateway.process, "gateway").filter { $0["request.id"] == "checkout-9" }
            let accepted = try #require(taken.first { $0["message"] == "job accepted" })
            #expect(accepted["job.id"] == "order-17" && accepted["job.entry"] == entry)
            let answered = try #require(taken.first { $0["message"] == "request answered" })
            #expect(answered["http.status"] == "202" && answered["http.path"] == "/v1/jobs")

            let lines = try Self.lines(dispatcher, "dispatcher")
            let ours = lines.filter { $0["job.id"] == "order-17" }
            #expect(ours.contains { $0["message"] == "job stored" && $0["job.entry"] == entry })
            let sent = try #require(ours.first { $0["message"] == "delivery ended" })
            #expect(sent["outcome"] == "accepted" && sent["provider"] == "fcm" && sent["job.entry"] == entry)
            let letter = try #require(lines.first { $0["message"] == "moved entries to the dead-letter queue" })
            #expect(letter["job.id"] == "order-18" && letter["count"] == "1" && letter["level"] == "warning")
            #expect(letter["reason"]?.contains("type") == true)
        }
    }
}

/// The dispatcher logs one line an attempt, with outcome and reason.
@Suite(.timeLimit(.minutes(10)))
struct DeliveryLogTests {
    private static let verbose = ["LOG_LEVEL": "debug", "LOG_FORMAT": "json"]

    private struct Case {
        /// The device token, which selects the sandbox's fault; also the user and the job.
        let token: String
        var platform = "android"
        let outcome: String
        var reason: String?
    }

    private static let cases = [
        Case(token: "plain", outcome: "accepted"),
        Case(token: "html-once-1", outcome: "retry", reason: "HTTP_502"),
        Case(token: "half-once-1", outcome: "retry", reason: "HTTP_503"),
        Case(token: "empty-once-1", outcome: "retry", reason: "HTTP_500"),
        Case(token: "huge-once-1", outcome: "retry", reason: "unknown_outcome:not_understood"),
        Case(token: "reset-once-1", outcome: "retry", reason: "unknown_outcome:streamReset"),
        Case(token: "unregistered-1", outcome: "failed", reason: "UNREGISTERED"),
        Case(token: "invalid-1", outcome: "failed", reason: "INVALID_ARGUMENT"),
        Case(token: String(repeating: "ab", count: 32), platform: "ios", outcome: "retry", reason: "not_http2"),
    ]

    /// The complete lines with a message.
    private static func lines(_ process: ChildProcess, _ message: String) -> [[String: String]] {
        process.errors().split(separator: "\n").filter { $0.contains(message) }.compactMap { text in
            (try? JSONParser.parse(Array(text.utf8)))?.object?.reduce(into: [:]) { $0[$1.key] = $1.value.string }
        }
    }

    /// The line of a job's first attempt.
    private static func end(of job: String, _ dispatcher: ChildProcess) async throws -> [String: String] {
        try await eventualValue("the log has the end of \(job)") {
            Self.lines(dispatcher, "delivery ended").first { $0["job.id"] == job && $0["attempt"] == "1" }
        }
    }

    @Test("a delivery's log line has its outcome and reason, and nothing of the provider's page")
    func faults() async throws {
        var configuration = SandboxConfiguration()
        configuration.speaksHTTP1Only = true
        try await ProviderSandbox.with(configuration: configuration) { old in
            try await Stack.with { stack in
                let authorities = stack.directory.path + "/authorities.pem"
                try [stack.sandbox.caPath, old.caPath].map { try String(contentsOfFile: $0, encoding: .utf8) }
                    .joined().write(toFile: authorities, atomically: true, encoding: .utf8)
                let gateway = try await stack.startGateway()
                let dispatcher = try await stack.startDispatcher(
                    environment: Self.verbose.merging(["APNS_ENDPOINT": old.url, "PROVIDER_CA": authorities]) { $1 })
                for item in Self.cases {
                    try await gateway.register(user: item.token, platform: item.platform, token: item.token)
                    try await stack.append([
                        ("id", item.token), ("user", item.token), ("type", "payment_received"), ("title", item.token),
                    ])
                    // One at a time: a reset beside a long answer is logged as a lost connection.
                    let line = try await Self.end(of: item.token, dispatcher)
                    #expect(line["outcome"] == item.outcome, "\(item.token)")
                    #expect(line["reason"] == item.reason, "\(item.token)")
                    #expect(line["provider"] == (item.platform == "ios" ? "apns" : "fcm"), "\(item.token)")
                    #expect(line["app"] == "default" && line["notification.id"] != nil, "\(item.token)")
                }
                #expect(!dispatcher.errors().contains("<html>"))
            }
        }
    }

    @Test("a long text is cut between characters, and data of every JSON type arrives as text")
    func content() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher(environment: Self.verbose)
            // One character of 18 bytes; 5,004 bytes in all.
            let family: Character = "\u{1F469}\u{200D}\u{1F469}\u{200D}\u{1F467}"
            let jobs = [
                ("long", ("body", String(repeating: family, count: 278))),
                ("kinds", ("data", #"{"count":3,"flag":true,"list":[1,"a"],"nested":{"a":null}}"#)),
            ]
            for (name, field) in jobs {
                try await gateway.register(user: name, platform: "android", token: name)
                try await stack.append([
                    ("id", name), ("user", name), ("type", "payment_received"), ("title", name), field,
                ])
                let line = try await Self.end(of: name, dispatcher)
                #expect(line["outcome"] == "accepted" && line["reason"] == nil, "\(name)")
            }
            func message(_ token: String) throws -> JSONValue? {
                guard let received = stack.sandbox.received().first(where: { $0.token == token }) else { return nil }
                return try JSONParser.parse(received.payload)["message"]
            }
            let body = try #require(try message("long")?["notification"]?["body"]?.string)
            #expect(body.last == "…" && body.count > 100)
            #expect(body.dropLast().allSatisfy { $0 == family })
            let data = try #require(try message("kinds")?["data"])
            #expect(data["count"]?.string == "3")
            #expect(data["flag"]?.string == "true")
            #expect(data["list"]?.string == #"[1,"a"]"#)
            #expect(data["nested"]?.string == #"{"a":null}"#)
        }
    }

    @Test("a device token with control characters is refused at registration and never logged")
    func token() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: Self.verbose)
            for (number, text) in [#"hunter2\u0007"#, #"hunter2\nX-Header: 1"#, #"hunter2\u0085"#].enumerated() {
                let id = "odd-\(number)"
                let answer = try await gateway.call(
                    .post, "/v1/devices", token: Stack.token(user: "ada"),
                    json: #"{"platform":"android","token":"\#(text)"}"#,
                    headers: [(name: "x-request-id", value: id)])
                #expect(answer.status == 422)
                #expect(answer.faults == ["token"])
                let line = try await eventualValue("the refusal is logged") {
                    Self.lines(gateway.process, "request answered").first { $0["request.id"] == id }
                }
                #expect(line["http.status"] == "422")
            }
            #expect(!gateway.process.errors().contains("hunter2"))
        }
    }
}

/// Credentials are never written down.
@Suite(.timeLimit(.minutes(10)))
struct SecretsTests {
    @Test("no token, ticket or query appears in metrics or in a log at level trace")
    func log() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["LOG_LEVEL": "trace", "AUTH_COOKIE": "session"])
            let tokens = [
                "header": Stack.token(user: "header"), "protocol": Stack.token(user: "protocol"),
                "query": Stack.token(user: "query"), "message": Stack.token(user: "message"),
                "connect": Stack.token(user: "connect"), "cookie": Stack.token(user: "cookie"),
                "scheme": Stack.token(user: "scheme"),
                "ticket": "ticket-secret-of-one-use-0123456789",
            ]
            let canary = "canary-in-the-query"
            let pushToken = "canary-in-the-path"
            func token(_ name: String) -> String { tokens[name] ?? "" }
            _ = try await gateway.call(.get, "/v1/notifications?limit=1&x=\(canary)", token: token("header"))
            _ = try await gateway.call(.get, "/v1/nothing?access_token=\(token("query"))", token: token("header"))
            _ = try await gateway.call(.get, "/v1/notifications", token: token("header") + "x")
            _ = try await gateway.call(
                .get, "/v1/stream?access_token=\(token("query"))&ticket=\(token("ticket"))", token: nil)
            for path in ["apns", "gcm", "nothing"] {
                for end in ["", "/", "/x"] {
                    let named = "/api/push/\(path)/\(pushToken)\(end)"
                    let answer = try await gateway.call(.delete, named, token: token("header"))
                    #expect(answer.status == 404)
                }
            }
            let paths = [
                "/v1/socket?access_token=\(token("query"))", "/v1/socket?ticket=\(token("ticket"))",
                "/hubs/notifications?access_token=\(token("query"))",
                "/socket.io/?EIO=4&transport=polling&token=\(token("query"))",
            ]
            for path in paths { _ = try await gateway.call(.get, path, token: nil) }
            // In the headers and messages of compatibility clients, valid and invalid.
            for end in ["", "x"] {
                let cookie = (name: "cookie", value: "session=\(token("cookie"))\(end)")
                let scheme = (name: "authorization", value: "Token \(token("scheme"))\(end)")
                for header in [cookie, scheme] {
                    let answer = try await gateway.call(.get, "/api/push/devices", token: nil, headers: [header])
                    #expect(answer.status == (end.isEmpty ? 200 : 401), "\(header.name)")
                }
                let engine = try await TestEngine.open(port: gateway.port, http: stack.http)
                try await engine.post(#"40{"token":"\#(token("connect"))\#(end)"}"#)
                _ = try await engine.poll(until: end.isEmpty ? "40" : "44")
            }
            let viaProtocol = try await TestSocket.open(
                port: gateway.port,
                token: nil,
                query: "?access_token=\(token("query"))&ticket=\(token("ticket"))",
                headers: ["Sec-WebSocket-Protocol": "carillon.v1, bearer.\(token("protocol"))"]
            )
            try await eventually("it is decided") { viaProtocol.status != nil }
            let viaMessage = try await TestSocket.open(port: gateway.port, token: nil)
            try await eventually("it is up") { viaMessage.status == 101 }
            try await viaMessage.send(json: #"{"type":"auth","token":"\#(token("message"))"}"#)
            _ = try await viaMessage.first("sync")
            try await viaMessage.send(json: #"{"type":"auth","token":"\#(token("message"))x"}"#)
            _ = try await viaMessage.first("error")
            let metrics = try await gateway.call(.get, "/metrics", token: nil)
            #expect(try await gateway.process.stop() == .code(0))

            let written = [
                "log": gateway.process.errors() + gateway.process.output(),
                "metrics": String(decoding: metrics.response.body, as: UTF8.self),
            ]
            #expect(written["log"]?.contains("gateway started") == true)
            #expect(written["log"]?.contains("/api/push/apns/{key}") == true)
            for (place, text) in written {
                #expect(!text.contains(canary), "the query is in the \(place)")
                #expect(!text.contains(pushToken), "a push token of a path is in the \(place)")
                for (name, token) in tokens {
                    // The signature alone is a secret too.
                    let secret = token.split(separator: ".").last.map { String($0) } ?? token
                    #expect(!text.contains(secret), "the token of \(name) is in the \(place)")
                }
            }
        }
    }
}
