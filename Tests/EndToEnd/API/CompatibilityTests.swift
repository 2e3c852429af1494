// Carillon · CompatibilityTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients

/// How clients of the replaced systems authenticate and label their bodies.
@Suite(.timeLimit(.minutes(10)))
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
            timeout: longestWait
        )
        let response = try await gateway.http.answer(request, to: "\(method.rawValue) \(path)")
        return (response.status, (try? JSONParser.parse(response.body)) ?? .null)
    }

    private static func registration(_ token: String) -> String {
        #"{"fcm_token":"\#(token)","platform":"android","device_id":"\#(token)"}"#
    }

    @Test("the configured cookie works on compatibility paths from allowed origins; changes from elsewhere get 403")
    func cookies() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(
                environment: ["AUTH_COOKIE": "session", "ALLOWED_ORIGINS": Self.page])
            let token = Stack.token(user: "ada")
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
            let token = Stack.token(user: "ada")
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
            let token = Stack.token(user: "ada")
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

/// Calls whose connection ends before their body does.
@Suite(.timeLimit(.minutes(10)))
struct CutCallTests {
    @Test("a call whose body is cut changes nothing, and counts as refused")
    func cutBodies() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            for device in ["one", "two"] {
                let json = #"{"platform":"android","token":"\#(device)","device_id":"\#(device)"}"#
                #expect(try await gateway.call(.post, "/v1/devices", token: token, json: json).status == 201)
            }
            let form = "content-type: application/x-www-form-urlencoded\r\n"
            let cuts = [
                // Without a body, it would remove all tokens.
                ("unregister", "content-length: 40\r\n\r\n"),
                ("unregister", "transfer-encoding: chunked\r\n\r\n"),
                ("register", "\(form)content-length: 60\r\n\r\nplatform=android&fcm_token=thr"),
            ]
            let page = "http://127.0.0.1:\(gateway.port)/metrics"
            for (number, (call, rest)) in cuts.enumerated() {
                let socket = try await TestSocket.connect(port: gateway.port)
                let head = "POST /device-token/\(call) HTTP/1.1\r\nhost: x\r\nauthorization: Bearer \(token)\r\n"
                try await socket.send(raw: Array((head + rest).utf8))
                await socket.close()
                try await eventually("the gateway refuses it") {
                    try await MetricsText.page(page, stack).samples[#"carillon_calls_answered{class="4xx"}"#]
                        == Double(number + 1)
                }
            }
            let status = try await gateway.call(.get, "/device-token/status", token: token)
            #expect(status.body["token_count"]?.integer == 2)
            #expect(!gateway.process.errors().contains("request failed"))
        }
    }
}

/// Device tokens on the compatibility paths: the limits of the REST API, with each system's
/// refusals.
@Suite(.timeLimit(.minutes(10)))
struct CompatibilityTokenTests {
    /// A call that registers a token.
    private struct Path: Sendable {
        let method: TransferRequest.Method
        let path: String
        let field: String
        /// Other members of the body.
        var rest = ""
        var isHexadecimal = false
        let accepted: Int
        let refused: Int

        func body(_ token: String) -> String { #"{"\#(self.field)":"\#(token)"\#(self.rest)}"# }
    }

    private static let edge = "/rest/v1/user_push_tokens"

    private static let paths = [
        Path(
            method: .post, path: "/api/push/register", field: "fcm_token", rest: #","platform":"android""#,
            accepted: 200, refused: 422),
        Path(
            method: .post, path: "/api/v1/devices", field: "token", rest: #","platform":2"#, accepted: 200,
            refused: 400),
        Path(method: .post, path: "/device-token/register", field: "fcm_token", accepted: 200, refused: 422),
        Path(method: .post, path: "/api/push/gcm", field: "registration_id", accepted: 201, refused: 400),
        Path(
            method: .post, path: "/api/push/apns", field: "registration_id", isHexadecimal: true, accepted: 201,
            refused: 400),
        Path(
            method: .post, path: edge, field: "token", rest: #","platform":"android""#, accepted: 201, refused: 400),
        Path(
            method: .patch, path: edge + "?device_id=eq.phone", field: "token", accepted: 204, refused: 400),
    ]

    /// Random text, because an index entry of compressible text would be smaller.
    private static func text(_ count: Int, seed: Int, isHexadecimal: Bool) -> String {
        let alphabet = Array(
            (isHexadecimal ? "0123456789abcdef" : "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_").utf8)
        var state = UInt64(seed + 1) &* 0x9E37_79B9_7F4A_7C15
        let bytes = (0..<count).map { _ in
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return alphabet[Int(state % UInt64(alphabet.count))]
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    @Test("every path accepts a device token within its provider's limits and refuses others in its own style")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            for (number, path) in Self.paths.enumerated() {
                // A user of its own for each path, because devices per user are limited.
                let token = Stack.token(user: "user-\(number)")
                if path.method == .patch {
                    let phone = #"{"platform":"android","token":"phone","device_id":"phone"}"#
                    #expect(try await gateway.call(.post, Self.edge, token: token, json: phone).status == 201)
                }
                let name = "\(path.method.rawValue) \(path.path)"
                // APNs tokens have at most 100 bytes.
                let bound = path.isHexadecimal ? 200 : 2_048
                let longest = Self.text(bound, seed: number, isHexadecimal: path.isHexadecimal)
                // Longer than an index entry can be.
                let tooLong = Self.text(4_096, seed: number, isHexadecimal: path.isHexadecimal)
                for bad in [longest + "a", tooLong, "t-é"] {
                    let answer = try await gateway.call(path.method, path.path, token: token, json: path.body(bad))
                    #expect(answer.status == path.refused, "\(name)")
                    #expect(answer.body["message"]?.string?.contains(path.field) == true, "\(name)")
                    if path.path.hasPrefix("/api/v1/") {
                        #expect(answer.body["errors"]?[path.field]?.array?.isEmpty == false, "\(name)")
                    } else {
                        #expect(answer.faults == [path.field], "\(name)")
                    }
                    if path.path.hasPrefix(Self.edge) { #expect(answer.body["code"]?.string == "23514", "\(name)") }
                }
                let answer = try await gateway.call(path.method, path.path, token: token, json: path.body(longest))
                #expect(answer.status == path.accepted, "\(name)")
                let stored = try await stack.query("SELECT FROM carillon.devices WHERE token = $1", .text(longest))
                #expect(stored.count == 1, "\(name)")
            }
        }
    }
}
