// Carillon · CompatibilityIdentityTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// How clients of the replaced systems authenticate and label their bodies.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct CompatibilityIdentityTests {
    private static let page = "https://app.example.com"

    /// A call with exactly these headers.
    private static func call(
        _ method: TransferRequest.Method,
        _ path: String,
        on gateway: Gateway,
        headers: [(name: String, value: String)],
        body: String = ""
    ) async throws -> (status: Int, body: JSONValue) {
        let request = TransferRequest(
            method,
            url: "http://127.0.0.1:\(gateway.port)\(path)",
            headers: headers,
            body: Array(body.utf8),
            timeout: .seconds(240)
        )
        switch await gateway.http.perform(request) {
        case .answered(let response): return (response.status, (try? JSONParser.parse(response.body)) ?? .null)
        case .unanswered(let failure): throw FixtureError("\(method.rawValue) \(path): \(failure)")
        }
    }

    private static func registration(_ token: String) -> String {
        #"{"fcm_token":"\#(token)","platform":"android","device_id":"\#(token)"}"#
    }

    @Test("the configured cookie works on compatibility paths from allowed origins; changes from elsewhere get 403")
    func cookies() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(
                environment: ["AUTH_COOKIE": "session", "ALLOWED_ORIGINS": Self.page])
            let token = try await Stack.token(user: "ada")
            let cookie = (name: "cookie", value: "theme=dark; session=\(token)")
            let json = (name: "content-type", value: "application/json")
            let cases: [(device: String, headers: [(name: String, value: String)], status: Int)] = [
                ("t-page", [(name: "origin", value: Self.page)], 200),
                ("t-site", [(name: "sec-fetch-site", value: "same-origin")], 200),
                ("t-evil", [(name: "origin", value: "https://evil.example")], 403),
                ("t-cross", [(name: "sec-fetch-site", value: "cross-site")], 403),
                ("t-bare", [], 403),
            ]
            for (device, headers, status) in cases {
                let answer = try await Self.call(
                    .post, "/api/push/register", on: gateway, headers: [cookie, json] + headers,
                    body: Self.registration(device))
                #expect(answer.status == status, "\(device)")
            }
            // Reads need no origin; the list also shows that refused changes had no effect.
            let list = try await Self.call(.get, "/api/push/devices", on: gateway, headers: [cookie])
            #expect(list.status == 200)
            #expect(Set(list.body["devices"]?.texts("fcm_token") ?? []) == ["t-page", "t-site"])
            let foreign = try await Self.call(
                .get, "/api/push/devices", on: gateway,
                headers: [cookie, (name: "origin", value: "https://evil.example")])
            #expect(foreign.status == 403)
            let twice = try await Self.call(
                .get, "/api/push/devices", on: gateway,
                headers: [(name: "cookie", value: "session=\(token); session=\(token)")])
            #expect(twice.status == 401)
            let canonical = try await Self.call(
                .get, "/v1/devices", on: gateway, headers: [cookie, (name: "origin", value: Self.page)])
            #expect(canonical.status == 401)

            // Without a configured cookie, no cookie is accepted.
            let plain = try await stack.startGateway(name: "plain", environment: ["ALLOWED_ORIGINS": Self.page])
            let unnamed = try await Self.call(
                .get, "/api/push/devices", on: plain, headers: [cookie, (name: "origin", value: Self.page)])
            #expect(unnamed.status == 401)
        }
    }

    @Test("Authorization: Token works on compatibility paths only")
    func tokenScheme() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = try await Stack.token(user: "ada")
            for scheme in ["Token", "token", "Bearer"] {
                let header = (name: "authorization", value: "\(scheme) \(token)")
                let answer = try await Self.call(.get, "/api/push/apns/", on: gateway, headers: [header])
                #expect(answer.status == 200, "\(scheme)")
            }
            let header = (name: "authorization", value: "Token \(token)")
            #expect(try await Self.call(.get, "/v1/devices", on: gateway, headers: [header]).status == 401)
            let bad = (name: "authorization", value: "Token \(token)x")
            #expect(try await Self.call(.get, "/api/push/apns/", on: gateway, headers: [bad]).status == 401)
        }
    }

    @Test("JSON is accepted with any content type or none")
    func contentTypes() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = try await Stack.token(user: "ada")
            let bearer = (name: "authorization", value: "Bearer \(token)")
            let types: [String?] = [
                "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "application/octet-stream", nil,
            ]
            for (number, type) in types.enumerated() {
                let header = type.map { [(name: "content-type", value: $0)] } ?? []
                let answer = try await Self.call(
                    .post, "/api/push/register", on: gateway, headers: [bearer] + header,
                    body: Self.registration("t-\(number)"))
                #expect(answer.status == 200, "\(type ?? "none")")
                #expect(answer.body["device"]?["fcm_token"]?.string == "t-\(number)", "\(type ?? "none")")
            }
        }
    }
}
