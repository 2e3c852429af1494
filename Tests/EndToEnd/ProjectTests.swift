// Carillon · ProjectTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Storage
import Support
import Testing

/// Apps in two Firebase projects: their credentials and their rate limits.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ProjectTests {
    private static let otherProject = "carillon-news"

    /// Runs `body` with a sandbox that has both projects.
    private static func with(retryAfter: Int = 1, _ body: (Stack) async throws -> Void) async throws {
        var configuration = SandboxConfiguration()
        configuration.otherProject = Self.otherProject
        configuration.retryAfter = retryAfter
        try await Stack.with(sandbox: configuration, body)
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
            .post, "/v1/devices", token: try await Stack.token(user: user),
            json: #"{"platform":"android","token":"\#(user)","app":"\#(app)"}"#)
        #expect(answer.status == 201)
    }

    private static func push(_ stack: Stack, _ user: String, _ title: String) async throws {
        try await stack.append([("user", user), ("type", "payment_received"), ("title", title)])
    }

    /// Whether a dispatcher logged a message about an app.
    private static func says(_ message: String, of app: String, _ dispatcher: ChildProcess) -> Bool {
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
            try await eventually("it is read again") {
                Self.says("credentials were read again", of: "news", dispatcher)
            }
            for (user, _) in users { try await Self.push(stack, user, "second") }
            try await eventually("the first project's go out") {
                stack.pushed()["phone"] == ["first", "second"] && stack.pushed()["tablet"] == ["first", "second"]
            }
            try await eventually("the other project's fault is logged") {
                Self.says("provider does not accept our configuration", of: "news", dispatcher)
            }
            try await eventually("its work is kept") {
                let rows = try await stack.query(
                    "SELECT user_id || ' ' || outcome FROM carillon.delivery_attempts WHERE reason = 'no_credential'")
                return try rows.map { try $0.text(0) } == ["reader retry"]
            }
            #expect(stack.pushed()["reader"] == ["first"])
            for app in ["default", "sister"] { #expect(!Self.says("does not accept", of: app, dispatcher)) }
        }
    }

    @Test("a rate limit reported to one dispatcher stops every dispatcher for that project's apps only")
    func quota() async throws {
        let wait = 30
        try await Self.with(retryAfter: wait) { stack in
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
            let start = Date.now
            try await Self.push(stack, "quota-once-ada", "first")
            func areHeld(_ dispatchers: [ChildProcess]) -> Bool {
                dispatchers.allSatisfy { dispatcher in
                    ["default", "sister"].allSatisfy { Self.says("provider is out of use", of: $0, dispatcher) }
                }
            }
            // The provider told only one of them, and only for one app.
            try await eventually("both leave both apps of the project alone") { areHeld(dispatchers) }
            dispatchers.append(try await stack.startDispatcher(name: "three", environment: environment))
            try await eventually("so does one that has just come") { areHeld(dispatchers) }

            for number in 0..<10 {
                for user in ["phone", "tablet", "reader"] { try await Self.push(stack, user, "n\(number)") }
            }
            try await eventually("the other project's go out") { stack.pushed()["reader"]?.count == 10 }
            let board = ProviderBoard(connection: stack.connection, keys: Keyspace())
            try await eventually("admins see which wait") {
                let states = try await board.states(now: Timestamp(seconds: 0)).filter { $0.provider == .fcm }
                return states.count { $0.breaker == .open } == 6
                    && states.allSatisfy { ($0.breaker == .open) == ($0.app != "news") }
            }
            try await eventually("what was kept goes out") {
                stack.pushed()["phone"]?.count == 10 && stack.pushed()["tablet"]?.count == 10
                    && stack.pushed()["quota-once-ada"] == ["first"]
            }
            func moments(_ project: String) -> [Date] {
                stack.sandbox.received().filter { $0.project == project }.map(\.at)
            }
            let first = try #require(moments(stack.sandbox.projectID).min())
            let last = try #require(moments(Self.otherProject).max())
            // The dispatchers use PostgreSQL's clock, which may be adjusted slightly while they
            // wait.
            #expect(first.timeIntervalSince(start) > Double(wait) - 0.5)
            #expect(last < first)
            #expect(stack.sandbox.faultAttempts()["quota-once-ada"] == 2)
            #expect(try await stack.deadReasons().isEmpty)
        }
    }
}
