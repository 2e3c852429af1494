// Carillon · APNSTests.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation
import Sandbox
import Testing

@Suite("APNs", .sandbox, .timeLimit(.minutes(10)))
struct APNSTests {
    struct Case: Sendable, CustomTestStringConvertible {
        let reason: String
        let status: Int
        var headers: [String: String] = [:]
        var payload = #"{"aps":{"alert":"hi"}}"#
        var device = SandboxClient.device()

        var testDescription: String { "\(self.reason) \(self.headers)" }
    }

    private static let silent = #"{"aps":{"content-available":1}}"#

    @Test("accepts and lists a valid push and echoes its id")
    func accepts() async throws {
        let client = try #require(SandboxScope.client)
        let device = SandboxClient.device()
        let id = UUID().uuidString.lowercased()
        let reply = try await client.apns(
            device, headers: ["apns-id": id, "apns-priority": "10", "apns-push-type": "alert"])
        #expect(reply.status == 200)
        #expect(reply.headers["apns-id"] == id)
        #expect(reply.body.isEmpty)
        let received = client.sandbox.received().filter { $0.token == device }
        #expect(received.map(\.provider) == [.apns])
        #expect(received.first?.headers["apns-topic"] == "org.example.app")
        #expect(received.first?.headers["authorization"] == nil)
    }

    @Test(
        "answers a broken rule with APNs' reason",
        arguments: [
            Case(reason: "MissingProviderToken", status: 403, headers: ["authorization": ""]),
            Case(reason: "InvalidProviderToken", status: 403, headers: ["authorization": "bearer a.b.c"]),
            Case(reason: "MissingTopic", status: 400, headers: ["apns-topic": ""]),
            Case(reason: "BadTopic", status: 400, headers: ["apns-topic": "a/b"]),
            Case(reason: "TopicDisallowed", status: 400, headers: ["apns-push-type": "voip"]),
            Case(reason: "InvalidPushType", status: 400, headers: ["apns-push-type": "loud"]),
            Case(reason: "BadPriority", status: 400, headers: ["apns-priority": "7"]),
            Case(reason: "BadMessageId", status: 400, headers: ["apns-id": "1"]),
            Case(reason: "BadExpirationDate", status: 400, headers: ["apns-expiration": "1795221655682"]),
            Case(
                reason: "BadCollapseId", status: 400,
                headers: ["apns-collapse-id": String(repeating: "x", count: 65)]),
            Case(
                reason: "BadPriority", status: 400,
                headers: ["apns-push-type": "background", "apns-priority": "10"], payload: Self.silent),
            Case(reason: "InvalidPushType", status: 400, headers: ["apns-push-type": "background"]),
            Case(reason: "PayloadEmpty", status: 400, payload: ""),
            Case(reason: "PayloadEmpty", status: 400, payload: #"{"aps":"#),
            Case(
                reason: "PayloadTooLarge", status: 413,
                payload: #"{"aps":{},"x":"\#(String(repeating: "x", count: 4096))"}"#),
            Case(reason: "MissingDeviceToken", status: 400, device: ""),
            Case(reason: "BadDeviceToken", status: 400, device: "abc"),
            Case(reason: "BadDeviceToken", status: 400, device: String(repeating: "xy", count: 32)),
        ])
    func refuses(_ wrong: Case) async throws {
        let reply = try await #require(SandboxScope.client).apns(
            wrong.device, payload: wrong.payload, headers: wrong.headers)
        #expect(reply.value("reason") as? String == wrong.reason)
        #expect(reply.status == wrong.status)
    }

    @Test("rejects a repeated header, another method and another path")
    func refusesRequests() async throws {
        let client = try #require(SandboxScope.client)
        let device = SandboxClient.device()
        let twice = try await client.apns(device, "-H", "apns-priority: 5", "-H", "apns-priority: 10")
        #expect(twice.value("reason") as? String == "DuplicateHeaders")
        let put = try await client.apns(device, "-X", "PUT")
        #expect(put.status == 405)
        #expect(put.value("reason") as? String == "MethodNotAllowed")
        let elsewhere = try await client.apns(device, path: "/3/devices")
        #expect(elsewhere.status == 404)
        #expect(elsewhere.value("reason") as? String == "BadPath")
    }

    @Test("applies the rules of other push types")
    func kinds() async throws {
        let client = try #require(SandboxScope.client)
        let silent = try await client.apns(
            SandboxClient.device(), payload: Self.silent,
            headers: ["apns-push-type": "background", "apns-priority": "5"])
        #expect(silent.status == 200)
        let large = #"{"aps":{},"x":"\#(String(repeating: "x", count: 5000))"}"#
        let voip = try await client.apns(
            SandboxClient.device(), payload: large,
            headers: ["apns-push-type": "voip", "apns-topic": "org.example.app.voip"])
        #expect(voip.status == 200)
    }

    @Test("accepts a provider token of the right key and team for an hour")
    func providerToken() async throws {
        let client = try #require(SandboxScope.client)
        let tokens = [
            (try client.providerToken(at: Date(timeIntervalSinceNow: -3500)), nil),
            (try client.providerToken(at: Date(timeIntervalSinceNow: -3700)), "ExpiredProviderToken"),
            (try client.providerToken(at: Date(timeIntervalSinceNow: 3700)), "InvalidProviderToken"),
            (try client.providerToken(keyID: "OTHERKEY01"), "InvalidProviderToken"),
            (try client.providerToken(key: P256.Signing.PrivateKey()), "InvalidProviderToken"),
        ]
        for (token, reason) in tokens {
            let reply = try await client.apns(SandboxClient.device(), headers: ["authorization": "bearer \(token)"])
            #expect(reply.value("reason") as? String == reason)
        }
    }

    @Test("rejects a new token on a connection within 20 minutes")
    func tokenUpdates() async throws {
        let client = try #require(SandboxScope.client)
        let tokens = try [-3000.0, -1200, -600].map {
            try client.providerToken(at: Date(timeIntervalSinceNow: $0))
        }
        let events = try await client.frames(tokens.map { (SandboxClient.device(), $0) })
        let statuses = events.filter { $0 != .maximumStreams(1) && $0 != .maximumStreams(1000) }
        #expect(statuses == [.status(200), .status(200), .status(429)])
    }

    @Test("rejects the old token on a connection within 20 minutes of the new one")
    func oldToken() async throws {
        let client = try #require(SandboxScope.client)
        let old = try client.providerToken(at: Date(timeIntervalSinceNow: -3000))
        let new = try client.providerToken()
        let events = try await client.frames([old, new, old].map { (SandboxClient.device(), $0) })
        let statuses = events.filter { $0 != .maximumStreams(1) && $0 != .maximumStreams(1000) }
        #expect(statuses == [.status(200), .status(200), .status(429)])
    }

    @Test("allows one stream until the first valid token, then 1,000")
    func streams() async throws {
        let client = try #require(SandboxScope.client)
        let token = try client.providerToken()
        let events = try await client.frames([
            (SandboxClient.device(), nil), (SandboxClient.device(), token), (SandboxClient.device(), token),
        ])
        let expected: [FrameClient.Event] = [
            .maximumStreams(1), .status(403), .maximumStreams(1000), .status(200), .status(200),
        ]
        #expect(events == expected)
    }

    @Test("does not speak HTTP/1.1")
    func http2Only() async throws {
        let reply = try await #require(SandboxScope.client).apns(SandboxClient.device(), "--http1.1")
        #expect(reply.status == 505)
    }

    @Test(
        "answers a marked token with its fault",
        arguments: [
            ("01", 400, "BadDeviceToken"), ("02", 400, "DeviceTokenNotForTopic"), ("0e", 400, "IdleTimeout"),
            ("31", 403, "ExpiredProviderToken"), ("37", 403, "BadEnvironmentKeyInToken"), ("39", 403, "Forbidden"),
            ("12", 410, "ExpiredToken"), ("29", 429, "TooManyRequests"), ("2a", 429, "TooManyProviderTokenUpdates"),
            ("50", 500, "InternalServerError"), ("53", 503, "ServiceUnavailable"), ("54", 503, "Shutdown"),
            ("90", 400, "NewBadRequest"), ("93", 403, "NewForbidden"), ("9a", 410, "NewGone"),
        ])
    func faults(code: String, status: Int, reason: String) async throws {
        let reply = try await #require(SandboxScope.client).apns(SandboxClient.device("dead\(code)00"))
        #expect(reply.status == status)
        #expect(reply.value("reason") as? String == reason)
    }

    @Test("dates a 410 in milliseconds")
    func unregistered() async throws {
        let client = try #require(SandboxScope.client)
        let before = Date().timeIntervalSince1970 * 1000 - 1
        let now = try await client.apns(SandboxClient.device("dead1000"))
        #expect(now.status == 410)
        #expect(try #require(now.value("timestamp") as? Double) >= before)
        let longAgo = try await client.apns(SandboxClient.device("dead1100"))
        #expect(longAgo.value("timestamp") as? Int == 1_577_836_800_000)
    }

    @Test("ends a counted fault after its attempts")
    func countedFault() async throws {
        let client = try #require(SandboxScope.client)
        let device = SandboxClient.device("dead5302")
        var statuses: [Int] = []
        for _ in 1...3 { statuses.append(try await client.apns(device).status) }
        #expect(statuses == [503, 503, 200])
    }
}
