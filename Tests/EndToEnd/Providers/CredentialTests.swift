// Carillon · CredentialTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Storage
import Support
import Testing

/// Credential files: faulty at the start, or changed while the programs run.
@Suite(.timeLimit(.minutes(10)))
struct CredentialFileTests {
    private static let files = ["FCM_CREDENTIALS", "APNS_KEY", "VAPID_KEY"]

    /// An elliptic key for FCM; a Google service account for APNs and Web Push.
    private static func wrongKind(_ name: String, _ stack: Stack) -> String {
        name == "FCM_CREDENTIALS" ? stack.sandbox.apnsKeyPath : stack.sandbox.serviceAccountPath
    }

    @Test("a broken, missing or wrong credential file ends the start with 78 and names its setting")
    func atStart() async throws {
        try await Stack.with { stack in
            let broken = stack.directory.path + "/broken.pem"
            try "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n"
                .write(toFile: broken, atomically: true, encoding: .utf8)
            let kinds: [(String, (String) -> String)] = [
                ("broken", { _ in broken }), ("missing", { _ in "/nowhere/key" }),
                ("wrong", { Self.wrongKind($0, stack) }),
            ]
            for (word, path) in kinds {
                let settings = Dictionary(uniqueKeysWithValues: Self.files.map { ($0, path($0)) })
                let process = try await stack.spawn("dispatcher", ["run"], name: word, environment: settings)
                #expect(try await process.waitForExit() == .code(78), "\(word)")
                for name in Self.files {
                    #expect(process.errors().contains("\(name) cannot be used"), "\(word) \(name)")
                }
                for secret in ["hunter2", "BEGIN", "private_key\""] { #expect(!process.errors().contains(secret)) }
            }
            let process = try await stack.spawn(
                "dispatcher", ["run"], name: "settings",
                environment: [
                    "WEBHOOK_PROVIDER_URL": "http://hunter2:x@elsewhere.example", "WEBHOOK_PROVIDER_SECRET": "hunter2",
                    "VAPID_SUBJECT": "hunter2", "SMTP_URL": "http://hunter2", "SMTP_FROM": "a@b.example",
                ])
            #expect(try await process.waitForExit() == .code(78))
            for name in ["WEBHOOK_PROVIDER_URL", "VAPID_SUBJECT", "SMTP_URL"] {
                #expect(process.errors().contains("\(name) cannot be used"), "\(name)")
            }
            #expect(!process.errors().contains("hunter2"))
            // The gateway gives browsers the key to subscribe with.
            let gateway = try await stack.spawn(
                "gateway", ["serve"], name: "gateway", environment: ["VAPID_KEY": broken])
            #expect(try await gateway.waitForExit() == .code(78))
            #expect(gateway.errors().contains("VAPID_KEY"))
            #expect(!gateway.errors().contains("hunter2"))
        }
    }

    @Test("a changed credential file is reloaded; while it is faulty the old credential stays in use")
    func whileRunning() async throws {
        try await Stack.with { stack in
            let sources = [
                "FCM_CREDENTIALS": stack.sandbox.serviceAccountPath, "APNS_KEY": stack.sandbox.apnsKeyPath,
                "VAPID_KEY": stack.sandbox.vapidKeyPath,
            ]
            let names = ["FCM_CREDENTIALS": "fcm", "APNS_KEY": "apns", "VAPID_KEY": "webpush"]
            var settings: [String: String] = [:]
            func write(_ text: (String) throws -> String) throws {
                for (name, source) in sources {
                    let path = "\(stack.directory.path)/\(name)"
                    settings[name] = path
                    try text(try String(contentsOfFile: source, encoding: .utf8))
                        .write(toFile: path, atomically: true, encoding: .utf8)
                }
            }
            try write { $0 }
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher(environment: settings)
            let phone = String(repeating: "ab", count: 32)
            try await gateway.register(user: "ada", platform: "android", token: "robot", name: "robot")
            try await gateway.register(user: "ada", platform: "ios", token: phone, name: "phone")
            try await gateway.register(
                user: "ada", platform: "web", token: stack.sandbox.subscription("page").json, name: "page")
            func pushes(_ count: Int) async throws {
                try await stack.append([
                    ("user", "ada"), ("type", "payment_received"), ("title", "number \(count)"),
                ])
                try await eventually("all three get number \(count)") {
                    ["robot", phone, "page"].allSatisfy { stack.pushed()[$0]?.count == count }
                }
            }
            func lines(_ message: String) -> [String] {
                dispatcher.errors().split(separator: "\n").map { String($0) }.filter { $0.contains(message) }
            }
            try await pushes(1)

            try write { _ in "hunter2" }
            dispatcher.send(SIGHUP)
            try await eventually("each fault is logged with its setting") {
                let faults = lines("cannot use the new credentials; keeping the old ones")
                return sources.keys.allSatisfy { name in faults.contains { $0.contains(name) } }
            }
            try await pushes(2)
            #expect(!dispatcher.errors().contains("hunter2"))

            // The same key in a file with other bytes.
            try write { $0 + "\n" }
            dispatcher.send(SIGHUP)
            try await eventually("each is reloaded") {
                let told = lines("credentials reloaded")
                return names.values.allSatisfy { name in told.contains { $0.contains(name) } }
            }
            try await pushes(3)
        }
    }

    @Test("secrets in one-line files are used, and reloaded when the files change")
    func secrets() async throws {
        try await Stack.with { stack in
            func write(_ text: String, _ name: String) throws -> String {
                let path = "\(stack.directory.path)/\(name)"
                try text.write(toFile: path, atomically: true, encoding: .utf8)
                return path
            }
            let login = "carillon:pass%3Aword%2F1@"
            try #require(stack.sandbox.smtpURL.contains(login))
            var settings = try stack.catalog(
                "types: {receipt: {channels: [email]}, room: {delivery: push, channels: [in_app, push]}}")
            settings["SMTP_URL"] = stack.sandbox.smtpURL.replacing(login, with: "carillon@")
            settings["SMTP_FROM"] = Stack.mailSender
            settings["SMTP_PASSWORD_FILE"] = try write("pass:word/1\n", "password")
            settings["WEBHOOK_PROVIDER_URL"] = stack.sandbox.webhookURL
            settings["WEBHOOK_PROVIDER_SECRET_FILE"] = try write(stack.sandbox.webhookSecret + "\n", "secret")
            let gateway = try await stack.startGateway(environment: settings)
            let dispatcher = try await stack.startDispatcher(environment: settings)
            try await stack.setAddress("ada@example.com", of: "ada", by: gateway)
            try await gateway.register(user: "ada", platform: "webhook", token: "room")
            func notify(_ title: String) async throws {
                for type in ["receipt", "room"] {
                    try await stack.append([("user", "ada"), ("type", type), ("title", title)])
                }
            }
            func lines(_ message: String) -> [String] {
                dispatcher.errors().split(separator: "\n").map { String($0) }.filter { $0.contains(message) }
            }
            try await notify("first")
            try await eventually("both take the first") {
                try await stack.makeDue(.email)
                return try stack.pushed()["room"] == ["first"] && Set(stack.mails().map(\.subject)) == ["first"]
            }

            // A secret file has exactly one line.
            for name in ["password", "secret"] { _ = try write("hunter2\nhunter2-hunter2-hunter2\n", name) }
            dispatcher.send(SIGHUP)
            try await eventually("each fault is logged with its setting") {
                let faults = lines("cannot use the new credentials; keeping the old ones")
                return ["SMTP_PASSWORD_FILE", "WEBHOOK_PROVIDER_SECRET_FILE"].allSatisfy { name in
                    faults.contains { $0.contains(name) }
                }
            }
            try await notify("second")
            try await eventually("both take the second") {
                try await stack.makeDue(.email)
                let subjects = Set(try stack.mails().map(\.subject))
                return stack.pushed()["room"] == ["first", "second"] && subjects == ["first", "second"]
            }

            for name in ["password", "secret"] { _ = try write("hunter2-hunter2-hunter2\n", name) }
            dispatcher.send(SIGHUP)
            try await eventually("each is reloaded") {
                let told = lines("credentials reloaded")
                return ["email", "webhook"].allSatisfy { name in told.contains { $0.contains(name) } }
            }
            try await notify("third")
            try await eventually("both refuse what the files have now") {
                let rows = try await stack.query(
                    "SELECT reason FROM carillon.delivery_attempts WHERE outcome = 'retry'")
                return Set(try rows.map { try $0.text(0) }).isSuperset(of: ["HTTP_401", "SMTP_535_5.7.8"])
            }
            #expect(!dispatcher.errors().contains("hunter2"))
        }
    }

    @Test("the gateway serves the public key of a changed file, and the old key while the file is faulty")
    func publicKey() async throws {
        try await Stack.with { stack in
            let path = "\(stack.directory.path)/vapid"
            func write(_ text: String) throws {
                try text.write(toFile: path, atomically: true, encoding: .utf8)
            }
            let texts = [
                try String(contentsOfFile: stack.sandbox.vapidKeyPath, encoding: .utf8),
                Base64.url.encode([UInt8](repeating: 1, count: 32)),
            ]
            let keys = try texts.map { try VAPIDKey(file: Array($0.utf8)).publicKey }
            try write(texts[0])
            let gateway = try await stack.startGateway(environment: ["VAPID_KEY": path])
            let token = Stack.token(user: "ada")
            func served() async throws -> String? {
                try await gateway.call(.get, "/v1/web-push/key", token: token).body["key"]?.string
            }
            #expect(try await served() == keys[0])
            try write("hunter2")
            gateway.process.send(SIGHUP)
            try await eventually("the fault is logged") {
                gateway.process.errors().contains("cannot use new web push key; keeping the old one")
            }
            #expect(try await served() == keys[0])
            try write(texts[1])
            gateway.process.send(SIGHUP)
            try await eventually("the other key is served") { try await served() == keys[1] }
            #expect(!gateway.process.errors().contains("hunter2"))
        }
    }
}

/// Apps in two Firebase projects: their credentials and their rate limits.
@Suite(.timeLimit(.minutes(10)))
struct ProjectTests {
    private static let otherProject = "carillon-news"

    /// Runs `body` with a sandbox that has both projects.
    private static func with(retryAfter: Int = 1, _ body: (Stack) async throws -> Void) async throws {
        var configuration = SandboxConfiguration()
        configuration.otherProject = Self.otherProject
        configuration.retryAfter = retryAfter
        try await Stack.with(sandbox: configuration, settings: Stack.shortLease, body)
    }

    /// Settings of two apps: `sister` shares the default app's project, `news` has the other.
    private static func apps(_ stack: Stack, news credentials: String) throws -> [String: String] {
        let file = stack.directory.path + "/apps.yaml"
        func fcm(_ path: String) -> String { "{credentials: \"\(path)\", endpoint: \"\(stack.sandbox.url)\"}" }
        try """
        apps:
          sister:
            fcm: \(fcm(stack.sandbox.serviceAccountPath))
          news:
            fcm: \(fcm(credentials))
        """.write(toFile: file, atomically: true, encoding: .utf8)
        return ["APPS": file]
    }

    /// Registers a device whose token is the user's name.
    private static func register(_ gateway: Gateway, _ user: String, app: String) async throws {
        let answer = try await gateway.call(
            .post, "/v1/devices", token: Stack.token(user: user),
            json: #"{"platform":"android","token":"\#(user)","app":"\#(app)"}"#)
        #expect(answer.status == 201)
    }

    private static func push(_ stack: Stack, _ user: String, _ title: String) async throws {
        try await stack.append([("user", user), ("type", "payment_received"), ("title", title)])
    }

    /// Whether a dispatcher logged a message about an app.
    private static func logged(_ message: String, of app: String, _ dispatcher: ChildProcess) -> Bool {
        dispatcher.errors().split(separator: "\n").contains { $0.contains(message) && $0.contains("app=\(app)") }
    }

    @Test("each app pushes to its own project with its own token, and one project's bad key stops only its apps")
    func credentials() async throws {
        try await Self.with { stack in
            let file = stack.directory.path + "/news.json"
            func write(_ account: [String: String]) throws {
                try JSONEncoder().encode(account).write(to: URL(fileURLWithPath: file), options: .atomic)
            }
            func account(_ path: String) throws -> [String: String] {
                try JSONDecoder().decode([String: String].self, from: Data(contentsOf: URL(fileURLWithPath: path)))
            }
            var news = try account(stack.sandbox.otherServiceAccountPath)
            try write(news)
            let gateway = try await stack.startGateway()
            let users = [("phone", "default"), ("tablet", "sister"), ("reader", "news")]
            for (user, app) in users { try await Self.register(gateway, user, app: app) }
            let dispatcher = try await stack.startDispatcher(environment: try Self.apps(stack, news: file))
            for (user, _) in users { try await Self.push(stack, user, "first") }
            try await eventually("all three are pushed") { stack.sandbox.received().count == 3 }
            // The sandbox accepts a token only on its own project's path.
            let places = stack.sandbox.received().map { "\($0.token) by \($0.project ?? "none")" }
            let own = stack.sandbox.projectID
            #expect(places.sorted() == ["phone by \(own)", "reader by \(Self.otherProject)", "tablet by \(own)"])

            // A key that does not belong to this account.
            news["private_key"] = try account(stack.sandbox.serviceAccountPath)["private_key"]
            try write(news)
            dispatcher.send(SIGHUP)
            try await eventually("it is reloaded") {
                Self.logged("credentials reloaded", of: "news", dispatcher)
            }
            for (user, _) in users { try await Self.push(stack, user, "second") }
            try await eventually("the first project's go out") {
                stack.pushed()["phone"] == ["first", "second"] && stack.pushed()["tablet"] == ["first", "second"]
            }
            try await eventually("the other project's fault is logged") {
                Self.logged("provider rejected the credentials or settings", of: "news", dispatcher)
            }
            try await eventually("its work is kept") {
                let rows = try await stack.query(
                    """
                    SELECT DISTINCT user_id || ' ' || outcome FROM carillon.delivery_attempts
                    WHERE reason = 'the token endpoint answered 400, invalid_grant'
                    """)
                return try rows.map { try $0.text(0) } == ["reader retry"]
            }
            #expect(stack.pushed()["reader"] == ["first"])
            for app in ["default", "sister"] { #expect(!Self.logged("provider rejected", of: app, dispatcher)) }
        }
    }

    @Test("a rate limit reported to one dispatcher stops every dispatcher for that project's apps only")
    func quota() async throws {
        let wait: Duration = .seconds(600)
        try await Self.with(retryAfter: 600) { stack in
            let gateway = try await stack.startGateway()
            let devices = [
                ("quota-once-ada", "default"), ("phone", "default"), ("tablet", "sister"), ("reader", "news"),
            ]
            for (user, app) in devices { try await Self.register(gateway, user, app: app) }
            let environment = try Self.apps(stack, news: stack.sandbox.otherServiceAccountPath)
            var dispatchers: [ChildProcess] = []
            for name in ["one", "two"] {
                dispatchers.append(try await stack.startDispatcher(name: name, environment: environment))
            }
            let start = Schedules.now()
            try await Self.push(stack, "quota-once-ada", "first")
            func areHeld(_ dispatchers: [ChildProcess]) -> Bool {
                dispatchers.allSatisfy { dispatcher in
                    ["default", "sister"].allSatisfy { Self.logged("provider unavailable", of: $0, dispatcher) }
                }
            }
            // The provider told only one of them, and only for one app.
            try await eventually("both leave both apps of the project alone") { areHeld(dispatchers) }
            dispatchers.append(try await stack.startDispatcher(name: "three", environment: environment))
            try await eventually("a new dispatcher does too") { areHeld(dispatchers) }

            for number in 0..<10 {
                for user in ["phone", "tablet", "reader"] { try await Self.push(stack, user, "n\(number)") }
            }
            try await eventually("the other project's go out") { stack.pushed()["reader"]?.count == 10 }
            let board = Live(stack.connection).providerBoard
            try await eventually("admins see which apps wait") {
                let report = try await board.report(now: Timestamp(seconds: 0), removesStale: false)
                let states = report.states.filter { $0.provider == .fcm }
                return states.count { $0.breaker == .open } == 6
                    && states.allSatisfy { ($0.breaker == .open) == ($0.app != "news") }
            }
            #expect(stack.sandbox.received().allSatisfy { $0.project == Self.otherProject })
            let pauses = try await stack.connection.send("HGETALL", "carillon:{fcm}:pauses").strings()
            let end = try #require(pauses.last.flatMap { Int64($0) }.map { Timestamp(milliseconds: $0) })
            #expect(pauses.count == 2)
            // The dispatcher's clock follows PostgreSQL's, exact to half a second.
            #expect(end - start > wait - .milliseconds(500))
            #expect(end - Schedules.now() < wait + .milliseconds(500))

            // An operator lifts the pause.
            try await stack.connection.send("DEL", "carillon:{fcm}:pauses")
            try await eventually("the kept pushes go out") {
                try await stack.makeDue(.fcm)
                return stack.pushed()["phone"]?.count == 10 && stack.pushed()["tablet"]?.count == 10
                    && stack.pushed()["quota-once-ada"] == ["first"]
            }
            #expect(stack.sandbox.faultAttempts()["quota-once-ada"] == 2)
            #expect(try await stack.deadReasons().isEmpty)
        }
    }
}
