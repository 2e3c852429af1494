// Carillon · SandboxClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Sandbox
import Support
import Testing

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
                ("quota-1", "failed QuotaExceededError"), ("permission-1", "failed PermissionDeniedError"),
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
