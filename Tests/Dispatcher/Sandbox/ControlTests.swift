// Carillon · ControlTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Sandbox
import Testing

@Suite("Control calls", .timeLimit(.minutes(10)))
struct ControlTests {
    private func withSandbox(
        _ change: (inout SandboxConfiguration) -> Void = { _ in }, _ body: (SandboxClient) async throws -> Void
    ) async throws {
        var configuration = SandboxConfiguration()
        change(&configuration)
        try await ProviderSandbox.with(configuration: configuration) { sandbox in
            try await body(SandboxClient(sandbox))
        }
    }

    private func send(_ tokens: [String], _ client: SandboxClient) async throws {
        for token in tokens {
            #expect(try await client.fcm(#"{"message":{"token":"\#(token)","data":{"k":"\"é"}}}"#).status == 200)
        }
    }

    @Test("lists messages as JSON from a sequence number on, and clears them")
    func lists() async throws {
        try await self.withSandbox { client in
            #expect(try await client.control("/healthz").status == 200)
            try await self.send(["a", "b", "c"], client)
            let all = try await Self.list(client, "/received")
            #expect(all.map { $0["token"] as? String } == ["a", "b", "c"])
            let first = try #require(all.first)
            #expect(first["provider"] as? String == "fcm")
            let message = (first["payload"] as? [String: Any])?["message"] as? [String: Any]
            #expect(message?["data"] as? [String: String] == ["k": "\"é"])
            let at = try #require(first["at"] as? String)
            #expect((try? Date.ISO8601FormatStyle(includingFractionalSeconds: true).parse(at)) != nil)
            let rest = try await Self.list(client, "/received?since=1&limit=1")
            #expect(rest.map { $0["token"] as? String } == ["b"])

            #expect(try await client.control("/received", method: "DELETE").status == 204)
            #expect(try await Self.list(client, "/received").isEmpty)
            try await self.send(["d"], client)
            #expect(try await Self.list(client, "/received?since=3").map { $0["sequence"] as? Int } == [3])
        }
    }

    @Test("drops the oldest messages beyond the limit and counts them")
    func bounded() async throws {
        try await self.withSandbox({ $0.logLimit = 2 }) { client in
            try await self.send(["a", "b", "c", "d", "e"], client)
            #expect(client.sandbox.received().map(\.token) == ["d", "e"])
            let counts = try await client.control("/received/count")
            #expect(counts.value("accepted", "fcm") as? Int == 5)
            #expect(counts.value("kept") as? Int == 2)
            #expect(counts.value("dropped") as? Int == 3)
        }
    }

    @Test("keeps only counts without recording")
    func countsOnly() async throws {
        try await self.withSandbox({ $0.recordsMessages = false }) { client in
            try await self.send(["a"], client)
            _ = try await client.fcm(#"{"message":{"token":"unregistered-x"}}"#)
            #expect(client.sandbox.received().isEmpty)
            let counts = try await client.control("/received/count")
            #expect(counts.value("accepted", "fcm") as? Int == 1)
            #expect(counts.value("refused", "fcm UNREGISTERED") as? Int == 1)
        }
    }

    @Test("rejects revoked access tokens")
    func revokes() async throws {
        try await self.withSandbox { client in
            let revoked = try await client.control("/tokens", method: "DELETE")
            #expect(revoked.status == 204)
            let reply = try await client.fcm(#"{"message":{"token":"a"}}"#)
            #expect(reply.status == 401)
        }
    }

    @Test(
        "withholds access tokens on request and issues them again",
        arguments: [
            ("unavailable", 502), ("limited", 429), ("refused", 400),
        ])
    func withholds(fault: String, status: Int) async throws {
        try await self.withSandbox { client in
            let told = try await client.control("/tokens?fault=\(fault)", method: "PUT")
            #expect(told.status == 204)
            #expect(try await SandboxClient.token(client.sandbox).status == status)
            #expect(client.sandbox.accessTokenCounts.asked == 2)
            #expect(client.sandbox.accessTokenCounts.issued == 1)
            #expect(try await client.control("/tokens", method: "PUT").status == 204)
            #expect(try await SandboxClient.token(client.sandbox).status == 200)
            #expect(client.sandbox.accessTokenCounts.issued == 2)
            #expect(try await client.control("/tokens?fault=none", method: "PUT").status == 400)
        }
    }

    @Test("serves providers only over TLS")
    func separate() async throws {
        try await self.withSandbox { client in
            let reply = try await client.control("/token", method: "POST")
            #expect(reply.status == 404)
        }
    }

    @Test("reuses the keys of a directory and writes the new port into the service account")
    func keepsKeys() async throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: directory) }
        let (authority, keyID) = try await ProviderSandbox.with(directory: directory.path) { sandbox in
            (try String(contentsOfFile: sandbox.caPath, encoding: .utf8), sandbox.apnsKeyID)
        }
        try await ProviderSandbox.with(directory: directory.path) { sandbox in
            #expect(sandbox.apnsKeyID == keyID)
            let same = try String(contentsOfFile: sandbox.caPath, encoding: .utf8)
            #expect(same == authority)
            let token = try await SandboxClient.token(sandbox)
            #expect(token.status == 200)
        }
    }

    private static func list(_ client: SandboxClient, _ path: String) async throws -> [[String: Any]] {
        try await client.control(path).value() as? [[String: Any]] ?? []
    }
}
