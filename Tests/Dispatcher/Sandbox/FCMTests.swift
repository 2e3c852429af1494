// Carillon · FCMTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Sandbox
import Testing

@Suite("FCM", .sandbox, .timeLimit(.minutes(10)))
struct FCMTests {
    @Test("accepts and lists a valid message", arguments: ["--http2", "--http1.1"])
    func accepts(version: String) async throws {
        let client = try #require(SandboxScope.client)
        let token = SandboxClient.device()
        let body = #"{"message":{"token":"\#(token)","data":{"k":"v"},"android":{"priority":"high","ttl":"3.5s"}}}"#
        let reply = try await client.fcm(body, version)
        #expect(reply.status == 200)
        let name = try #require(reply.value("name") as? String)
        #expect(name.hasPrefix("projects/\(client.sandbox.projectID)/messages/0:"))
        let received = client.sandbox.received().filter { $0.token == token }
        #expect(received.map(\.provider) == [.fcm])
        #expect(received.first.map { String(decoding: $0.payload, as: UTF8.self) } == body)
        #expect(received.first?.headers["content-type"] == "application/json")
        #expect(received.first?.headers["authorization"] == nil)
    }

    @Test("accepts an access token only for its own project and lists that project")
    func projects() async throws {
        var configuration = SandboxConfiguration()
        configuration.otherProject = "other-project"
        try await ProviderSandbox.with(configuration: configuration) { sandbox in
            let client = try await SandboxClient(sandbox)
            let reply = try await SandboxClient.token(sandbox, account: sandbox.otherServiceAccountPath)
            let bearer = try #require(reply.value("access_token") as? String)
            let body = #"{"message":{"token":"\#(SandboxClient.device())"}}"#
            #expect(try await client.fcm(body, project: "other-project", bearer: bearer).status == 200)
            #expect(try await client.fcm(body).status == 200)
            #expect(try await client.fcm(body, project: "other-project").status == 403)
            #expect(try await client.fcm(body, bearer: bearer).status == 403)
            #expect(sandbox.received().map(\.project) == ["other-project", sandbox.projectID])
        }
    }

    @Test("checks a dry run without listing it")
    func dryRun() async throws {
        let client = try #require(SandboxScope.client)
        let token = SandboxClient.device()
        let reply = try await client.fcm(#"{"validate_only":true,"message":{"token":"\#(token)"}}"#)
        #expect(reply.status == 200)
        #expect(!client.sandbox.received().contains { $0.token == token })
    }

    @Test(
        "rejects a malformed message by field, without FcmError",
        arguments: [
            (#"{"message":{"token":"a","extra":1}}"#, "message"),
            (#"{"message":{"token":"a","android":{"notification":{"titel":"x"}}}}"#, "message.android.notification"),
            (#"{"message":{"token":"a","data":{"k":12}}}"#, "message.data[0].value"),
            (#"{"message":{"token":"a","data":{"k":null}}}"#, "message.data[0].value"),
            (#"{"message":{"token":"a","topic":"b"}}"#, "message"),
            (#"{"message":{"token":"a","android":{"ttl":"3600"}}}"#, "message.android.ttl"),
            (#"{"message":{"token":"a","android":{"priority":"urgent"}}}"#, "message.android.priority"),
            (#"{"message":{"token":5}}"#, "message.token"),
        ])
    func refusesUnreadable(body: String, field: String) async throws {
        let reply = try await #require(SandboxScope.client).fcm(body)
        #expect(reply.status == 400)
        #expect(reply.value("error", "status") as? String == "INVALID_ARGUMENT")
        #expect(Self.violations(reply) == [field])
        #expect(Self.errorCode(reply) == nil)
    }

    @Test(
        "rejects a value that FCM does not allow, with FcmError",
        arguments: [
            (#"{"message":{"data":{}}}"#, "message.token"),
            (#"{"message":{"token":"a","data":{"from":"x"}}}"#, "message.data[0].key"),
            (#"{"message":{"token":"a","data":{"a":"","google.x":"x"}}}"#, "message.data[1].key"),
            (#"{"message":{"token":"a","android":{"data":{"gcm.x":"x"}}}}"#, "message.android.data[0].key"),
            (#"{"message":{"token":"a","android":{"ttl":"2419201s"}}}"#, "message.android.ttl"),
            (#"{"message":{"topic":"/topics/news"}}"#, "message.topic"),
            (#"{"message":{"condition":"'a' in topics &&"}}"#, "message.condition"),
            (
                #"{"message":{"token":"a","apns":{"headers":{"apns-priority":"7"}}}}"#,
                "message.apns.headers[apns-priority]"
            ),
            (#"{"message":{"token":"a b"}}"#, nil),
        ])
    func refusesInvalid(body: String, field: String?) async throws {
        let reply = try await #require(SandboxScope.client).fcm(body)
        #expect(reply.status == 400)
        #expect(Self.errorCode(reply) == "INVALID_ARGUMENT")
        #expect(Self.violations(reply) == (field.map { [$0] } ?? []))
    }

    @Test("limits messages to 4,096 bytes, and to 2,048 for topics", arguments: [("token", 4096), ("topic", 2048)])
    func limitsSize(target: String, limit: Int) async throws {
        let client = try #require(SandboxScope.client)
        for (size, status) in [(limit, 200), (limit + 1, 400)] {
            let value = String(repeating: "x", count: size - 1)
            let reply = try await client.fcm(#"{"message":{"\#(target)":"size","data":{"k":"\#(value)"}}}"#)
            #expect(reply.status == status, "\(size) bytes")
        }
    }

    @Test("accepts a condition with up to five topics")
    func condition() async throws {
        let client = try #require(SandboxScope.client)
        let five = "'a' in topics && ('b' in topics || !('c' in topics)) && 'd' in topics && 'e' in topics"
        #expect(try await client.fcm(#"{"message":{"condition":"\#(five)"}}"#).status == 200)
        #expect(try await client.fcm(#"{"message":{"condition":"\#(five) && 'f' in topics"}}"#).status == 400)
    }

    @Test("rejects a wrong credential or project without FcmError")
    func authorizes() async throws {
        let client = try #require(SandboxScope.client)
        let unknown = try await client.fcm(#"{"message":{"token":"a"}}"#, bearer: "ya29.unknown")
        #expect(unknown.status == 401)
        #expect(unknown.value("error", "status") as? String == "UNAUTHENTICATED")
        #expect(Self.errorCode(unknown) == nil)
        let elsewhere = try await client.fcm(#"{"message":{"token":"a"}}"#, project: "another")
        #expect(elsewhere.status == 403)
        #expect(Self.errorCode(elsewhere) == nil)
    }

    @Test(
        "answers a marked token with its fault",
        arguments: [
            ("bad", 400, "INVALID_ARGUMENT"), ("unauthenticated", 401, nil),
            ("thirdparty", 401, "THIRD_PARTY_AUTH_ERROR"), ("permission", 403, nil),
            ("mismatch", 403, "SENDER_ID_MISMATCH"), ("unregistered", 404, "UNREGISTERED"),
            ("quota", 429, nil), ("internal", 500, "INTERNAL"), ("unavailable", 503, "UNAVAILABLE"),
            ("topicquota", 429, "QUOTA_EXCEEDED"), ("new403", 403, "NEW_REASON"), ("new429", 429, "NEW_REASON"),
        ])
    func faults(marker: String, status: Int, code: String?) async throws {
        let reply = try await #require(SandboxScope.client).fcm(#"{"message":{"token":"\#(marker)-table"}}"#)
        #expect(reply.status == status)
        #expect(Self.errorCode(reply) == code)
        #expect(reply.headers["retry-after"] == (status == 429 || status == 503 ? "7" : nil))
    }

    @Test("ends a counted fault after its attempts", arguments: [("unavailable-once-", 1), ("quota-3x-", 3)])
    func countedFaults(marker: String, failures: Int) async throws {
        let client = try #require(SandboxScope.client)
        let token = marker + SandboxClient.device()
        for attempt in 1...failures + 1 {
            let reply = try await client.fcm(#"{"message":{"token":"\#(token)"}}"#)
            #expect((reply.status == 200) == (attempt > failures), "try \(attempt)")
        }
        #expect(client.sandbox.faultAttempts()[token] == failures + 1)
        #expect(client.sandbox.received().filter { $0.token == token }.count == 1)
    }

    private static func details(_ reply: CurlReply) -> [[String: Any]] {
        reply.value("error", "details") as? [[String: Any]] ?? []
    }

    private static func errorCode(_ reply: CurlReply) -> String? {
        Self.details(reply).compactMap { $0["errorCode"] as? String }.first
    }

    private static func violations(_ reply: CurlReply) -> [String] {
        Self.details(reply).flatMap { $0["fieldViolations"] as? [[String: String]] ?? [] }.compactMap { $0["field"] }
    }
}
