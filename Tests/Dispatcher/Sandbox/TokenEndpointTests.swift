// Carillon · TokenEndpointTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Sandbox
import Testing

@Suite("Google's token endpoint", .sandbox, .timeLimit(.minutes(10)))
struct TokenEndpointTests {
    struct Case: Sendable, CustomTestStringConvertible {
        let claim: String
        let value: String
        let error: String

        var testDescription: String { "\(self.claim) \(self.value)" }
    }

    @Test("exchanges a signed assertion for a bearer token", arguments: ["", "https://oauth2.googleapis.com/token"])
    func grants(audience: String) async throws {
        let client = try #require(SandboxScope.client)
        let reply = try await SandboxClient.token(
            client.sandbox, changing: audience.isEmpty ? [:] : ["aud": audience])
        #expect(reply.status == 200)
        #expect(reply.value("token_type") as? String == "Bearer")
        #expect(reply.value("expires_in") as? Int == 3599)
    }

    @Test(
        "rejects a wrong claim",
        arguments: [
            Case(claim: "iss", value: "nobody@example.org", error: "invalid_grant"),
            Case(claim: "aud", value: "https://example.org/token", error: "invalid_grant"),
            Case(claim: "scope", value: "https://www.googleapis.com/auth/drive", error: "invalid_scope"),
        ])
    func refuses(_ wrong: Case) async throws {
        let client = try #require(SandboxScope.client)
        let reply = try await SandboxClient.token(client.sandbox, changing: [wrong.claim: wrong.value])
        #expect(reply.status == 400)
        #expect(reply.value("error") as? String == wrong.error)
    }

    @Test("accepts a current assertion of at most an hour", arguments: [(0, 3601), (-4000, -400), (900, 4000)])
    func refusesTimes(issued: Int, expiry: Int) async throws {
        let client = try #require(SandboxScope.client)
        let now = Int(Date().timeIntervalSince1970)
        let reply = try await SandboxClient.token(
            client.sandbox, changing: ["iat": now + issued, "exp": now + expiry])
        #expect(reply.status == 400)
        #expect(reply.value("error") as? String == "invalid_grant")
    }

    @Test("rejects an unknown key")
    func refusesKey() async throws {
        let client = try #require(SandboxScope.client)
        let reply = try await SandboxClient.token(client.sandbox, keyID: "0000")
        #expect(reply.value("error_description") as? String == "Invalid JWT Signature.")
    }

    @Test("rejects another grant type")
    func refusesGrant() async throws {
        let client = try #require(SandboxScope.client)
        let reply = try await CurlReply.get([
            "--cacert", client.sandbox.caPath, client.sandbox.url + "/token", "-d", "grant_type=password",
        ])
        #expect(reply.status == 400)
        #expect(reply.value("error") as? String == "unsupported_grant_type")
    }
}
