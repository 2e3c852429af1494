// Carillon · WebFilesTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import HTTP

/// Files and statistics for the web pages, without a browser.
@Suite(.timeLimit(.minutes(10)))
struct WebFilesTests {
    @Test("pages and scripts need no token, have a version and security headers, and are cached")
    func files() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let types = [
                "/": "text/html", "/admin": "text/html", "/carillon.js": "text/javascript", "/sw.js": "text/javascript",
                "/web/inbox.js": "text/javascript", "/web/page.css": "text/css", "/web/icon.svg": "image/svg+xml",
                "/manifest.webmanifest": "application/manifest+json", "/web/badge.png": "image/png",
            ]
            for (path, type) in types {
                let answer = try await gateway.call(.get, path, token: nil)
                #expect(answer.status == 200, "\(path)")
                #expect(answer.type?.hasPrefix(type) == true, "\(path)")
                #expect(answer.header("x-content-type-options") == "nosniff", "\(path)")
                #expect(answer.header("referrer-policy") == "no-referrer", "\(path)")
                #expect(answer.header("cache-control") == "no-cache", "\(path)")
                let tag = try #require(answer.header("etag"), "\(path)")
                let again = try await gateway.call(
                    .get, path, token: nil, headers: [(name: "if-none-match", value: "W/\"other\", \(tag)")])
                #expect(again.status == 304, "\(path)")
                #expect(again.response.body.isEmpty, "\(path)")
            }
            for page in ["/", "/admin"] {
                let policy = try #require(
                    try await gateway.call(.get, page, token: nil).header("content-security-policy"))
                #expect(policy.contains("default-src 'none'"))
                #expect(policy.contains("script-src 'self';"))
                #expect(!policy.contains("unsafe"))
            }
            let page = try await gateway.call(.get, "/", token: nil).response.body
            #expect(
                String(decoding: page, as: UTF8.self).contains(#"<link rel="manifest" href="/manifest.webmanifest">"#))
            let icons = try await gateway.call(.get, "/manifest.webmanifest", token: nil).body["icons"]?.array ?? []
            #expect(icons.count == 3)
            for icon in icons {
                let answer = try await gateway.call(.get, try #require(icon["src"]?.string), token: nil)
                #expect(answer.status == 200)
                #expect(answer.type == icon["type"]?.string)
            }
            #expect(try await gateway.call(.get, "/web/no-such.js", token: nil).status == 404)
            #expect(try await gateway.call(.post, "/", token: nil, json: "{}").status == 405)
        }
    }

    /// The modules that the element loads at first for a user with notifications, in English and
    /// without Web Push.
    private static let element = [
        "carillon.js", "web/dom.js", "web/icons.js", "web/inbox.js", "web/inbox-client.js", "web/inbox-connection.js",
        "web/inbox-item.js", "web/inbox-list.js", "web/inbox-panel.js", "web/inbox-store.js", "web/inbox-styles.js",
        "web/marks.js", "web/texts.js", "web/time.js", "web/words.js",
    ]

    @Test("files are compressed for clients that take gzip, and the element needs at most 30 KB")
    func compression() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            var total = 0
            for path in Self.element {
                let plain = try await gateway.call(.get, "/\(path)", token: nil)
                #expect(plain.header("content-encoding") == nil, "\(path)")
                let packed = try await gateway.call(
                    .get, "/\(path)", token: nil, headers: [(name: "accept-encoding", value: "br;q=1.0, gzip;q=0.8")])
                #expect(packed.header("content-encoding") == "gzip", "\(path)")
                #expect(packed.header("vary") == "Accept-Encoding", "\(path)")
                #expect(packed.response.body.prefix(2) == [0x1F, 0x8B], "\(path)")
                total += packed.response.body.count
                let tag = try #require(packed.header("etag"), "\(path)")
                let again = try await gateway.call(
                    .get, "/\(path)", token: nil, headers: [(name: "if-none-match", value: tag)])
                #expect(again.status == 304, "\(path)")
                #expect(!String(decoding: plain.response.body, as: UTF8.self).contains("SPDX"), "\(path)")
            }
            #expect(total <= 30 * 1_024)
            for refused in ["identity", "gzip;q=0", "br, gzip; q=0.000", "*;q=0", "gzip;q=0, *"] {
                let plain = try await gateway.call(
                    .get, "/carillon.js", token: nil, headers: [(name: "accept-encoding", value: refused)])
                #expect(plain.header("content-encoding") == nil, "\(refused)")
            }
        }
    }

    @Test("operators see volumes by minute and type, failures, and clients' reports")
    func statistics() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = Stack.token(user: "root", scope: .admin)
            let ada = Stack.token(user: "ada")
            try await gateway.register(user: "ada", platform: "android", token: "good-phone")
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "one")])
            try await stack.append([
                ("users", #"["ada","deviceless"]"#), ("type", "payment_received"), ("title", "two"), ("id", "pair"),
            ])
            try await eventually("both were pushed") { stack.pushed()["good-phone"]?.sorted() == ["one", "two"] }
            try await eventually("the push is counted") {
                let body = try await gateway.call(.get, "/v1/admin/statistics", token: admin).body
                let channels = body["channels"]?.array ?? []
                func count(_ channel: String, _ outcome: String) -> Int64 {
                    let outcomes = channels.first { $0["channel"]?.string == channel }?["outcomes"]?.array ?? []
                    let counts = outcomes.first { $0["outcome"]?.string == outcome }?["counts"]?.array ?? []
                    return counts.compactMap(\.integer).reduce(0, +)
                }
                let type = body["types"]?.array?.first { $0["type"]?.string == "payment_received" }
                let reach = ["stored", "no_device", "accepted", "failed"].map { type?[$0]?.integer }
                guard reach == [3, 1, 2, 0], body["complete"]?.bool == true else { return false }
                return count("fcm", "accepted") == 2 && count("in_app", "waiting") == 3
            }
            let service = Stack.token(user: "app", scope: .service)
            let job = try await gateway.call(.get, "/v1/jobs/pair", token: service).body
            #expect(job["recipients"]?["sent"]?.integer == 2)
            #expect(
                ["stored", "no_device", "accepted", "failed", "delivered", "opened", "read"]
                    .map { job["reach"]?[$0]?.integer } == [2, 1, 1, 0, 0, 0, 0])
            try await stack.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome, reason)
                VALUES (now(), 'ada', 'fcm', 'push', 3, 'failed', 'UNREGISTERED'),
                    (now(), 'ada', 'apns', 'push', 1, 'failed', 'BadDeviceToken')
                """)
            for (query, reasons) in [
                ("limit=2", ["BadDeviceToken", "UNREGISTERED"]), ("reason=UNREG", ["UNREGISTERED"]),
                ("provider=apns", ["BadDeviceToken"]), ("provider=apns&reason=UNREG", []),
            ] {
                let found = try await gateway.call(.get, "/v1/admin/failures?\(query)", token: admin)
                let names = found.body["failures"]?.array?.compactMap { $0["reason"]?.string }
                #expect(names?.sorted() == reasons, "\(query)")
                #expect(found.body["next_cursor"] == .null, "\(query)")
            }
            let first = try await gateway.call(.get, "/v1/admin/failures?limit=1", token: admin)
            let cursor = try #require(first.body["next_cursor"]?.string)
            let second = try await gateway.call(.get, "/v1/admin/failures?limit=1&cursor=\(cursor)", token: admin)
            let both = [first, second].map { $0.body["failures"]?.array?.first?["reason"]?.string }
            #expect(Set(both) == ["BadDeviceToken", "UNREGISTERED"])
            #expect(second.body["next_cursor"] == .null)
            let wrongCursor = try await gateway.call(.get, "/v1/admin/failures?cursor=x", token: admin)
            #expect(wrongCursor.status == 400)

            for _ in 0..<2 {
                let denied = #"{"kind":"permission","outcome":"denied"}"#
                #expect(try await gateway.call(.post, "/v1/client-reports", token: ada, json: denied).status == 204)
            }
            let failed = #"{"kind":"registration","outcome":"failed","provider":"fcm","reason":"AbortError"}"#
            #expect(try await gateway.call(.post, "/v1/client-reports", token: ada, json: failed).status == 204)
            let reports = try await gateway.call(.get, "/v1/admin/client-reports", token: admin)
            #expect(reports.body["counts"]?.array?.compactMap { $0["count"]?.integer } == [1, 1])
            #expect(reports.body["failed"]?.array?.map { $0["reason"]?.string } == ["AbortError"])

            let wrong = #"{"kind":"registration","outcome":"granted"}"#
            let refused = try await gateway.call(.post, "/v1/client-reports", token: ada, json: wrong)
            #expect(refused.status == 422)
            #expect(refused.faults == ["outcome"])
            for number in 0..<18 {
                let more = #"{"kind":"registration","outcome":"failed","reason":"\#(number)"}"#
                #expect(try await gateway.call(.post, "/v1/client-reports", token: ada, json: more).status == 204)
            }
            let tooMany = try await gateway.call(.post, "/v1/client-reports", token: ada, json: failed)
            #expect(tooMany.status == 429)
            #expect(tooMany.header("retry-after") == "3600")
            for path in ["statistics", "failures", "client-reports"] {
                #expect(try await gateway.call(.get, "/v1/admin/\(path)", token: ada).status == 403)
            }
        }
    }
}
