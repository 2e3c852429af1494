// Carillon · ProviderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Providers
import Sandbox
import Storage
import Support
import Testing

@testable import HTTP

/// Provider handling around the calls: announcements, apps, breakers, rates, unknown outcomes, test
/// sends.
@Suite(.timeLimit(.minutes(10)))
struct ProviderTests {
    private static func register(_ gateway: Gateway, _ user: String, app: String, token: String) async throws {
        let answer = try await gateway.call(
            .post, "/v1/devices", token: Stack.token(user: user),
            json: #"{"platform":"android","token":"\#(token)","name":"\#(token)","app":"\#(app)"}"#)
        #expect(answer.status == 201)
    }

    private static func payload(_ stack: Stack, token: String) throws -> JSONValue? {
        try stack.sandbox.received().first { $0.token == token }.map { try JSONParser.parse($0.payload) }
    }

    private static func push(_ stack: Stack, _ user: String, _ title: String) async throws {
        try await stack.append([
            ("user", user), ("type", "payment_received"), ("title", title), ("entity_type", "story"),
            ("entity_id", "s9"),
        ])
    }

    /// The path of an example's shape.
    private static func shape(_ example: String) -> String {
        Stack.checkout.appending(path: "examples/\(example)/shape.yaml").path
    }

    /// The state of the FCM breakers by app.
    private static func breakers(_ gateway: Gateway) async throws -> [String: String] {
        let token = Stack.token(user: "boss", scope: .admin)
        let answer = try await gateway.call(.get, "/v1/admin/providers", token: token)
        #expect(answer.status == 200)
        let fcm = answer.body["providers"]?.array?.first { $0["provider"]?.string == "fcm" }
        var states: [String: String] = [:]
        for way in fcm?["ways"]?.array ?? [] { states[way["app"]?.string ?? ""] = way["breaker"]?.string }
        return states
    }

    @Test("each app has its credentials and payload shape; a changed apps file is reloaded, a faulty one ignored")
    func apps() async throws {
        try await Stack.with { stack in
            let file = stack.directory.path + "/apps.yaml"
            func write(_ shape: String, more: String = "") throws {
                try """
                apps:
                  news:
                    fcm: {credentials: \(stack.sandbox.serviceAccountPath), endpoint: "\(stack.sandbox.url)"}
                    shape: \(shape)
                    \(more)
                """.write(toFile: file, atomically: true, encoding: .utf8)
            }
            try write(Self.shape("news"))
            let gateway = try await stack.startGateway()
            try await Self.register(gateway, "reader", app: "news", token: "reader")
            try await Self.register(gateway, "other", app: "default", token: "other")
            try await Self.register(gateway, "lost", app: "nowhere", token: "lost")
            let dispatcher = try await stack.startDispatcher(environment: ["APPS": file])
            for user in ["reader", "other", "lost"] { try await Self.push(stack, user, "first") }
            try await eventually("both are pushed") { stack.pushed().count == 2 }
            #expect(try Self.payload(stack, token: "reader")?["message"]?["data"]?["storyId"]?.string == "s9")
            #expect(try Self.payload(stack, token: "other")?["message"]?["data"]?["storyId"] == nil)
            try await eventually("an app without credentials sends nothing") {
                try await !stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE reason = 'no_provider'").isEmpty
            }

            try write("nonsense")
            dispatcher.send(SIGHUP)
            try await eventually("the fault is logged") {
                dispatcher.errors().contains("cannot use the new credentials; keeping the old ones")
            }
            try await Self.push(stack, "reader", "second")
            try await eventually("the old shape goes on") { stack.pushed()["reader"]?.count == 2 }

            try write(Self.shape("allowance"))
            dispatcher.send(SIGHUP)
            try await eventually("it is reloaded") { dispatcher.errors().contains("credentials reloaded") }
            try await Self.push(stack, "reader", "third")
            try await eventually("it is pushed") { stack.pushed()["reader"]?.count == 3 }
            let last = try #require(stack.sandbox.received().last { $0.token == "reader" })
            let data = try JSONParser.parse(last.payload)["message"]?["data"]
            #expect(data?["relatedEntityId"]?.string == "s9")

            let secret = "0123456789abcdef0123456789abcdef"
            try write(Self.shape("allowance"), more: #"webhook: {url: "https://hooks.example", secret: "\#(secret)"}"#)
            dispatcher.send(SIGHUP)
            try await eventually("a new provider asks for a restart") {
                dispatcher.errors().contains("restart the dispatcher to use a provider that no app had at start")
            }

            let text = try String(contentsOfFile: file, encoding: .utf8)
            try text.replacing("fcm:", with: "fcmm:").write(toFile: file, atomically: true, encoding: .utf8)
            dispatcher.send(SIGHUP)
            try await eventually("the misspelt provider is logged") {
                dispatcher.errors().contains("no such provider; one of ")
            }
            try await Self.push(stack, "reader", "fourth")
            try await eventually("the app keeps its provider") { stack.pushed()["reader"]?.count == 4 }

            try "apps: {}".write(toFile: file, atomically: true, encoding: .utf8)
            try await eventually("the missing app is removed") {
                dispatcher.errors().contains("app removed; its deliveries end as no_provider")
            }
            #expect(stack.pushed()["reader"]?.count == 4)
        }
    }

    @Test("the default app reads its shape from a file; a changed file is reread, a faulty one ignored")
    func defaultShape() async throws {
        try await Stack.with { stack in
            let file = stack.directory.path + "/shape.yaml"
            func write(_ text: String) throws {
                try text.write(toFile: file, atomically: true, encoding: .utf8)
            }
            func data(_ title: String) async throws -> JSONValue? {
                try await Self.push(stack, "reader", title)
                try await eventually("\(title) is pushed") { stack.pushed()["reader"]?.contains(title) == true }
                let last = stack.sandbox.received().last { $0.token == "reader" }
                return try JSONParser.parse(try #require(last).payload)["message"]?["data"]
            }
            try write(String(contentsOfFile: Self.shape("news"), encoding: .utf8))
            let gateway = try await stack.startGateway()
            try await Self.register(gateway, "reader", app: "default", token: "reader")
            let dispatcher = try await stack.startDispatcher(environment: ["PUSH_SHAPE": file])
            #expect(try await data("first")?["storyId"]?.string == "s9")

            try write("story: entity\n")
            dispatcher.send(SIGHUP)
            try await eventually("the fault is logged") {
                dispatcher.errors().contains("story: unknown source entity; use one of notification_id")
            }
            #expect(dispatcher.errors().contains("setting=PUSH_SHAPE"))
            #expect(try await data("second")?["storyId"]?.string == "s9")

            try write(String(contentsOfFile: Self.shape("allowance"), encoding: .utf8))
            dispatcher.send(SIGHUP)
            try await eventually("it is reread") {
                dispatcher.errors().split(separator: "\n").contains {
                    $0.contains("credentials reloaded") && $0.contains("provider=fcm")
                }
            }
            #expect(try await data("third")?["relatedEntityId"]?.string == "s9")
        }
    }

    @Test("apps have their own APNs keys and topics, and apps with one key keep their own topics")
    func topics() async throws {
        try await ProviderSandbox.with { other in
            try await Stack.with { stack in
                let authorities = stack.directory.path + "/authorities.pem"
                try [stack.sandbox.caPath, other.caPath].map { try String(contentsOfFile: $0, encoding: .utf8) }
                    .joined().write(toFile: authorities, atomically: true, encoding: .utf8)
                let file = stack.directory.path + "/apps.yaml"
                func apns(_ topic: String) -> String {
                    """
                    {key: "\(other.apnsKeyPath)", key_id: "\(other.apnsKeyID)", team_id: "\(other.apnsTeamID)", \
                    topic: \(topic), endpoint: "\(other.url)"}
                    """
                }
                try """
                apps:
                  news:
                    apns: \(apns("org.example.news"))
                  weather:
                    apns: \(apns("org.example.weather"))
                """.write(toFile: file, atomically: true, encoding: .utf8)
                let gateway = try await stack.startGateway()
                _ = try await stack.startDispatcher(environment: ["APPS": file, "PROVIDER_CA": authorities])
                let apps = [("default", "aa"), ("news", "bb"), ("weather", "cc")]
                for (app, digits) in apps {
                    let phone = String(repeating: digits, count: 32)
                    let answer = try await gateway.call(
                        .post, "/v1/devices", token: Stack.token(user: app),
                        json: #"{"platform":"ios","token":"\#(phone)","app":"\#(app)"}"#)
                    #expect(answer.status == 201)
                    try await Self.push(stack, app, app)
                }
                func topics(_ sandbox: ProviderSandbox) -> [String: String] {
                    var topics: [String: String] = [:]
                    for message in sandbox.received() {
                        topics[Stack.title(message)] = message.headers["apns-topic"]
                    }
                    return topics
                }
                // Each sandbox accepts only tokens of its own key.
                try await eventually("all three are pushed") {
                    topics(stack.sandbox).count == 1 && topics(other).count == 2
                }
                #expect(topics(stack.sandbox) == ["default": Stack.topic])
                #expect(topics(other) == ["news": "org.example.news", "weather": "org.example.weather"])
            }
        }
    }

    @Test("a failing provider is paused, its work is kept, and another app's pushes go out")
    func breaker() async throws {
        try await Stack.with { stack in
            let file = stack.directory.path + "/apps.yaml"
            try
                "apps: {news: {fcm: {credentials: \(stack.sandbox.serviceAccountPath), endpoint: \"\(stack.sandbox.url)\"}}}"
                .write(toFile: file, atomically: true, encoding: .utf8)
            let gateway = try await stack.startGateway()
            try await Self.register(gateway, "calm", app: "default", token: "calm")
            try await Self.register(gateway, "reader", app: "news", token: "reader")
            let dispatcher = try await stack.startDispatcher(environment: ["APPS": file])
            func isPaused() -> Bool { dispatcher.errors().contains("provider unavailable") }
            // The breaker counts the failures of ten seconds, which a busy machine may exceed.
            for round in 0..<5 where !isPaused() {
                // Each fails once, so the breaker's probes succeed.
                let tokens = (0..<12).map { "internal-once-\(round)-\($0)" }
                for token in tokens { try await Self.register(gateway, token, app: "default", token: token) }
                let users = tokens.map { #""\#($0)""# }.joined(separator: ",")
                try await stack.append([("users", "[\(users)]"), ("type", "payment_received"), ("title", "one")])
                try await eventually("each has failed, or the provider is paused") {
                    isPaused() || tokens.allSatisfy { stack.sandbox.faultAttempts()[$0] != nil }
                }
            }
            try await eventually("the provider is unavailable") { isPaused() }
            try await Self.push(stack, "reader", "now")
            try await eventually("the other app's goes out") { stack.pushed()["reader"] == ["now"] }
            try await Self.push(stack, "calm", "later")
            try await eventually("it comes back, and what was kept goes out once") {
                stack.pushed()["calm"] == ["later"]
            }
            try await eventually("the return is logged") { dispatcher.errors().contains("provider available again") }
            try await eventually("admins see it closed again") {
                try await Self.breakers(gateway) == ["default": "closed", "news": "closed"]
            }
        }
    }

    @Test("admins see every provider, also without a dispatcher")
    func providers() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "boss", scope: .admin)
            let answer = try await gateway.call(.get, "/v1/admin/providers", token: token)
            let names = (answer.body["providers"]?.array ?? []).map { $0["provider"]?.string }
            #expect(names == ["fcm", "apns", "webpush", "email", "webhook"])
        }
    }

    @Test("admins see counts, reasons and latencies of each app's pushes")
    func counts() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await Self.register(gateway, "ada", app: "default", token: "phone")
            try await Self.register(gateway, "bob", app: "default", token: "unregistered-1")
            _ = try await stack.startDispatcher()
            for user in ["ada", "bob"] { try await Self.push(stack, user, "one") }
            let token = Stack.token(user: "boss", scope: .admin)
            // Dispatchers publish the counts every few seconds.
            let counts = try await eventualValue("both are counted") { () async throws -> JSONValue? in
                let answer = try await gateway.call(.get, "/v1/admin/providers", token: token)
                let fcm = answer.body["providers"]?.array?.first { $0["provider"]?.string == "fcm" }
                return fcm?["counts"]?.array?.first {
                    $0["accepted"]?.integer == 1 && $0["failed"]?.integer == 1
                }
            }
            #expect(counts["app"]?.string == "default")
            #expect(counts["reasons"]?["UNREGISTERED"]?.integer == 1)
            // A busy machine may add retries.
            #expect(counts["sent"]?.integer ?? 0 >= 2)
            let latencies = try #require(counts["latencies"]?.array)
            #expect(latencies.reduce(0) { $0 + ($1["count"]?.integer ?? 0) } >= 2)
            #expect(latencies.last?["up_to_milliseconds"] == .null)
        }
    }

    @Test("pushes beyond the rate wait and are all sent")
    func rate() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            for name in ["one", "two"] {
                _ = try await stack.startDispatcher(name: name, environment: ["FCM_RATE": "8"])
            }
            let start = Date.now
            for number in 0..<24 { try await Self.push(stack, "ada", "n\(number)") }
            try await eventually("all are pushed, once each") { (stack.pushed()["phone"]?.count ?? 0) >= 24 }
            let last = try #require(stack.sandbox.received().map(\.at).max())
            // 24 pushes at 8 a second, less a full bucket. The first arrives late, because its
            // dispatcher connects after its turn.
            #expect(last.timeIntervalSince(start) > 2)
            #expect(Set(stack.pushed()["phone"] ?? []).count == 24)
        }
    }

    @Test("a push with an unknown outcome is retried once, then fails")
    func unknownOutcome() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "ada", platform: "android", token: "cut-always")
            _ = try await stack.startDispatcher()
            try await stack.append([
                ("user", "ada"), ("type", "invoice_created"), ("title", "cut"), ("delivery", "push"),
            ])
            try await eventually("it is given up after the repeat") {
                try await stack.makeDue(.fcm)
                return try await stack.deadReasons().values.contains {
                    $0.hasPrefix("no answer more than once, so it may have arrived: ")
                }
            }
            let rows = try await stack.query(
                "SELECT outcome FROM carillon.delivery_attempts WHERE reason LIKE 'unknown_outcome%' ORDER BY attempt")
            #expect(try rows.map { try $0.text(0) } == ["retry", "failed"])
            #expect(try await stack.statuses(user: "ada") == ["cut": "failed"])
        }
    }

    @Test("the retry of a cut-off push keeps its ids and collapse key")
    func sameRepeat() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "ada", platform: "android", token: "cut-once-1")
            let phone = "deade301" + String(repeating: "0", count: 56)
            try await gateway.register(user: "ada", platform: "ios", token: phone, name: "ios")
            _ = try await stack.startDispatcher()
            try await stack.append([
                ("user", "ada"), ("type", "payment_received"), ("title", "cut"), ("lane", "critical"),
                ("collapse_key", "invoice-7"),
            ])
            try await eventually("both were cut, and arrive") {
                Set(stack.sandbox.cut().map(\.token)) == ["cut-once-1", phone] && stack.pushed().count == 2
            }
            func both(_ provider: ReceivedMessage.Provider) throws -> [ReceivedMessage] {
                [
                    try #require(stack.sandbox.cut().first { $0.provider == provider }),
                    try #require(stack.sandbox.received().first { $0.provider == provider }),
                ]
            }
            let messages = try both(.fcm).map { try JSONParser.parse($0.payload)["message"] }
            let ids = messages.compactMap { $0?["data"]?["notification_id"]?.string }
            #expect(ids.count == 2 && Set(ids).count == 1)
            let tags = messages.map { $0?["android"]?["notification"]?["tag"]?.string }
            #expect(tags == ["invoice-7", "invoice-7"])
            let headers = try both(.apns).map(\.headers)
            for name in ["apns-id", "apns-collapse-id"] {
                let values = headers.compactMap { $0[name] }
                #expect(values.count == 2 && Set(values).count == 1, "\(name): \(values)")
            }
        }
    }

    @Test("a test send reports the provider's answer and advice, through the API and by command")
    func testSend() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let good = try await gateway.register(user: "ada", platform: "android", token: "phone")
            try await gateway.register(user: "bob", platform: "android", token: "unregistered-1")
            let service = Stack.token(user: "app", scope: .service)
            func test(_ json: String, _ token: String) async throws -> Gateway.Answer {
                try await gateway.call(.post, "/v1/test-sends", token: token, json: json)
            }
            let accepted = try await test(#"{"user":"ada","title":"Hello?"}"#, service)
            #expect(accepted.status == 200)
            #expect(accepted.body["outcome"]?.string == "accepted")
            #expect(accepted.body["device"]?.string == good)
            #expect(accepted.body["provider_id"]?.string?.hasPrefix("projects/") == true)
            #expect(accepted.body["answer"]?.string?.hasPrefix("HTTP/2 200") == true)
            #expect(stack.pushed()["phone"] == ["Hello?"])
            let dead = try await test(#"{"user":"bob"}"#, service)
            #expect(dead.body["outcome"]?.string == "dead_token")
            #expect(dead.body["reason"]?.string == "UNREGISTERED")
            #expect(dead.body["advice"]?.string?.contains("registers again") == true)
            // A test send records nothing and keeps the device active.
            #expect(try await stack.query("SELECT 1 FROM carillon.devices WHERE active").count == 2)
            #expect(try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE kind = 'push'").isEmpty)
            #expect(try await test(#"{"user":"ada"}"#, Stack.token(user: "ada")).status == 403)
            #expect(try await test(#"{"user":"nobody"}"#, service).status == 404)
            #expect(try await test(#"{"title":"x"}"#, service).faults == ["user"])
            #expect(try await test(#"{"user":"ada","title":"","device":"x"}"#, service).faults == ["title", "device"])

            let command = try await stack.spawn("dispatcher", ["send-test", "--user", "bob"], name: "send-test")
            #expect(try await command.waitForExit() == .code(1))
            #expect(command.output().contains(#/reason: +UNREGISTERED/#))
            let json = try await stack.spawn("dispatcher", ["send-test", "--user", "ada", "--json"], name: "send-json")
            #expect(try await json.waitForExit() == .code(0))
            #expect(try JSONParser.parse(Array(json.output().utf8))["outcome"]?.string == "accepted")
            try await gateway.set(#"{"zone":"Europe/Berlin"}"#, of: "cleo")
            let lacks = "cleo has no active device; see `dispatcher user cleo`"
            for (user, fault) in [("nosuch", "there is no user nosuch"), ("cleo", lacks)] {
                let refused = try await stack.command(["send-test", "--user", user])
                #expect(refused.code == 1 && refused.errors.contains(fault), "\(refused)")
            }
        }
    }

    @Test("a test send reports an answer with more combining marks in a row than a request may have")
    func markedAnswer() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            let marks = "a" + String(repeating: "\u{300}", count: 65)
            let sends = Live(stack.connection).testSends
            // In place of a dispatcher.
            func answerNext() async throws {
                let request = try await eventualValue("a test send is requested") {
                    try await sends.next(on: stack.connection, within: 1)
                }
                let id = try #require(try JSONParser.parse(request)["id"]?.string)
                let answer = [JSONMember("outcome", .string("refused")), JSONMember("answer", .string(marks))]
                try await sends.answer(id, JSONWriter.bytes(of: .object(answer)))
            }
            let service = Stack.token(user: "app", scope: .service)
            async let called = gateway.call(.post, "/v1/test-sends", token: service, json: #"{"user":"ada"}"#)
            try await answerNext()
            let answer = try await called
            let body = try JSONParser.parse(stored: answer.response.body)
            #expect(body["outcome"]?.string == "refused" && body["answer"]?.string == marks)
            let command = try await stack.spawn("dispatcher", ["send-test", "--user", "ada"], name: "send-marks")
            try await answerNext()
            #expect(try await command.waitForExit() == .code(1))
            #expect(command.output().contains(#/outcome: +refused/#) && command.output().contains(marks))
        }
    }

    @Test("malformed answers are recorded by their status, and the pushes are retried")
    func nonsense() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let words = ["html", "half", "empty", "huge"]
            for word in words {
                try await gateway.register(user: word, platform: "android", token: "\(word)-once-1")
            }
            let codes = ["html": "e6", "half": "e7", "empty": "e8", "huge": "e9"]
            for (word, code) in codes {
                let token = "dead\(code)01" + String(repeating: "0", count: 56)
                try await gateway.register(user: word, platform: "ios", token: token, name: "ios")
            }
            let dispatcher = try await stack.startDispatcher()
            for word in words {
                try await stack.append([
                    ("user", word), ("type", "payment_received"), ("title", word), ("lane", "critical"),
                ])
            }
            try await eventually("all arrive on the second attempt") {
                for provider in [Provider.fcm, .apns] { try await stack.makeDue(provider) }
                return stack.pushed().count == 8
            }
            let rows = try await stack.query("SELECT reason FROM carillon.delivery_attempts WHERE outcome = 'retry'")
            let reasons = Set(try rows.map { try $0.text(0) })
            let expected: Set = ["HTTP_500", "HTTP_502", "HTTP_503", "unknown_outcome:not_understood"]
            #expect(reasons.isSuperset(of: expected), "\(reasons)")
            // A busy machine may add others.
            let others = reasons.subtracting(expected)
            #expect(others.allSatisfy { $0.hasPrefix("not_sent:") || $0.hasPrefix("unknown_outcome:") }, "\(others)")
            #expect(!dispatcher.errors().contains("<html>"))
        }
    }
}
