// Carillon · ProviderFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

/// Failures between the dispatcher and a provider, from the job to the log.
@Suite(.timeLimit(.minutes(10)))
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
            try await eventually("all have it") { stack.pushed().count == 101 }
            try await eventually("each is stored as sent") {
                try await stack.query("SELECT 1 FROM carillon.notifications WHERE status = 'sent'").count == 101
            }
            #expect(try await stack.deadReasons().isEmpty)
            let reasons = try await stack.query(
                "SELECT DISTINCT reason FROM carillon.delivery_attempts WHERE outcome = 'retry'")
            // libcurl repeats some; the dispatcher retries those that were already sent.
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
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "ada", platform: "android", token: "goaway-2x-ada")
            // In the normal lane, where a push with an unknown outcome is retried only once.
            try await stack.append([("user", "ada"), ("type", "invoice_overdue"), ("title", "Overdue")])
            try await eventually("it is there") {
                try await stack.makeDue(.fcm)
                return stack.pushed() == ["goaway-2x-ada": ["Overdue"]]
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
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "first", platform: "android", token: "first")
            try await gateway.register(user: "ada", platform: "android", token: "sever-once-ada")
            try await gateway.register(user: "bob", platform: "android", token: "sever-bob")
            try await Self.notify(stack, ["first"])
            try await eventually("the connection is there") { stack.pushed()["first"] == ["Paid"] }
            // One after the other, because a reset ends every call on its connection. In the normal
            // lane, where a push with an unknown outcome is retried only once.
            try await stack.append([("user", "ada"), ("type", "invoice_overdue"), ("title", "Overdue")])
            try await eventually("the repeat arrives") {
                try await stack.makeDue(.fcm)
                return stack.pushed()["sever-once-ada"] == ["Overdue"]
            }
            try await stack.append([("user", "bob"), ("type", "invoice_overdue"), ("title", "Overdue")])
            try await eventually("the other is given up") {
                try await stack.makeDue(.fcm)
                return try await stack.deadReasons().count == 1
            }
            try await eventually("the attempts are recorded") {
                try await stack.query(
                    "SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry' AND reason LIKE 'unknown%'"
                ).count == 2
            }
            for (user, token, outcomes) in [
                ("ada", "sever-once-ada", ["accepted", "retry"]), ("bob", "sever-bob", ["failed", "retry"]),
            ] {
                // A busy machine may add tries that did not reach the provider.
                let rows = try await stack.query(
                    """
                    SELECT outcome FROM carillon.delivery_attempts WHERE kind = 'push' AND user_id = $1
                        AND coalesce(reason, '') NOT LIKE 'not_sent:%' ORDER BY 1
                    """,
                    .text(user))
                #expect(try rows.map { try $0.text(0) } == outcomes)
                #expect(stack.sandbox.faultAttempts()[token] == rows.count, "\(token)")
            }
        }
    }

    @Test("a provider with another host's certificate gets nothing, and its deliveries wait")
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
                try await eventually("the outage is logged") {
                    dispatcher.errors().contains("provider unavailable; its deliveries wait")
                }
                try await eventually("each attempt is recorded") {
                    let rows = try await stack.query(
                        "SELECT DISTINCT outcome || ' ' || reason FROM carillon.delivery_attempts WHERE kind = 'push'")
                    let attempts = try rows.map { try $0.text(0) }
                    return attempts.contains("retry not_sent:tls")
                        && attempts.allSatisfy { $0.hasPrefix("retry not_sent:") }
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

/// Third-party clients for FCM and APNs accept the sandbox that our own requests are tested with.
@Suite(.timeLimit(.minutes(10)))
struct SandboxClientTests {
    /// The client's output for each token, without the token.
    private static func run(_ script: String, _ arguments: [String], _ tokens: [String]) async throws -> [String] {
        let directory = try TemporaryDirectory("client")
        let client = try await PythonClient.start(script, arguments + tokens, in: directory.path)
        _ = try await client.wait(for: "done")
        return tokens.map { token in
            let line = client.lines.first { $0.split(separator: " ").dropFirst().first == token[...] } ?? "nothing"
            return line.split(separator: " ").enumerated().filter { $0.offset != 1 }.map { String($0.element) }
                .joined(separator: " ")
        }
    }

    @Test("firebase_admin sends, and maps each refusal", .enabled(if: PythonClient.has("firebase_admin")))
    func firebaseAdmin() async throws {
        try await ProviderSandbox.with { sandbox in
            let table = [
                ("phone", "sent projects/"), ("/topics/news", "sent projects/"),
                ("bad-1", "failed InvalidArgumentError"), ("badfield-1", "failed InvalidArgumentError"),
                ("invalid-1", "failed InvalidArgumentError"), ("unregistered-1", "failed UnregisteredError"),
                ("mismatch-1", "failed SenderIdMismatchError"), ("thirdparty-1", "failed ThirdPartyAuthError"),
                ("quota-1", "failed ResourceExhaustedError"), ("permission-1", "failed PermissionDeniedError"),
                ("unauthenticated-1", "failed UnauthenticatedError"), ("internal-1", "failed InternalError"),
                ("unavailable-1", "failed UnavailableError"), ("unspecified-1", "failed "),
                ("cut-1", "failed UnavailableError"), ("html-1", "failed "), ("half-1", "failed "),
            ]
            let said = try await Self.run(
                "fcm_firebase_admin.py", [sandbox.url, sandbox.serviceAccountPath, sandbox.caPath], table.map(\.0))
            for ((token, expected), words) in zip(table, said) {
                #expect(words.hasPrefix(expected), "\(token): \(words)")
            }
            #expect(sandbox.received().map(\.token) == ["phone", "news"])
            let first = try JSONParser.parse(try #require(sandbox.received().first).payload)
            #expect(first["message"]?["notification"]?["title"]?.string == "Grüße 🎉")
        }
    }

    @Test("aioapns sends, and maps each refusal", .enabled(if: PythonClient.has("aioapns")))
    func aioapns() async throws {
        try await ProviderSandbox.with { sandbox in
            func token(_ marker: String) -> String { marker + String(repeating: "0", count: 64 - marker.utf8.count) }
            let table = [
                ("ab", "sent 200 same"), ("dead01", "failed 400 BadDeviceToken"),
                ("dead02", "failed 400 DeviceTokenNotForTopic"), ("dead03", "failed 400 BadCollapseId"),
                ("dead0e", "failed 400 IdleTimeout"), ("dead31", "failed 403 ExpiredProviderToken"),
                ("dead32", "failed 403 InvalidProviderToken"), ("dead39", "failed 403 Forbidden"),
                ("dead10", "failed 410 Unregistered 1"), ("dead13", "failed 410 ExpiredToken 1577836800000"),
                ("dead14", "failed 413 PayloadTooLarge"), ("dead29", "failed 429 TooManyRequests"),
                ("dead2a", "failed 429 TooManyProviderTokenUpdates"), ("dead50", "failed 500 InternalServerError"),
                ("dead53", "failed 503 ServiceUnavailable"), ("deade301", "sent 200 same"),
                ("deade401", "sent 200 same"), ("cd", "sent 200 same"),
            ]
            let port = try #require(sandbox.url.split(separator: ":").last)
            let said = try await Self.run(
                "apns_aioapns.py",
                [
                    String(port), sandbox.caPath, sandbox.apnsKeyPath, sandbox.apnsKeyID, sandbox.apnsTeamID,
                    "org.example.app",
                ],
                table.map { token($0.0) })
            for ((marker, expected), words) in zip(table, said) {
                #expect(words.hasPrefix(expected), "\(marker): \(words)")
            }
            #expect(sandbox.received().count == 4)
        }
    }
}
