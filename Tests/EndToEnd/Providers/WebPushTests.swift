// Carillon · WebPushTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto
import Foundation
import Sandbox
import Support
import Testing

/// Web Push: encrypted for one browser, and never into our own networks.
@Suite(.timeLimit(.minutes(10)))
struct WebPushTests {
    private static func notify(_ stack: Stack, _ title: String, _ more: [(String, String)] = []) async throws {
        try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", title)] + more)
    }

    /// Outcome and reason of each attempt, in order.
    private static func attempts(_ stack: Stack) async throws -> [String] {
        let rows = try await stack.query(
            """
            SELECT outcome || coalesce(' ' || reason, '') FROM carillon.delivery_attempts WHERE kind <> 'token'
            ORDER BY at, attempt
            """)
        return try rows.map { try $0.text(0) }
    }

    private static func payload(_ message: ReceivedMessage?) throws -> JSONValue {
        try JSONParser.parse(try #require(message).payload)
    }

    @Test("an offline user's browser gets the notification as JSON that only it can decrypt")
    func delivers() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let key = try await gateway.call(.get, "/v1/web-push/key", token: Stack.token(user: "ada"))
            #expect(key.status == 200)
            let pem = try String(contentsOfFile: stack.sandbox.vapidKeyPath, encoding: .utf8)
            let publicKey = try P256.Signing.PrivateKey(pemRepresentation: pem).publicKey.x963Representation
            #expect(key.body["key"]?.string?.utf8.count == 87)
            #expect(key.body["key"]?.string.flatMap { Data(base64URL: $0) } == publicKey)

            try await gateway.register(user: "ada", platform: "web", token: stack.sandbox.subscription("ada").json)
            try await Self.notify(
                stack, "Paid",
                [
                    ("body", "€ 40 from Ada"), ("url", "/invoices/i9"), ("image", "https://img.example/1.png"),
                    ("collapse_key", "invoice i9"), ("badge", "4"),
                    ("data", #"{"invoice":"i9","actions":[{"id":"open","title":"Open"}]}"#),
                ])
            try await eventually("it is there") { stack.sandbox.received().count == 1 }
            let message = try #require(stack.sandbox.received().first)
            #expect(message.provider == .webpush && message.token == "ada")
            let payload = try Self.payload(message)
            #expect(payload["notification"]?["title"]?.string == "Paid")
            #expect(payload["notification"]?["body"]?.string == "€ 40 from Ada")
            #expect(payload["url"]?.string == "/invoices/i9")
            #expect(payload["image"]?.string == "https://img.example/1.png")
            #expect(payload["tag"]?.string == "invoice i9")
            #expect(payload["badge"]?.integer == 4)
            #expect(payload["type"]?.string == "payment_received")
            #expect(payload["actions"]?.array?.first?["id"]?.string == "open")
            #expect(payload["data"]?["invoice"]?.string == "i9")
            #expect(message.headers["urgency"] == "high")
            #expect(message.headers["content-encoding"] == "aes128gcm")
            #expect(message.headers["topic"]?.utf8.count == 32)
            #expect(message.headers["ttl"].flatMap { Int($0) } ?? 0 > 80_000)
            // The push service can read nothing of it.
            let wire = String(decoding: message.body, as: UTF8.self) + message.headers.values.joined(separator: " ")
            for secret in ["Paid", "invoice", "ada\""] { #expect(!wire.contains(secret)) }

            try await eventually("the attempt is recorded") {
                Stack.ends(try await Self.attempts(stack)) == ["accepted"]
            }
            let rows = try await stack.query(
                "SELECT provider_id FROM carillon.delivery_attempts WHERE kind = 'push' AND outcome = 'accepted'")
            #expect(try rows.first?.text(0).hasPrefix("\(stack.sandbox.url)/message/") == true)
            #expect(try await stack.statuses(user: "ada") == ["Paid": "sent"])
            let id = try #require(payload["notification_id"]?.string)
            let stored = try await stack.query("SELECT id::text FROM carillon.notifications")
            #expect(try stored.first?.text(0) == id)
        }
    }

    @Test("an ended subscription deactivates its device only")
    func ended() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            for name in ["gone-old", "missing-old", "current"] {
                try await gateway.register(
                    user: "ada", platform: "web", token: stack.sandbox.subscription(name).json, name: name)
            }
            try await Self.notify(stack, "first")
            try await eventually("all are answered") { Stack.ends(try await Self.attempts(stack)).count == 3 }
            let token = Stack.token(user: "ada")
            let list = try await gateway.call(.get, "/v1/devices", token: token).body["devices"]?.array ?? []
            let active = list.filter { $0["active"]?.bool == true }.compactMap { $0["name"]?.string }
            #expect(active == ["current"])
            #expect(Set(list.compactMap { $0["deactivated_reason"]?.string }) == ["HTTP_410", "HTTP_404"])
            try await Self.notify(stack, "second")
            try await eventually("the other gets both") { stack.pushed() == ["current": ["first", "second"]] }
        }
    }

    @Test("after a rate limit or an outage, waits as long as the service says")
    func later() async throws {
        var configuration = SandboxConfiguration()
        // Our own pause would be a second at most.
        configuration.retryAfter = 4
        try await Stack.with(sandbox: configuration) { stack in
            let gateway = try await stack.startBoth()
            let names = ["limited-once-a", "limiteddate-once-b", "unavailable-once-c"]
            for name in names {
                try await gateway.register(
                    user: "ada", platform: "web", token: stack.sandbox.subscription(name).json, name: name)
            }
            try await Self.notify(stack, "Paid")
            try await eventually("all have it") { Set(stack.pushed().keys) == Set(names) }
            try await eventually("all are recorded") {
                Stack.ends(try await Self.attempts(stack)) == ["accepted", "accepted", "accepted"]
            }
            // A date has whole seconds, and clocks differ by up to half a second.
            let waits = try await stack.query(
                """
                SELECT max(at) - min(at) > interval '2 seconds' FROM carillon.delivery_attempts WHERE kind = 'push'
                GROUP BY device_id
                """)
            #expect(try waits.map { try $0.bool(0) } == [true, true, true])
        }
    }

    @Test("a service that rejects our key keeps the subscription, and the fault is logged and counted")
    func anotherKey() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let answer = try await stack.http.answer(
                .init(
                    .get, url: "\(stack.sandbox.controlURL)/subscriptions?id=other&key=\(Self.otherKey)",
                    timeout: longestWait))
            try #require(answer.status == 200)
            try await gateway.register(
                user: "ada", platform: "web", token: String(decoding: answer.body, as: UTF8.self))
            try await Self.notify(stack, "Paid")
            try await eventually("it is kept") { try await Self.attempts(stack).contains("retry HTTP_403") }
            let list = try await gateway.call(.get, "/v1/devices", token: Stack.token(user: "ada"))
            #expect(list.body["devices"]?.array?.first?["active"]?.bool == true)
            try await eventually("the fault is logged") {
                dispatcher.errors().contains("provider rejected the configuration for some devices")
            }
            let metrics = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            let samples = try await MetricsText.page("\(metrics)/metrics", stack).samples
            let count = samples[#"carillon_provider_misconfigured{provider="webpush",app="default"}"#] ?? 0
            #expect(count >= 1)
        }
    }

    private static let otherKey =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"

    @Test("nothing is sent into private networks or to origins that are not allowed")
    func guarded() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher(environment: ["WEBPUSH_PRIVATE": "off"])
            try await gateway.register(user: "ada", platform: "web", token: stack.sandbox.subscription("ada").json)
            try await Self.notify(stack, "Paid")
            try await eventually("it is refused") {
                Stack.ends(try await Self.attempts(stack)) == ["failed private_address"]
            }
            #expect(stack.sandbox.received().isEmpty)
            #expect(try await stack.statuses(user: "ada") == ["Paid": "failed"])
        }
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher(environment: ["WEBPUSH_ORIGINS": "https://*.push.apple.com"])
            try await gateway.register(user: "ada", platform: "web", token: stack.sandbox.subscription("ada").json)
            try await Self.notify(stack, "Paid")
            try await eventually("it is refused") {
                Stack.ends(try await Self.attempts(stack)) == ["failed origin_not_allowed"]
            }
            #expect(stack.sandbox.received().isEmpty)
        }
    }

    @Test("an app's own origins apply to its registrations and pushes; other apps use the common list")
    func appOrigins() async throws {
        try await Stack.with { stack in
            let file = stack.directory.path + "/apps.yaml"
            func apps(_ origins: String) throws {
                let webpush = "key: \"\(stack.sandbox.vapidKeyPath)\", subject: \"mailto:push@example.com\""
                try """
                apps:
                  wide:
                    webpush: {\(webpush), origins: "https://*.push.apple.com, \(stack.sandbox.url)"}
                  narrow:
                    webpush: {\(webpush), origins: "\(origins)"}
                  common:
                    webpush: {\(webpush)}
                """.write(toFile: file, atomically: true, encoding: .utf8)
            }
            let environment = ["APPS": file, "WEBPUSH_ORIGINS": "https://push.example"]
            try apps("push.example")
            let refused = try await stack.spawn("gateway", ["serve"], name: "refused", environment: environment)
            #expect(try await refused.waitForExit() == .code(78))
            #expect(refused.errors().contains("APPS cannot be used: app narrow: webpush.origins must be"))

            try apps("https://push.example")
            let gateway = try await stack.startGateway(environment: environment)
            func register(_ app: String, by gateway: Gateway) async throws -> Int {
                let members = [("platform", "web"), ("token", stack.sandbox.subscription(app).json), ("app", app)]
                let body = JSONValue.object(members.map { JSONMember($0.0, .string($0.1)) })
                return try await gateway.call(
                    .post, "/v1/devices", token: Stack.token(user: "ada"),
                    json: String(decoding: JSONWriter.bytes(of: body), as: UTF8.self)
                ).status
            }
            var answers: [Int] = []
            for app in ["wide", "narrow", "common", "default"] {
                answers.append(try await register(app, by: gateway))
            }
            #expect(answers == [201, 422, 422, 422])
            // A gateway without lists accepts all; the dispatcher still refuses to send.
            let open = try await stack.startGateway(name: "open")
            for app in ["narrow", "common"] { #expect(try await register(app, by: open) == 201) }
            _ = try await stack.startDispatcher(environment: environment)
            try await Self.notify(stack, "Paid")
            try await eventually("each is settled by its app's list") {
                Stack.ends(try await Self.attempts(stack)).sorted()
                    == ["accepted", "failed origin_not_allowed", "failed origin_not_allowed"]
            }
            #expect(stack.sandbox.received().map(\.token) == ["wide"])
        }
    }

    @Test("an invalid subscription is refused at registration, and equal ones count as one device")
    func registration() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(
                environment: ["WEBPUSH_ORIGINS": "https://push.example, \(stack.sandbox.url)"])
            let token = Stack.token(user: "ada")
            let good = stack.sandbox.subscription("ada").json
            let bad = [
                "nonsense", "{}", #"{"endpoint":"https://push.example/x"}"#,
                good.replacing("https://127", with: "http://127"),
                good.replacing(stack.sandbox.url, with: "https://elsewhere.example"),
                good.replacing(#""p256dh":"B"#, with: #""p256dh":"C"#),
                good.replacing(#""auth":""#, with: #""auth":"AA"#),
            ]
            func body(_ text: String) -> String {
                let members = [JSONMember("platform", .string("web")), JSONMember("token", .string(text))]
                return String(decoding: JSONWriter.bytes(of: .object(members)), as: UTF8.self)
            }
            for text in bad {
                let answer = try await gateway.call(.post, "/v1/devices", token: token, json: body(text))
                #expect(answer.status == 422, "\(text)")
                #expect(answer.faults == ["token"])
            }
            let spaced = good.replacing(",", with: " , ").replacing(":null", with: ":1800000000000")
            for text in [good, spaced] {
                #expect(try await gateway.call(.post, "/v1/devices", token: token, json: body(text)).status == 201)
            }
            #expect(try await stack.query("SELECT 1 FROM carillon.devices").count == 1)
            let named = JSONWriter.bytes(of: .object([JSONMember("token", .string(spaced))]))
            let removal = try await gateway.call(
                .delete, "/v1/devices/current", token: token, json: String(decoding: named, as: UTF8.self))
            #expect(removal.status == 204)
        }
    }

    @Test("the Python library http_ece decrypts our message", .enabled(if: PythonClient.has("http_ece")))
    func otherLibrary() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let subscription = stack.sandbox.subscription("python")
            try await gateway.register(user: "ada", platform: "web", token: subscription.json)
            try await Self.notify(stack, "Grüße 🎉", [("body", String(repeating: "é", count: 3_000))])
            try await eventually("it is there") { stack.sandbox.received().count == 1 }
            let message = try #require(stack.sandbox.received().first)
            #expect(message.body.count <= 4_096)
            let client = try await PythonClient.start(
                "web_push.py",
                [
                    Data(subscription.keys.privateKey.rawRepresentation).base64EncodedString(),
                    Data(subscription.keys.secret).base64EncodedString(), Data(message.body).base64EncodedString(),
                ],
                in: stack.directory.path
            )
            let line = try await client.wait(for: "message ")
            let opened = try JSONParser.parse(Array(line.utf8.dropFirst("message ".utf8.count)))
            #expect(opened == (try Self.payload(message)))
            #expect(opened["notification"]?["title"]?.string == "Grüße 🎉")
            #expect(opened["notification"]?["body"]?.string?.hasSuffix("é…") == true)
        }
    }
}

extension Data {
    /// Base64 with the URL alphabet and without padding.
    fileprivate init?(base64URL text: String) {
        let plain = text.replacing("-", with: "+").replacing("_", with: "/")
        self.init(base64Encoded: plain + String(repeating: "=", count: (4 - plain.utf8.count % 4) % 4))
    }
}
