// Carillon · ProviderFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

/// Failures between the dispatcher and a provider, from the job to the log.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ProviderFaultTests {
    private static func notify(_ stack: Stack, _ users: [String]) async throws {
        let list = String(decoding: JSONWriter.bytes(of: .array(users.map { .string($0) })), as: UTF8.self)
        try await stack.append([("users", list), ("type", "payment_received"), ("title", "Paid")])
    }

    @Test("a hundred pushes refused by GOAWAY all arrive")
    func goAway() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher(environment: ["LOG_LEVEL": "debug"])
            let users = (0..<100).map { "u\($0)" }
            for user in users {
                let token = user == "u50" ? "goaway-once-\(user)" : user
                try await gateway.register(user: user, platform: "android", token: token)
            }
            try await gateway.register(user: "first", platform: "android", token: "first")
            try await Self.notify(stack, ["first"])
            try await eventually("the connection is there") { stack.pushed()["first"] == ["Paid"] }
            try await Self.notify(stack, users)
            try await eventually("all have it", within: .seconds(90)) { stack.pushed().count == 101 }
            try await eventually("each is stored as sent") {
                try await stack.query("SELECT 1 FROM carillon.notifications WHERE status = 'sent'").count == 101
            }
            #expect(try await stack.deadReasons().isEmpty)
            let reasons = try await stack.query(
                "SELECT DISTINCT reason FROM carillon.delivery_attempts WHERE outcome = 'retry'")
            // libcurl repeats some by itself; the dispatcher retries those that were already sent.
            let words = try reasons.map { try $0.text(0).prefix { $0 != ":" } }
            #expect(Set(words).isSubset(of: ["unknown_outcome", "not_sent"]))
            try await eventually("each is logged as accepted") {
                dispatcher.errors().split(separator: "\n").count {
                    $0.contains("delivery ended") && $0.contains("outcome=accepted")
                } == 101
            }
        }
    }

    @Test("a push that meets two GOAWAYs in a row arrives")
    func goAwayTwice() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await gateway.register(user: "ada", platform: "android", token: "goaway-2x-ada")
            // In the normal lane, where a push with an unknown outcome is retried only once.
            try await stack.append([("user", "ada"), ("type", "invoice_overdue"), ("title", "Overdue")])
            try await eventually("it is there", within: .seconds(120)) {
                stack.pushed() == ["goaway-2x-ada": ["Overdue"]]
            }
            try await eventually("it is stored as sent") {
                try await stack.statuses(user: "ada") == ["Overdue": "sent"]
            }
            #expect(try await stack.deadReasons().isEmpty)
        }
    }

    @Test("a push lost to a reset connection counts as one attempt and is retried once")
    func resetConnection() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await gateway.register(user: "first", platform: "android", token: "first")
            try await gateway.register(user: "ada", platform: "android", token: "sever-once-ada")
            try await gateway.register(user: "bob", platform: "android", token: "sever-bob")
            try await Self.notify(stack, ["first"])
            try await eventually("the connection is there") { stack.pushed()["first"] == ["Paid"] }
            // One after the other, because a reset ends every call on its connection. In the normal
            // lane, where a push with an unknown outcome is retried only once.
            try await stack.append([("user", "ada"), ("type", "invoice_overdue"), ("title", "Overdue")])
            try await eventually("the repeat arrives", within: .seconds(120)) {
                stack.pushed()["sever-once-ada"] == ["Overdue"]
            }
            try await stack.append([("user", "bob"), ("type", "invoice_overdue"), ("title", "Overdue")])
            try await eventually("the other is given up", within: .seconds(120)) {
                try await stack.deadReasons().count == 1
            }
            try await eventually("the attempts are recorded") {
                try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry'").count == 2
            }
            for (user, token, outcomes) in [
                ("ada", "sever-once-ada", ["accepted", "retry"]), ("bob", "sever-bob", ["failed", "retry"]),
            ] {
                let rows = try await stack.query(
                    "SELECT outcome FROM carillon.delivery_attempts WHERE kind = 'push' AND user_id = $1 ORDER BY 1",
                    .text(user))
                #expect(try rows.map { try $0.text(0) } == outcomes)
                #expect(stack.sandbox.faultAttempts()[token] == rows.count, "\(token)")
            }
        }
    }

    @Test("a provider with another host's certificate gets nothing, and its work is kept")
    func certificate() async throws {
        var configuration = SandboxConfiguration()
        configuration.host = "127.0.0.2"
        try await ProviderSandbox.with(configuration: configuration) { other in
            try await Stack.with { stack in
                let authorities = stack.directory.path + "/authorities.pem"
                try [stack.sandbox.caPath, other.caPath].map { try String(contentsOfFile: $0, encoding: .utf8) }
                    .joined().write(toFile: authorities, atomically: true, encoding: .utf8)
                let gateway = try await stack.startGateway()
                let dispatcher = try await stack.startDispatcher(
                    environment: [
                        "FCM_ENDPOINT": other.url, "PROVIDER_CA": authorities, "LOG_LEVEL": "debug",
                    ])
                let users = (0..<12).map { "u\($0)" }
                for user in users { try await gateway.register(user: user, platform: "android", token: user) }
                try await Self.notify(stack, users)
                try await eventually("it is told") {
                    dispatcher.errors().contains("provider is out of use; its work is kept")
                }
                try await eventually("each attempt is recorded") {
                    let rows = try await stack.query(
                        "SELECT DISTINCT outcome || ' ' || reason FROM carillon.delivery_attempts WHERE kind = 'push'")
                    return try rows.map { try $0.text(0) } == ["retry not_sent:tls"]
                }
                #expect(
                    dispatcher.errors().split(separator: "\n").contains {
                        $0.contains("delivery ended") && $0.contains("outcome=retry")
                            && $0.contains("reason=not_sent:tls")
                    })
                #expect(other.received().isEmpty && stack.sandbox.received().isEmpty)
                #expect(try await stack.deadReasons().isEmpty)
            }
        }
    }
}
