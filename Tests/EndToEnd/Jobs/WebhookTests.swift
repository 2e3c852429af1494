// Carillon · WebhookTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

@testable import HTTP

/// Webhooks: signed events over HTTP for upstream apps, retried, each independent of the others.
@Suite(.timeLimit(.minutes(10)))
struct WebhookTests {
    private static let open = ["WEBHOOKS_PRIVATE": "on"]

    private struct Hook {
        let id: String
        let secret: String
    }

    private static func register(_ gateway: Gateway, _ json: String) async throws -> Hook {
        let token = Stack.token(user: "shop", scope: .service)
        let answer = try await gateway.call(.post, "/v1/webhooks", token: token, json: json)
        #expect(answer.status == 201)
        return Hook(
            id: try #require(answer.body["id"]?.string), secret: try #require(answer.body["secret"]?.string))
    }

    private static func status(_ gateway: Gateway, _ hook: Hook) async throws -> Gateway.Answer {
        let token = Stack.token(user: "shop", scope: .service)
        return try await gateway.call(.get, "/v1/webhooks/\(hook.id)", token: token)
    }

    private static func notify(_ stack: Stack, _ user: String, org: String = "") async throws {
        var fields = [("user", user), ("type", "invoice_created"), ("title", "x")]
        if !org.isEmpty { fields.append(("org", org)) }
        try await stack.append(fields)
    }

    /// Notifies until the dispatcher knows the webhook.
    private static func warmUp(_ stack: Stack, _ stub: HTTPStub, org: String = "") async throws {
        try await eventually("the webhook is known") {
            try await Self.notify(stack, "warm-up", org: org)
            // One notification every 500 ms: each waits until the dispatcher reloads its webhooks.
            return
                (try? await eventually("a request comes", within: .milliseconds(500)) { stub.requests > 0 }) != nil
        }
    }

    @Test("events arrive signed and in batches, filtered by organisation and kind, and again after a failure")
    func signed() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: Self.open)
            try await HTTPStub.with(.init(body: "ok")) { stub in
                let hook = try await Self.register(
                    gateway, #"{"url":"\#(stub.url)/hook","org":"acme","events":["sent"]}"#)
                try await Self.warmUp(stack, stub, org: "acme")
                stub.answer(.init(status: 503, body: "later"))
                let before = stub.requests
                for number in 0..<150 { try await Self.notify(stack, "u\(number)", org: "acme") }
                try await Self.notify(stack, "stranger", org: "other")
                try await stack.append([
                    ("user", "late"), ("type", "invoice_created"), ("title", "x"), ("org", "acme"),
                    ("expires_at", "2026-01-01T00:00:00Z"),
                ])
                try await eventually("it fails") { stub.requests > before }
                try await eventually("the webhook says so") {
                    try await Self.status(gateway, hook).body["status"]?.string == "failing"
                }
                try await eventually("all wait") {
                    let queue = "carillon:{webhooks}:queue:\(hook.id)"
                    return try await stack.connection.send("XLEN", .text(queue)).integer() >= 150
                }
                stub.answer(.init(body: "ok"))
                try await eventually("all came") {
                    let users = try stub.events().compactMap { $0["user"]?.string }
                    return (0..<150).allSatisfy { users.contains("u\($0)") }
                }
                let events = try stub.events()
                #expect(events.allSatisfy { $0["org"]?.string == "acme" && $0["event"]?.string == "sent" })
                #expect(events.allSatisfy { $0["device"] == .null && $0["channel"]?.string == "in_app" })
                let largest = try stub.received.map { try JSONParser.parse($0.body)["events"]?.array?.count ?? 0 }.max()
                #expect(largest == 100)
                try await eventually("it is active again") {
                    try await Self.status(gateway, hook).body["status"]?.string == "active"
                }
                #expect(try await Self.status(gateway, hook).body["secret"] == nil)
                let request = try #require(stub.received.last)
                #expect(request.header("carillon-webhook") == hook.id)
                try await Self.verify(request, secret: hook.secret, in: stack)
            }
        }
    }

    /// Runs the snippets of `docs/events.md` whose interpreters are installed.
    private static func verify(_ request: HTTPStub.Request, secret: String, in stack: Stack) async throws {
        let text = try Stack.text("docs/events.md")
        let header = try #require(request.header("carillon-signature"))
        let body = stack.directory.file("webhook-body")
        try Data(request.body).write(to: URL(fileURLWithPath: body))
        let drivers = [
            (
                "python", "python3",
                """
                import sys
                body = open(sys.argv[1], "rb").read()
                print(verify(body, sys.argv[2], sys.argv[3]), verify(body + b" ", sys.argv[2], sys.argv[3]),
                    verify(body, sys.argv[2], sys.argv[3] + "x"), verify(body, sys.argv[2], sys.argv[3], -1))
                """, "True False False False"
            ),
            (
                "javascript", "node",
                """
                const [path, header, secret] = process.argv.slice(2);
                const body = (await import("node:fs")).readFileSync(path);
                console.log(verify(body, header, secret), verify(Buffer.concat([body, Buffer.from(" ")]), header, secret),
                    verify(body, header, secret + "x"), verify(body, header, secret, -1));
                """, "true false false false"
            ),
        ]
        for (language, program, driver, expected) in drivers {
            let start = try #require(text.range(of: "```\(language)\n"))
            let end = try #require(text.range(of: "```", range: start.upperBound..<text.endIndex))
            guard let path = Commands.find(program) else {
                Skips.note("the \(language) snippet, as there is no \(program)")
                continue
            }
            let script = stack.directory.file(language == "javascript" ? "verify.mjs" : "verify.py")
            try (text[start.upperBound..<end.lowerBound] + "\n" + driver + "\n")
                .write(toFile: script, atomically: true, encoding: .utf8)
            let process = try await ChildProcess.spawn(
                path, [script, body, header, secret], name: "verify-\(language)", environment: [:],
                directory: stack.directory.path)
            _ = try await process.waitForExit()
            #expect(process.output().contains(expected), "\(language): \(process.output()) \(process.errors())")
        }
    }

    @Test("a silent receiver delays no other, 410 removes a webhook, and a killed dispatcher is replaced")
    func apart() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway(environment: Self.open)
            let first = try await stack.startDispatcher(name: "dispatcher-0", environment: Self.open)
            try await HTTPStub.with(.init(body: "", isSilent: true)) { silent in
                try await HTTPStub.with(.init(body: "ok")) { quick in
                    _ = try await Self.register(gateway, #"{"url":"\#(silent.url)"}"#)
                    let hook = try await Self.register(gateway, #"{"url":"\#(quick.url)"}"#)
                    try await Self.warmUp(stack, quick)
                    try await eventually("the silent one is called") { silent.requests > 0 }
                    for number in 0..<20 { try await Self.notify(stack, "u\(number)") }
                    try await eventually("the quick one has all") {
                        let users = try quick.events().compactMap { $0["user"]?.string }
                        return (0..<20).allSatisfy { users.contains("u\($0)") }
                    }
                    first.send(SIGKILL)
                    _ = try await stack.startDispatcher(name: "dispatcher-1", environment: Self.open)
                    try await Self.notify(stack, "after")
                    try await eventually("another dispatcher goes on") {
                        try quick.events().contains { $0["user"]?.string == "after" }
                    }
                    quick.answer(.init(status: 410, body: "gone"))
                    try await Self.notify(stack, "last")
                    try await eventually("the webhook is gone") {
                        try await Self.status(gateway, hook).status == 404
                    }
                }
            }
        }
    }

    @Test("a full queue drops the oldest events, and days of failure switch the webhook off with a reason")
    func bounds() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: Self.open)
            try await HTTPStub.with(.init(status: 500, body: "no")) { stub in
                let hook = try await Self.register(gateway, #"{"url":"\#(stub.url)"}"#)
                try await Self.warmUp(stack, stub)
                let users = (0..<1_000).map { "\"u\($0)\"" }.joined(separator: ",")
                for number in 0..<11 {
                    try await stack.append([
                        ("users", "[\(users)]"), ("type", "invoice_created"), ("title", "\(number)"),
                    ])
                }
                try await eventually("the bound is reached") {
                    try await stack.connection.send("XLEN", "carillon:{webhooks}:queue:\(hook.id)").integer() == 10_000
                }
                // As if it had failed for six days.
                _ = try await stack.query(
                    "UPDATE carillon.webhooks SET failing_since = now() - interval '6 days', failures = 100")
                try await eventually("it is switched off") {
                    try await Self.status(gateway, hook).body["status"]?.string == "off"
                }
                let reason = try await Self.status(gateway, hook).body["status_reason"]?.string
                #expect(reason?.contains("answered with status 500") == true)
                try await eventually("its queue is gone") {
                    try await stack.connection.send("EXISTS", "carillon:{webhooks}:queue:\(hook.id)").integer() == 0
                }
                // Registering the same URL again renews it.
                let token = Stack.token(user: "shop", scope: .service)
                let renewed = try await gateway.call(
                    .post, "/v1/webhooks", token: token, json: #"{"url":"\#(stub.url)"}"#)
                #expect(renewed.status == 200)
                #expect(renewed.body["status"]?.string == "active")
                #expect(renewed.body["secret"] == nil)
            }
        }
    }

    @Test("renewing a failing webhook ends its backoff")
    func renewal() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: Self.open)
            let answer = HTTPStub.Answer(status: 503, body: "", headers: [("retry-after", "3600")])
            try await HTTPStub.with(answer) { stub in
                let hook = try await Self.register(gateway, #"{"url":"\#(stub.url)"}"#)
                try await Self.warmUp(stack, stub)
                // The seconds until the webhook is due; nil if it has no event.
                func delay() async throws -> Double? {
                    let score = try await stack.connection.send(
                        "ZSCORE", "carillon:{webhooks}:due", .text(hook.id)
                    ).string()
                    return score.flatMap { Double($0) }.map { $0 / 1_000 - Date().timeIntervalSince1970 }
                }
                try await eventually("it waits for most of an hour") { try await delay() ?? 0 > 3_000 }
                let token = Stack.token(user: "shop", scope: .service)
                func renew() async throws -> Int {
                    let json = #"{"url":"\#(stub.url)"}"#
                    let answer = try await gateway.call(
                        .post, "/v1/webhooks", token: token, json: json, retriesOutages: false)
                    return answer.status
                }
                let renewed = try await renew()
                #expect(renewed == 200)
                // The end of a claim made by now, although clocks differ.
                let left = try #require(try await delay())
                #expect(left < 80)
                // Not a set, so Redis refuses to end the backoff.
                try await stack.connection.send("SET", "carillon:{webhooks}:due", "broken")
                let refused = try await renew()
                #expect(refused == 503)
            }
        }
    }

    @Test("a webhook whose events have all been dropped does not fail on while none comes")
    func quiet() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: Self.open)
            try await HTTPStub.with(.init(status: 500, body: "no")) { stub in
                let hook = try await Self.register(gateway, #"{"url":"\#(stub.url)"}"#)
                try await Self.warmUp(stack, stub)
                let failing = "SELECT FROM carillon.webhooks WHERE failing_since IS NOT NULL AND failures > 0"
                try await eventually("it fails") { try await stack.query(failing).count == 1 }
                // As if its events had become too old, and its next try were due.
                try await eventually("its failures are forgotten") {
                    try await stack.connection.send("DEL", "carillon:{webhooks}:queue:\(hook.id)")
                    try await stack.connection.send("ZADD", "carillon:{webhooks}:due", "1", .text(hook.id))
                    return try await stack.query(failing).isEmpty
                }
                #expect(try await Self.status(gateway, hook).body["status"]?.string == "failing")
            }
        }
    }

    @Test("a registration that is faulty or one too many is refused, and private addresses on connect")
    func refusals() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let service = Stack.token(user: "shop", scope: .service)
            for (json, field) in [
                (#"{"url":"http://example.com/"}"#, "url"), (#"{"url":"https://user:word@example.com/"}"#, "url"),
                (#"{"url":"ftp://example.com/"}"#, "url"), (#"{"url":"https://"}"#, "url"), ("{}", "url"),
                (#"{"url":"https://example.com/","events":["never"]}"#, "events"),
                (#"{"url":"https://example.com/","colour":1}"#, "colour"),
            ] {
                let answer = try await gateway.call(.post, "/v1/webhooks", token: service, json: json)
                #expect(answer.status == 422, "\(json)")
                #expect(answer.faults == [field], "\(json)")
            }
            let user = Stack.token(user: "ada")
            #expect(try await gateway.call(.get, "/v1/webhooks", token: user).status == 403)
            let none = try await gateway.call(.get, "/v1/webhooks", token: service)
            #expect(none.body["webhooks"]?.array?.isEmpty == true)

            // The sandbox uses TLS on this machine, with an authority that the dispatcher trusts.
            let url = stack.sandbox.url.replacingOccurrences(of: "127.0.0.1", with: "localhost")
            let hook = try await Self.register(gateway, #"{"url":"\#(url)/hook"}"#)
            try await eventually("it is not reached") {
                try await Self.notify(stack, "ada")
                return try await Self.status(gateway, hook).body["status_reason"]?.string == "no answer: privateAddress"
            }
            let list = try await gateway.call(.get, "/v1/webhooks?limit=1", token: service)
            #expect(list.body["webhooks"]?.array?.count == 1)
            #expect(list.body["next_cursor"] == .null)
            #expect(try await gateway.call(.delete, "/v1/webhooks/\(hook.id)", token: service).status == 204)
            #expect(try await gateway.call(.delete, "/v1/webhooks/\(hook.id)", token: service).status == 404)
            #expect(!dispatcher.errors().contains(hook.secret))

            func register(_ number: Int, org: String) async throws -> Gateway.Answer {
                let json = #"{"url":"https://example.com/\#(number)","org":"\#(org)"}"#
                return try await gateway.call(.post, "/v1/webhooks", token: service, json: json)
            }
            for number in 1...20 { #expect(try await register(number, org: "full").status == 201) }
            #expect(try await register(20, org: "full").status == 200)
            #expect(try await register(21, org: "full").faults == ["url"])
            try await stack.query(
                """
                INSERT INTO carillon.webhooks (id, org_id, url, secret, created_at)
                SELECT gen_random_uuid(), 'org-' || n, 'https://example.com/', 's', now() FROM generate_series(1, 979) n
                """)
            #expect(try await register(1_000, org: "other").status == 201)
            #expect(try await register(1_001, org: "other").faults == ["url"])
        }
    }
}

extension HTTPStub {
    /// Returns the events that it received as a webhook.
    func events() throws -> [JSONValue] {
        try self.received.flatMap { try JSONParser.parse($0.body)["events"]?.array ?? [] }
    }
}
