// Carillon · CompatibilityTokenTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Device tokens on the compatibility paths: the limits of the REST API, with each system's
/// refusals.
@Suite(.serialized, .timeLimit(.minutes(10)))
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
                let token = try await Stack.token(user: "user-\(number)")
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
