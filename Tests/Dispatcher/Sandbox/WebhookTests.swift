// Carillon · WebhookTests.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation
import Sandbox
import Testing

@Suite("Webhooks", .sandbox, .timeLimit(.minutes(10)))
struct WebhookTests {
    private static let delivery = "7d975bb1-a3c9-8691-8573-27632b95831f"

    private static func body(_ token: String, without left: String? = nil, and more: String = "") -> String {
        let members = [
            ("delivery", #""\#(Self.delivery)""#), ("user", #""u1""#), ("device", #""d1""#), ("token", #""\#(token)""#),
            ("app", #""default""#), ("tag", #""t""#),
            (
                "notification",
                #"{"id":"n","type":"t","severity":"info","title":"","body":"","created_at":"2026-11-20T10:00:00Z"}"#
            ),
        ]
        return "{" + members.filter { $0.0 != left }.map { #""\#($0.0)":\#($0.1)"# }.joined(separator: ",") + more + "}"
    }

    private static func send(
        _ body: String, secret: String? = nil, age: Int = 0, headers changes: [String: String] = [:]
    ) async throws -> CurlReply {
        let sandbox = try #require(SandboxScope.client).sandbox
        let seconds = Int(Date().timeIntervalSince1970) - age
        let key = SymmetricKey(data: Data((secret ?? sandbox.webhookSecret).utf8))
        let code = HMAC<SHA256>.authenticationCode(for: Data("\(seconds).\(body)".utf8), using: key)
        var headers = [
            "content-type": "application/json", "carillon-delivery": Self.delivery,
            "carillon-signature": "t=\(seconds),v1=" + code.map { String(format: "%02x", $0) }.joined(),
        ]
        headers.merge(changes) { $1 }
        return try await CurlReply.get(
            ["--cacert", sandbox.caPath, "--data-binary", body]
                + headers.flatMap { ["-H", "\($0.key):" + ($0.value.isEmpty ? "" : " \($0.value)")] }
                + [sandbox.webhookURL])
    }

    @Test("accepts a signed, complete request and returns an id")
    func accepted() async throws {
        let sandbox = try #require(SandboxScope.client).sandbox
        let reply = try await Self.send(Self.body("room"))
        #expect(reply.status == 200)
        #expect((reply.value("id") as? String)?.count == 36)
        #expect(sandbox.received().contains { $0.provider == .webhook && $0.token == "room" })
    }

    @Test("rejects an unsigned or incomplete request")
    func refused() async throws {
        #expect(try await Self.send(Self.body("x"), secret: "another").status == 401)
        #expect(try await Self.send(Self.body("x"), age: 400).status == 401)
        #expect(try await Self.send(Self.body("x"), age: -400).status == 401)
        #expect(try await Self.send(Self.body("x"), headers: ["carillon-signature": "v1=00"]).status == 401)
        #expect(try await Self.send(Self.body("x"), headers: ["carillon-signature": ""]).status == 400)
        #expect(try await Self.send(Self.body("x"), headers: ["carillon-delivery": ""]).status == 400)
        #expect(try await Self.send(Self.body("x"), headers: ["content-type": "text/plain"]).status == 415)
        #expect(try await Self.send("nonsense").status == 400)
        for name in ["delivery", "user", "device", "token", "app", "tag", "notification"] {
            #expect(try await Self.send(Self.body("x", without: name)).status == 400, "\(name)")
        }
        #expect(try await Self.send(Self.body("x", and: #","retract":"n""#)).status == 400)
        #expect(try await Self.send(Self.body("x", without: "notification", and: #","retract":"n""#)).status == 200)
    }

    @Test(
        "lets tokens choose faults",
        arguments: [
            ("gone", 410), ("limited", 429), ("unavailable", 503), ("moved", 307), ("echo", 502), ("conflict", 409),
        ])
    func faults(word: String, status: Int) async throws {
        let reply = try await Self.send(Self.body("\(word)-1"))
        #expect(reply.status == status)
        #expect((reply.headers["retry-after"] == "7") == [429, 503].contains(status))
    }
}
