// Carillon · InboxRestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import HTTP

/// The inbox over REST: entity tags, cached pages, changes and receipts.
@Suite(.timeLimit(.minutes(10)))
struct InboxRestTests {
    private static func fill(_ stack: Stack, _ gateway: Gateway, user: String, count: Int) async throws -> String {
        let token = Stack.token(user: user)
        for number in 0..<count {
            try await stack.append([("user", user), ("type", "invoice_created"), ("title", "n\(number)")])
        }
        try await eventually("all are listed") {
            try await gateway.call(.get, "/v1/notifications/unread-count", token: token).body["total"]?.integer
                == Int64(count)
        }
        return token
    }

    @Test("an unchanged inbox is answered with 304, a changed one with its changes")
    func tags() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let token = try await Self.fill(stack, gateway, user: "ada", count: 3)
            for path in ["", "?limit=2", "?since_version=1", "/unread-count"] {
                let path = "/v1/notifications\(path)"
                let first = try await gateway.call(.get, path, token: token)
                #expect(first.status == 200)
                let tag = try #require(first.header("etag"))
                for known in [tag, "W/\(tag)", "\"else\", \(tag)"] {
                    let again = try await gateway.call(.get, path, token: token, headers: [("if-none-match", known)])
                    #expect(again.status == 304, "\(path) \(known)")
                    #expect(again.response.body.isEmpty)
                    #expect(again.header("etag") == tag)
                }
            }
            let list = try await gateway.call(.get, "/v1/notifications", token: token)
            let tag = try #require(list.header("etag"))
            let id = try #require(list.body["notifications"]?.array?.first?["id"]?.string)
            _ = try await gateway.call(.post, "/v1/notifications/\(id)/read", token: token)
            let changed = try await gateway.call(
                .get, "/v1/notifications", token: token, headers: [("if-none-match", tag)])
            #expect(changed.status == 200)
            #expect(changed.header("etag") != tag)
            #expect(changed.body["unread"]?.integer == 2)

            // Two inboxes that began in one batch differ only by their users.
            try await stack.append([("users", #"["bob","eve"]"#), ("type", "invoice_created"), ("title", "both")])
            var copies: [String] = []
            for user in ["bob", "eve"] {
                let token = Stack.token(user: user)
                try await eventually("it is listed") {
                    try await gateway.call(.get, "/v1/notifications/unread-count", token: token).body["total"]?.integer
                        == 1
                }
                let page = try await gateway.call(
                    .get, "/v1/notifications", token: token, headers: copies.map { (name: "if-none-match", value: $0) })
                #expect(page.status == 200, "\(user)")
                copies.append(try #require(page.header("etag")))
            }
        }
    }

    @Test("a cached page is served only while it is current, whichever gateway changed the inbox")
    func keptPages() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(name: "first")
            let other = try await stack.startGateway(name: "second")
            _ = try await stack.startDispatcher()
            let token = try await Self.fill(stack, gateway, user: "ada", count: 1)
            func list(_ token: String) async throws -> Gateway.Answer {
                try await gateway.call(.get, "/v1/notifications", token: token)
            }
            func titles(_ token: String) async throws -> [String] {
                try await list(token).body["notifications"]?.array?.compactMap { $0["title"]?.string } ?? []
            }
            func answered(_ from: String) async throws -> Double? {
                let page = try await gateway.call(.get, "/metrics", token: nil).response.body
                return try MetricsText(String(decoding: page, as: UTF8.self))
                    .samples[#"carillon_inbox_pages{from="\#(from)"}"#]
            }
            // A change without a new version shows, because it changes the inbox's state.
            _ = try await list(token)
            try await stack.query("UPDATE carillon.notifications SET decision = 'capped_by_user' WHERE user_id = 'ada'")
            try await stack.query("UPDATE carillon.inboxes SET notes = notes + 1 WHERE user_id = 'ada'")
            let heldBack = try await list(token).body["notifications"]?.array?.first?["held_back"]
            #expect(heldBack?.string == "capped_by_user")
            #expect(try await answered("kept") ?? 0 == 0)
            let first = try await list(token)
            let again = try await list(token)
            #expect(first.response.body == again.response.body)
            #expect(first.header("etag") == again.header("etag"))
            #expect(again.header("cache-control") == "private, no-cache")
            #expect(again.type == "application/json")
            #expect(try await answered("read") == 1)
            #expect(try await answered("kept") == 2)

            // The inbox starts over and reaches the same version, unread count and total again.
            let service = Stack.token(user: "backend", scope: .service)
            #expect(try await other.call(.delete, "/v1/users/ada", token: service).status == 200)
            // Token times have whole seconds, so a token issued in the second of the erasure is
            // refused too.
            let fresh: String = try await eventualValue("a fresh token is good") {
                let made = Stack.token(user: "ada")
                return try await other.call(.get, "/v1/settings", token: made).status == 200 ? made : nil
            }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "after erasure")])
            try await eventually("the new one is stored") { try await stack.statuses(user: "ada").count == 1 }
            #expect(try await titles(fresh) == ["after erasure"])
            #expect(try await answered("changed") == 2)
            let erased = [("if-none-match", try #require(first.header("etag")))]
            let current = try await gateway.call(.get, "/v1/notifications", token: fresh, headers: erased)
            #expect(current.status == 200, "the erased inbox's tag does not fit")

            let id = try #require(try await list(fresh).body["notifications"]?.array?.first?["id"]?.string)
            #expect(try await other.call(.post, "/v1/notifications/\(id)/read", token: fresh).status == 200)
            #expect(try await list(fresh).body["notifications"]?.array?.first?["read_at"]?.string != nil)
            let unread = try await gateway.call(.get, "/v1/notifications?unread_only=true", token: fresh)
            #expect(unread.body["notifications"]?.array?.isEmpty == true)
            #expect(try await titles(fresh) == ["after erasure"])
        }
    }

    @Test("changes since a version are returned; a client too far behind or ahead gets a reset")
    func changes() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let token = try await Self.fill(stack, gateway, user: "ada", count: 3)
            let since = try await gateway.call(.get, "/v1/notifications?since_version=1", token: token)
            #expect(since.body["notifications"]?.array?.compactMap { $0["title"]?.string } == ["n1", "n2"])
            #expect(since.body["next_version"]?.integer == 3)
            #expect(since.body["reset"] == .bool(false))
            let ahead = try await gateway.call(.get, "/v1/notifications?since_version=9", token: token)
            #expect(ahead.body["reset"] == .bool(true))
            // A single change may touch more rows than one answer holds.
            _ = try await stack.query(
                """
                INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
                    channels, title, body, status, created_at)
                SELECT 'ada', gen_random_uuid(), 4, 'test', '', 'invoice_created', 'info', 'in_app', 'normal', 1, 'x', '',
                    'sent', now() FROM generate_series(1, 501)
                """
            )
            _ = try await stack.query("UPDATE carillon.inboxes SET version = 4 WHERE user_id = 'ada'")
            let behind = try await gateway.call(.get, "/v1/notifications?since_version=3", token: token)
            #expect(behind.body["reset"] == .bool(true))
            #expect(behind.body["notifications"]?.array?.isEmpty == true)
        }
    }

    @Test("reporting a notification as delivered confirms it and cancels the fallback push")
    func receipts() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let behaviour = TestSocket.Behaviour(answersPings: false)
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada", behaviour: behaviour)
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "Paid")])
            try await eventually("its proof is missing") { try await stack.proofDeadlines().count == 1 }
            try await stack.setProofDeadlines(to: Schedules.now() + .seconds(3_600))
            let frame = try await socket.first("notification")
            let id = try #require(frame["notification"]?["id"]?.string)
            let token = Stack.token(user: "ada")
            let eve = Stack.token(user: "eve")
            for call in ["delivered", "opened"] {
                #expect(try await gateway.call(.post, "/v1/notifications/\(id)/\(call)", token: eve).status == 404)
            }
            for _ in 0..<2 {
                #expect(try await gateway.call(.post, "/v1/notifications/\(id)/delivered", token: token).status == 204)
            }
            #expect(try await stack.statuses(user: "ada") == ["Paid": "delivered"])
            #expect(try await stack.proofDeadlines().isEmpty)
            #expect(try await gateway.call(.post, "/v1/notifications/\(id)/opened", token: token).status == 204)
            let opened = try await stack.query("SELECT opened_at FROM carillon.notifications").first?.timestamptz(0)
            #expect(try await gateway.call(.post, "/v1/notifications/\(id)/opened", token: token).status == 204)
            let again = try await stack.query("SELECT opened_at FROM carillon.notifications").first?.timestamptz(0)
            #expect(opened == again)
            #expect(stack.pushed().isEmpty)
        }
    }

    @Test("parameters and bodies out of range are refused by name")
    func faults() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let queries = [
                ("limit=0", "limit"), ("limit=101", "limit"), ("limit=", "limit"), ("limit=1&limit=2", "limit"),
                ("cursor=x", "cursor"), ("unread_only=yes", "unread_only"), ("since_version=-1", "since_version"),
                ("since_version=9223372036854775808", "since_version"), ("type=%00", "type"), ("colour=1", "colour"),
                ("type=%zz", "type"),
            ]
            for (query, field) in queries {
                let answer = try await gateway.call(.get, "/v1/notifications?\(query)", token: token)
                #expect(answer.status == 400, "\(query)")
                #expect(answer.type == "application/problem+json")
                #expect(answer.faults == [field], "\(query)")
            }
            let changes = [
                try await gateway.call(.delete, "/v1/notifications?org=acme", token: token),
                try await gateway.call(
                    .post, "/v1/notifications/read?org=acme", token: token, json: #"{"all":true}"#),
            ]
            for answer in changes { #expect(answer.status == 400 && answer.faults == ["org"]) }
            let bodies = [
                (#"{}"#, "ids"), (#"{"ids":[]}"#, "ids"), (#"{"ids":["x"]}"#, "ids"), (#"{"ids":5}"#, "ids"),
                (#"{"all":1}"#, "all"), (#"{"all":true,"ids":["00000000-0000-0000-0000-000000000000"]}"#, "ids"),
                (#"{"all":true,"colour":1}"#, "colour"),
            ]
            for (body, field) in bodies {
                let answer = try await gateway.call(.post, "/v1/notifications/read", token: token, json: body)
                #expect(answer.status == 422, "\(body)")
                #expect(answer.faults.contains(field), "\(body)")
            }
        }
    }
}
