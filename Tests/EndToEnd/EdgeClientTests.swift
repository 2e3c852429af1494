// Carillon · EdgeClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// The scheduler app's client on `/rest/v1`.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct EdgeClientTests {
    private static let table = "/rest/v1/user_push_tokens"
    private static let apnsToken = String(repeating: "cd", count: 32)

    @Test("a user's tokens are upserted, selected, rotated and deleted, and hidden from others")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let ada = try await CompatibilityClient(gateway, user: "ada")
            let eve = try await CompatibilityClient(gateway, user: "eve")
            let representation = [(name: "Prefer", value: "resolution=merge-duplicates,return=representation")]
            let ios = #"{"user_id":"ada","platform":"ios","token":"\#(Self.apnsToken)"}"#
            let first = try await gateway.call(
                .post,
                "\(Self.table)?on_conflict=user_id,platform,token",
                token: ada.token,
                json: ios,
                headers: representation
            )
            #expect(first.status == 201)
            let id = try #require(first.body.texts("id").first)
            #expect(first.body.texts("user_id") == ["ada"])
            let again = try await gateway.call(.post, Self.table, token: ada.token, json: ios, headers: representation)
            #expect(again.body.texts("id") == [id])
            let android = #"[{"platform":"android","token":"f:1"},{"platform":"android","token":"f:2"}]"#
            #expect(try await ada.send(.post, Self.table, android).status == 201)
            #expect(try await eve.send(.post, Self.table, ios).status == 403)
            #expect(try await ada.get("\(Self.table)?select=*").body.array?.count == 3)
            #expect(try await eve.get(Self.table).body.array?.isEmpty == true)
            #expect(
                try await ada.get("\(Self.table)?token=eq.f:1&select=platform,token").body.texts("token") == ["f:1"])
            #expect(try await ada.get("\(Self.table)?token=like.f*").status == 400)
            let single = try await gateway.call(
                .get,
                "\(Self.table)?token=eq.f%3A1",
                token: ada.token,
                headers: [(name: "Accept", value: "application/vnd.pgrst.object+json")]
            )
            #expect(single.body["token"]?.string == "f:1")
            let missing = try await gateway.call(
                .get, "\(Self.table)?token=eq.none", token: ada.token,
                headers: [(name: "Accept", value: "application/vnd.pgrst.object+json")])
            #expect(missing.status == 406)
            #expect(missing.body["code"]?.string == "PGRST116")
            #expect(missing.body["details"]?.string?.hasPrefix("Results contain 0 rows") == true)

            // Columns for targeting, as the replaced table may have them.
            let about = #"{"platform":"android","token":"f:2","app_version":"2.1","locale":"de-CH"}"#
            #expect(try await ada.send(.post, Self.table, about).status == 201)
            let seen = #"{"platform":"android","token":"f:2"}"#
            #expect(try await ada.send(.post, Self.table, seen).status == 201)
            let columns = "\(Self.table)?token=eq.f:2&select=app_version,locale,created_at"
            let row = try await ada.get(columns).body.array?.first
            #expect(row?["app_version"]?.string == "2.1" && row?["locale"]?.string == "de-CH")
            #expect(
                try await ada.send(.patch, "\(Self.table)?token=eq.f:2", #"{"token":"f:2b","locale":null}"#).status
                    == 204)
            let after = try await ada.get(columns.replacing("f:2&", with: "f:2b&")).body.array?.first
            #expect(after?["locale"] == .null && after?["app_version"]?.string == "2.1")
            #expect(after?["created_at"] == row?["created_at"])
            #expect(try await ada.send(.patch, "\(Self.table)?token=eq.f:2b", #"{"token":"f:2"}"#).status == 204)

            // A rotated token keeps the row's id.
            let before = try await ada.get("\(Self.table)?token=eq.f:1").body.texts("id")
            #expect(try await eve.send(.patch, "\(Self.table)?token=eq.f:1", #"{"token":"stolen"}"#).status == 204)
            #expect(try await ada.send(.patch, "\(Self.table)?token=eq.f:1", #"{"token":"f:3"}"#).status == 204)
            #expect(try await ada.get("\(Self.table)?token=eq.f:3").body.texts("id") == before)
            let many = try await ada.send(.patch, "\(Self.table)?platform=eq.android", #"{"token":"f:9"}"#)
            #expect(many.status == 409)
            #expect(try await ada.send(.delete, Self.table).status == 400)
            #expect(try await eve.send(.delete, "\(Self.table)?token=eq.f:3").status == 204)
            #expect(try await ada.get(Self.table).body.array?.count == 3)
            #expect(try await ada.send(.delete, "\(Self.table)?token=eq.f:3").status == 204)
            let left = try await ada.get("\(Self.table)?select=token&order=token.asc").body
            #expect(left.texts("token") == [Self.apnsToken, "f:2"])
            let anonymous = try await gateway.call(.get, Self.table, token: nil)
            #expect(anonymous.status == 401)
            #expect(anonymous.body["code"]?.string == "PGRST301")

            try await stack.append([("user", "ada"), ("type", "scheduled_reminder"), ("title", "water the plants")])
            try await eventually("both tokens got it") { stack.pushed().count == 2 }
            #expect(Set(stack.pushed().keys) == [Self.apnsToken, "f:2"])
        }
    }

    @Test("delivered and opened events count once, for the owner, all or none")
    func events() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let ada = try await CompatibilityClient(gateway, user: "ada")
            let eve = try await CompatibilityClient(gateway, user: "eve")
            for title in ["one", "two"] {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
            }
            try await ada.waitForCount(2)
            let ids = try await ada.get("/v1/notifications").body["notifications"]?.texts("id") ?? []
            let (two, one) = (try #require(ids.first), try #require(ids.last))
            func event(_ id: String, _ name: String) -> String { #"{"notification_id":"\#(id)","event":"\#(name)"}"# }
            let path = "/rest/v1/notification_events"
            #expect(try await eve.send(.post, path, event(one, "opened")).status == 404)
            let unknown = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
            let mixed = "[\(event(one, "opened")),\(event(unknown, "opened"))]"
            #expect(try await ada.send(.post, path, mixed).status == 404)
            #expect(try await ada.send(.post, path, event(one, "seen")).status == 400)
            func opened() async throws -> [Bool] {
                let rows = try await stack.query(
                    "SELECT opened_at IS NOT NULL FROM carillon.notifications WHERE user_id = 'ada' ORDER BY id"
                )
                var opened: [Bool] = []
                for row in rows { opened.append(try row.bool(0)) }
                return opened
            }
            #expect(try await opened() == [false, false])
            #expect(try await ada.send(.post, path, event(two, "delivered")).status == 201)
            for _ in 0..<2 { #expect(try await ada.send(.post, path, event(one, "opened")).status == 201) }
            #expect(try await opened() == [true, false])
            #expect(try await stack.statuses(user: "ada") == ["one": "delivered", "two": "delivered"])
        }
    }
}
