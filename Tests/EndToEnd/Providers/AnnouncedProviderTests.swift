// Carillon · AnnouncedProviderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Storage
import Support
import Testing

/// A provider that only a dispatcher has built in, seen by gateways and commands.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct AnnouncedProviderTests {
    private static let known = "must be one of fcm, apns, webpush, webhook"

    private static func announce(_ stack: Stack) async throws {
        try await Live(stack.connection).providerRoster.announce([Provider(word: "pigeon")])
    }

    private static func register(_ gateway: Gateway, provider: String) async throws -> Gateway.Answer {
        try await gateway.call(
            .post, "/v1/devices", token: try await Stack.token(user: "ada"),
            json: #"{"platform":"android","provider":"\#(provider)","token":"loft-7","name":"loft"}"#)
    }

    private static func report(_ gateway: Gateway) async throws -> Gateway.Answer {
        try await gateway.call(
            .post, "/v1/client-reports", token: try await Stack.token(user: "ada"),
            json: #"{"kind":"registration","outcome":"failed","provider":"pigeon","reason":"rain"}"#)
    }

    private static func reason(_ answer: Gateway.Answer) -> String? {
        answer.body["errors"]?.array?.first?["reason"]?.string
    }

    private static func admin(_ gateway: Gateway, _ path: String) async throws -> Gateway.Answer {
        try await gateway.call(
            .get, "/v1/admin/\(path)", token: try await Stack.token(user: "boss", scope: .admin))
    }

    @Test("once announced, a provider accepts devices and shows up for admins and in metrics")
    func gateway() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            for provider in ["pigeon", "email", "Pigeon"] {
                let refused = try await Self.register(gateway, provider: provider)
                #expect(refused.status == 422)
                #expect(refused.faults == ["provider"])
                #expect(Self.reason(refused) == Self.known)
            }
            #expect(try await Self.reason(Self.report(gateway)) == Self.known)

            try await Self.announce(stack)
            let registered = try await eventualValue("it is known") {
                let answer = try await Self.register(gateway, provider: "pigeon")
                return answer.status == 201 ? answer : nil
            }
            #expect(registered.body["provider"]?.string == "pigeon")
            #expect(try await Self.report(gateway).status == 204)
            let mail = try await Self.register(gateway, provider: "email")
            #expect(Self.reason(mail) == Self.known + ", pigeon")

            let stream = Keyspace().deliveries(Provider(word: "pigeon"), .normal)
            try await stack.connection.send("XADD", .text(stream), "*", "d", "whatever")
            let providers = try await Self.admin(gateway, "providers").body["providers"]?.array ?? []
            let words = providers.compactMap { $0["provider"]?.string }
            #expect(words == ["fcm", "apns", "webpush", "email", "webhook", "pigeon"])
            #expect(providers.last?["waiting"]?.integer == 1)
            let streams = try await Self.admin(gateway, "streams").body["streams"]?.array ?? []
            #expect(streams.first { $0["name"]?.string == stream }?["length"]?.integer == 1)
            try await eventually("the metrics include its stream") {
                let page = TransferRequest(
                    .get, url: "http://127.0.0.1:\(gateway.port)/metrics", maximumResponseBytes: 1_048_576)
                guard case .answered(let response) = await stack.http.perform(page) else { return false }
                let samples = try MetricsText(String(decoding: response.body, as: UTF8.self)).samples
                return samples[#"carillon_stream_length{stream="pigeon",lane="normal"}"#] == 1
            }

            // A gateway that knows a provider keeps it when Redis forgets it.
            try await stack.connection.send("DEL", .text(Keyspace().knownProviders))
            #expect(try await Self.register(gateway, provider: "pigeon").status == 201)
        }
    }

    @Test("once announced, a provider can be imported for users, and lag lists its streams")
    func commands() async throws {
        try await Stack.with { stack in
            let path = stack.directory.path + "/users.jsonl"
            try #"{"user_id":"bob","devices":[{"platform":"ios","provider":"pigeon","token":"loft-8"}]}"#
                .write(toFile: path, atomically: true, encoding: .utf8)
            func imported(_ name: String, _ environment: [String: String] = [:]) async throws -> ChildProcess {
                try await stack.spawn("gateway", ["import", path], name: name, environment: environment)
            }
            let early = try await imported("early")
            #expect(try await early.waitForExit() == .code(65))
            #expect(early.errors().contains("line 1: devices[0].provider: \(Self.known)"))
            // The token is not checked as an APNs token either.
            #expect(!early.errors().contains("token"))

            try await Self.announce(stack)
            let nowhere = "redis://127.0.0.1:\(try FreePort.next())/0"
            let lonely = try await imported("lonely", ["REDIS_URL": nowhere])
            #expect(try await lonely.waitForExit() == .code(65))
            #expect(lonely.errors().contains("only fcm, apns, webpush, webhook are known"))
            let late = try await imported("late")
            #expect(try await late.waitForExit() == .code(0), "\(late.errors())")
            #expect(try await stack.query("SELECT 1 FROM carillon.devices WHERE provider = 'pigeon'").count == 1)

            let lag = try await stack.spawn("dispatcher", ["lag", "--json"], name: "lag")
            #expect(try await lag.waitForExit() == .code(0))
            let streams = try JSONParser.parse(Array(lag.output().utf8))["streams"]?.array ?? []
            #expect(streams.count { $0["provider"]?.string == "pigeon" } == Lane.allCases.count)
        }
    }
}
