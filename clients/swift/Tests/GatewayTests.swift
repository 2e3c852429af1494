// Carillon · GatewayTests.swift
// SPDX-License-Identifier: Apache-2.0

import CarillonClient
import Foundation
import Synchronization
import Testing

@Suite("Calls of the gateway", .timeLimit(.minutes(5)))
struct GatewayTests {
    @Test("a refused token is replaced once, by one call of the provider for calls at the same time")
    func refusedToken() async throws {
        let calls = Mutex<[Bool]>([])
        let refused = answer(#"{"detail":"the token has expired"}"#, status: 401)
        let settings = answer(#"{"opted_out":false,"email_opted_out":false,"email_missing":false}"#)
        let http = FakeGateway(answers: [refused, refused, settings, settings])
        let gateway = try Self.gateway(http) { isRefused in
            calls.withLock { $0.append(isRefused) }
            return isRefused ? "fresh" : "old"
        }
        http.hold()
        async let first = gateway.settings()
        async let second = gateway.settings()
        try await eventually { http.requests.count == 2 }
        http.release()
        _ = try await (first, second)
        #expect(calls.withLock { $0 } == [false, false, true])
        #expect(http.requests.compactMap { $0.headers["Authorization"] }.suffix(2) == ["Bearer fresh", "Bearer fresh"])
    }

    @Test("errors have the status, the faults and no token")
    func problems() async throws {
        let problem = """
            {"type":"about:blank","title":"Unprocessable Content","status":422,"detail":"start must be a time",\
            "errors":[{"field":"start","reason":"must be a time such as 22:00"}]}
            """
        let http = FakeGateway(answers: [answer(problem, status: 422), answer("<html>", status: 502), answer("[]")])
        let gateway = try Self.gateway(http) { _ in "a-secret-token" }
        let error = await #expect(throws: GatewayError.self) {
            try await gateway.setQuietHours(QuietHours(start: "x", end: "07:00"))
        }
        guard case .refused(let refused) = error else { return }
        #expect(refused.status == 422 && refused.faults.map(\.field) == ["start"])
        #expect("\(refused)" == "the gateway answered 422: start: must be a time such as 22:00")
        await #expect { try await gateway.settings() } throws: { error in
            "\(error)" == "the gateway answered 502: no reason given"
        }
        await #expect { try await gateway.settings() } throws: { error in
            if case GatewayError.invalidAnswer = error { true } else { false }
        }
        await #expect { try await gateway.settings() } throws: { error in
            guard case GatewayError.unreachable = error else { return false }
            return !"\(error)".contains("secret")
        }
    }

    @Test("a token that no header can hold is not sent, nor shown")
    func invalidToken() async throws {
        let http = FakeGateway()
        let gateway = try Self.gateway(http) { _ in "a-secret\ntoken" }
        await #expect { try await gateway.settings() } throws: { !"\($0)".contains("secret") }
        let signedOut = try Self.gateway(http) { _ in nil }
        await #expect(throws: GatewayError.signedOut) { try await signedOut.settings() }
        #expect(http.requests.isEmpty)
    }

    @Test(
        "an address that is none of a gateway is refused",
        arguments: [
            "ftp://a", "https://", "https://u:p@a", "https://a?token=t", "https://a#b", "a", "https://a:0",
            "https://127.0.0.1:70000",
        ])
    func addresses(_ text: String) throws {
        let url = try #require(URL(string: text))
        #expect(throws: GatewayError.self) { try Self.gateway(FakeGateway(), url) { _ in "t" } }
    }

    @Test("ids are percent-encoded, below the path of the address")
    func paths() async throws {
        let http = FakeGateway(answers: [answer(#"{"changed":1,"unread":0,"version":1}"#)])
        let url = try #require(URL(string: "https://a.example/notify/"))
        _ = try await Self.gateway(http, url) { _ in "t" }.delete("a/b?c")
        #expect(http.requests[0].url.absoluteString == "https://a.example/notify/v1/notifications/a%2Fb%3Fc")
    }

    @Test("a device is registered with its token in hexadecimal digits, and removed once")
    func devices() async throws {
        let device = #"{"id":"d1","platform":"ios","active":true,"enabled":true,"device_id":"phone"}"#
        let http = FakeGateway(
            answers: [
                answer(device, status: 201), answer("", status: 204), answer(#"{"detail":"not found"}"#, status: 404),
            ])
        let gateway = try Self.gateway(http) { _ in "t" }
        let registered = try await gateway.registerDevice(
            token: Data([0, 171, 255]), DeviceRegistration(environment: .sandbox, deviceID: "phone"))
        #expect(registered.id == "d1")
        let body = #"{"device_id":"phone","environment":"sandbox","platform":"ios","token":"00abff"}"#
        #expect(http.requests[0].body == Data(body.utf8))
        try await gateway.unregisterDevice(deviceID: "phone")
        #expect(http.requests[1].method == "DELETE" && http.requests[1].url.path == "/v1/devices/current")
        #expect(http.requests[1].body == Data(#"{"device_id":"phone"}"#.utf8))
        try await gateway.unregisterDevice(deviceID: "phone", app: "default")
        #expect(http.requests[2].body == Data(#"{"app":"default","device_id":"phone"}"#.utf8))
    }

    @Test("a device with Firebase is registered with its token as it is")
    func firebaseDevice() async throws {
        let device = #"{"id":"d1","platform":"ios","active":true,"enabled":true}"#
        let http = FakeGateway(answers: [answer(device, status: 201)])
        _ = try await Self.gateway(http) { _ in "t" }
            .registerDevice(fcmToken: "a:B", DeviceRegistration(deviceID: "phone"))
        let body =
            #"{"device_id":"phone","environment":"production","platform":"ios","provider":"fcm","token":"a:B"}"#
        #expect(http.requests[0].body == Data(body.utf8))
    }

    @Test("preferences name the channels that change")
    func preferences() async throws {
        let http = FakeGateway(answers: [answer(#"{"types":[],"categories":[],"email_missing":false}"#)])
        _ = try await Self.gateway(http) { _ in "t" }
            .setPreferences([.type("news", [.push: false]), .category("reports", [.email: nil])])
        let body = #"{"categories":[{"category":"reports","email":null}],"types":[{"push":false,"type":"news"}]}"#
        #expect(http.requests[0].body == Data(body.utf8))
    }

    private static func gateway(
        _ fake: FakeGateway, _ url: URL? = nil, token: @escaping TokenProvider
    ) throws -> Gateway {
        try Gateway(
            try url ?? #require(URL(string: "https://notify.example.com")), http: fake, sockets: fake,
            tokenProvider: token)
    }
}
