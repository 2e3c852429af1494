// Carillon · UnsubscribeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients

/// One-click unsubscribe, by mail programs and by people.
@Suite(.timeLimit(.minutes(10)))
struct UnsubscribeTests {
    private static let links = UnsubscribeLinks(secret: Stack.secret)
    private static let form = "application/x-www-form-urlencoded"

    private static func post(
        _ stack: Stack,
        _ gateway: Gateway,
        token: String,
        body: String,
        type: String = Self.form
    ) async throws -> TransferResponse {
        let request = TransferRequest(
            .post,
            url: "http://127.0.0.1:\(gateway.port)/v1/unsubscribe?token=\(token)",
            headers: [("content-type", type)],
            body: Array(body.utf8),
            timeout: longestWait
        )
        return try await stack.http.answer(request)
    }

    @Test("viewing changes nothing; one click stops that type's e-mail only and may be repeated")
    func oneType() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = Stack.token(user: "ada")
            let preference = #"{"types":[{"type":"invoice_created","push":true,"email":true}]}"#
            #expect(try await gateway.call(.put, "/v1/preferences", token: ada, json: preference).status == 200)
            let token = Self.links.token(for: .init(user: "ada", type: "invoice_created"))
            let page = try await gateway.call(.get, "/v1/unsubscribe?token=\(token)", token: nil)
            #expect(page.status == 200)
            #expect(page.type == "text/html; charset=utf-8")
            let policy = try #require(page.header("content-security-policy"))
            #expect(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"))
            #expect(page.header("referrer-policy") == "no-referrer")
            #expect(page.header("x-content-type-options") == "nosniff")
            let html = String(decoding: page.response.body, as: UTF8.self)
            #expect(html.contains("invoice_created") && html.contains("“Invoice created”"))
            #expect(html.contains("href=\"../web/page.css\"") && policy.contains("style-src 'self';"))
            // A mail relay adds parameters for its statistics.
            let german = try await gateway.call(
                .get, "/v1/unsubscribe?utm_source=mail&token=\(token)", token: nil,
                headers: [(name: "accept-language", value: "xx, de-CH;q=0.9, en;q=0.8")])
            #expect(german.status == 200)
            #expect(String(decoding: german.response.body, as: UTF8.self).contains("<html lang=\"de\" dir=\"ltr\">"))
            let before = try await stack.query("SELECT email FROM carillon.preferences").first?.bool(0)
            #expect(before == true)
            for query in [token, "\(token)&utm_source=mail"] {
                let click = try await Self.post(stack, gateway, token: query, body: "List-Unsubscribe=One-Click")
                #expect(click.status == 200)
            }
            let row = try #require(try await stack.query("SELECT email, push FROM carillon.preferences").first)
            #expect(try row.bool(0) == false)
            #expect(try row.bool(1))
            let settings = try await gateway.call(.get, "/v1/settings", token: ada)
            #expect(settings.body["email_opted_out"] == .bool(false))
            let all = try await Self.post(stack, gateway, token: token, body: "scope=all&List-Unsubscribe=One-Click")
            #expect(all.status == 200)
            let after = try await gateway.call(.get, "/v1/settings", token: ada)
            #expect(after.body["email_opted_out"] == .bool(true))
        }
    }

    @Test("a link for all e-mail accepts both form encodings and stores nothing for an erased user")
    func all() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = Stack.token(user: "ada")
            #expect(try await gateway.call(.put, "/v1/settings", token: ada, json: #"{"locale":"de"}"#).status == 200)
            let multipart =
                "--x\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--x--\r\n"
            for user in ["ada", "gone"] {
                let token = Self.links.token(for: .init(user: user, type: nil))
                let type = "multipart/form-data; boundary=x"
                let click = try await Self.post(stack, gateway, token: token, body: multipart, type: type)
                #expect(click.status == 200)
            }
            let settings = try await gateway.call(.get, "/v1/settings", token: ada)
            #expect(settings.body["email_opted_out"] == .bool(true))
            #expect(settings.body["locale"]?.string == "de")
            #expect(try await stack.query("SELECT FROM carillon.user_settings").count == 1)
        }
    }

    @Test("clicks count as calls of the link's user; too many get 429 with Retry-After")
    func limit() async throws {
        try await Stack.with { stack in
            // At most 6 calls at once.
            let gateway = try await stack.startGateway(environment: ["USER_CALLS_PER_SECOND": "1"])
            func click(_ user: String) async throws -> TransferResponse {
                let token = Self.links.token(for: .init(user: user, type: "invoice_created"))
                return try await Self.post(stack, gateway, token: token, body: "List-Unsubscribe=One-Click")
            }
            var clicks = 0
            try await eventually("it is too much") {
                clicks += 1
                let answer = try await click("busy")
                guard answer.status == 429 else { return false }
                let seconds = answer.header("retry-after").flatMap { Int($0) }
                return (1...12).contains(seconds ?? 0)
            }
            #expect(clicks > 6)
            let calm = try await click("calm")
            #expect(calm.status == 200)
        }
    }

    @Test("a foreign token gets a page in the user's language; a click with it, or a body without one, is refused")
    func faults() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let good = Self.links.token(for: .init(user: "ada", type: nil))
            for query in ["", "?token=", "?token=x", "?token=\(good)&token=\(good)", "?token=\(good.dropLast(4))"] {
                let page = try await gateway.call(.get, "/v1/unsubscribe\(query)", token: nil)
                #expect(page.status == 400, "\(query)")
                #expect(page.type == "text/html; charset=utf-8")
            }
            let german = try await gateway.call(
                .get, "/v1/unsubscribe?token=x", token: nil, headers: [(name: "accept-language", value: "de-CH")])
            let html = String(decoding: german.response.body, as: UTF8.self)
            #expect(html.contains("<html lang=\"de\"") && html.contains("Dieser Link gilt nicht mehr."))
            #expect(german.header("referrer-policy") == "no-referrer")
            for body in ["", "List-Unsubscribe=Two-Clicks", "{}"] {
                let answer = try await Self.post(stack, gateway, token: good, body: body)
                #expect(answer.status == 422, "\(body)")
            }
            let long = String(repeating: "x", count: 5_000)
            #expect(try await Self.post(stack, gateway, token: good, body: long).status == 413)
            let click = try await Self.post(stack, gateway, token: "x", body: "List-Unsubscribe=One-Click")
            #expect(click.status == 400)
            #expect(click.header("content-type") == "application/problem+json")
        }
    }
}
