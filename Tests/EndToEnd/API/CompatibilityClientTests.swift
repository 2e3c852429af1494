// Carillon · CompatibilityClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients
@testable import HTTP

/// The accounting app's client on `/api/notifications` and `/api/push`.
@Suite(.timeLimit(.minutes(10)))
struct HybridClientTests {
    @Test("the inbox pages, counts, marks read, reads in bulk and deletes, and hides other users' notifications")
    func inbox() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            let eve = CompatibilityClient(gateway, user: "eve")
            for number in 0..<5 {
                try await stack.append([
                    ("user", "ada"), ("type", "payment_received"), ("title", "n\(number)"), ("org", "o1"),
                    ("data", #"{"invoice":"i9"}"#),
                ])
            }
            try await ada.waitForCount(5)
            let page = try await ada.get("/api/notifications?offset=1&limit=2").body
            #expect(page["notifications"]?.texts("title") == ["n3", "n2"])
            #expect(page["total"]?.integer == 5)
            #expect(page["has_more"]?.bool == true)
            let first = try #require(page["notifications"]?.array?.first)
            #expect(first["severity"]?.string == "alert")
            #expect(first["delivery"]?.string == "push")
            #expect(first["org_id"]?.string == "o1")
            #expect(first["data"]?["invoice"]?.string == "i9")
            #expect(first["read_at"] == .null)
            #expect(try await ada.get("/api/notifications?offset=10001").status == 422)
            #expect(try await ada.get("/api/notifications/?limit=x").body["detail"]?.string?.contains("limit") == true)

            let id = try #require(first["id"]?.string)
            for client in [eve] {
                #expect(try await client.get("/api/notifications/\(id)").status == 404)
                #expect(try await client.send(.post, "/api/notifications/\(id)/read").status == 404)
                #expect(try await client.send(.delete, "/api/notifications/\(id)").status == 404)
            }
            #expect(try await ada.get("/api/notifications/\(id)").body["title"]?.string == "n3")
            let read = try await ada.send(.post, "/api/notifications/\(id)/read")
            #expect(read.body["status"]?.string == "ok")
            #expect(read.body["unread_count"]?.integer == 4)
            let again = try await ada.send(.post, "/api/notifications/\(id)/read")
            #expect(again.body["read_at"] == read.body["read_at"])
            #expect(try await ada.get("/api/notifications/unread-count").body["count"]?.integer == 4)
            let unread = try await ada.get("/api/notifications?unread_only=true&limit=50").body
            #expect(unread["total"]?.integer == 4)
            let ids = unread["notifications"]?.texts("id") ?? []
            let list = ids.prefix(2).map { "\"\($0)\"" }.joined(separator: ",")
            let bulk = #"{"notification_ids":[\#(list)]}"#
            #expect(try await eve.send(.post, "/api/notifications/bulk-read", bulk).body["updated"]?.integer == 0)
            let bulkRead = try await ada.send(.post, "/api/notifications/bulk-read", bulk)
            #expect(bulkRead.body["updated"]?.integer == 2)
            #expect(bulkRead.body["unread_count"]?.integer == 2)
            #expect(try await ada.send(.post, "/api/notifications/bulk-read", "{}").status == 422)
            #expect(try await ada.send(.delete, "/api/notifications/\(id)").body["status"]?.string == "ok")
            #expect(try await ada.get("/api/notifications").body["total"]?.integer == 4)
        }
    }

    @Test("pages of 200 leave no notification out")
    func largePages() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            for number in 0..<250 { try await stack.notify("ada", "n\(number)") }
            try await ada.waitForCount(250)
            var ids: Set<String> = []
            for offset in [0, 200] {
                let page = try await ada.get("/api/notifications?offset=\(offset)&limit=200").body
                #expect(page["has_more"]?.bool == (offset == 0))
                ids.formUnion(page["notifications"]?.texts("id") ?? [])
            }
            #expect(ids.count == 250)
        }
    }

    @Test("a device_id of 255 characters, the most that the app's table takes, is registered as it was imported")
    func longestDeviceID() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = CompatibilityClient(gateway, user: "ada")
            let id = String(repeating: "é", count: 255)
            let imported = #"{"devices":[{"platform":"ios","provider":"fcm","token":"old","device_id":"\#(id)"}]}"#
            let service = Stack.token(user: "backend", scope: .service)
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: imported).status == 200)
            let registration = #"{"fcm_token":"new","platform":"ios","device_id":"\#(id)"}"#
            #expect(try await ada.send(.post, "/api/push/register", registration).status == 200)
            let devices = try await ada.get("/v1/devices").body["devices"]
            #expect(devices?.texts("device_id") == [id])
            #expect(try await ada.get("/api/push/devices").body["devices"]?.texts("fcm_token") == ["new"])
        }
    }

    @Test("devices are registered, rotated and unregistered, and preferences keep their defaults by type")
    func pushAndPreferences() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            let bad = try await ada.send(.post, "/api/push/register", #"{"platform":"palm"}"#)
            #expect(bad.status == 422)
            #expect(bad.body["errors"]?.texts("field") == ["fcm_token", "platform"])
            for token in ["t1", "t2"] {
                let body = #"{"fcm_token":"\#(token)","platform":"web","device_id":"browser-1"}"#
                #expect(try await ada.send(.post, "/api/push/register", body).status == 200)
            }
            let phone = #"{"fcm_token":"t3","platform":"ios","device_id":null}"#
            #expect(try await ada.send(.post, "/api/push/register", phone).status == 200)
            let devices = try await ada.get("/api/push/devices").body["devices"]
            #expect(devices?.texts("fcm_token") == ["t3", "t2"])
            #expect(devices?.texts("platform") == ["ios", "web"])

            let maintenance = #"{"type":"system_maintenance","in_app_enabled":true,"push_enabled":false}"#
            let before = try await ada.get("/api/notifications/preferences").body["preferences"]?.array
            func enabled(_ list: [JSONValue]?, _ type: String) -> Bool? {
                list?.first { $0["type"]?.string == type }?["in_app_enabled"]?.bool
            }
            #expect(enabled(before, "system_maintenance") == false)
            #expect(enabled(before, "payment_received") == true)
            let set = try await ada.send(.put, "/api/notifications/preferences", maintenance)
            #expect(set.body["in_app_enabled"]?.bool == true)
            let off = #"{"type":"payment_received","in_app_enabled":true,"push_enabled":false}"#
            #expect(try await ada.send(.put, "/api/notifications/preferences", off).status == 200)
            let after = try await ada.get("/api/notifications/preferences").body["preferences"]?.array
            #expect(enabled(after, "system_maintenance") == true)
            #expect(try await ada.send(.put, "/api/notifications/preferences", #"{"type":"x"}"#).status == 422)

            // An imported type has its own quiet hours; the others use the user's.
            let settings = #"{"quiet_hours":{"start":"22:00","end":"07:00"}}"#
            #expect(try await ada.send(.put, "/v1/settings", settings).status == 200)
            let imported = #"{"types":[{"type":"invoice_created","quiet_hours":{"start":"09:00","end":"10:00"}}]}"#
            #expect(try await ada.send(.put, "/v1/preferences", imported).status == 200)
            func hours(_ type: String) async throws -> [JSONValue?] {
                let list = try await ada.get("/api/notifications/preferences").body["preferences"]?.array
                let entry = list?.first { $0["type"]?.string == type }
                return [entry?["quiet_hours_start"], entry?["quiet_hours_end"]]
            }
            #expect(try await hours("invoice_created") == [.string("09:00:00"), .string("10:00:00")])
            #expect(try await hours("profile_updated") == [.string("22:00:00"), .string("07:00:00")])
            let own = #"{"type":"profile_updated","quiet_hours_start":"23:00:00","quiet_hours_end":"06:30:00"}"#
            let answer = try await ada.send(.put, "/api/notifications/preferences", own)
            #expect(answer.body["quiet_hours_start"]?.string == "23:00:00")
            #expect(try await hours("profile_updated") == [.string("23:00:00"), .string("06:30:00")])
            let none = #"{"type":"profile_updated","quiet_hours_start":null,"quiet_hours_end":null}"#
            #expect(try await ada.send(.put, "/api/notifications/preferences", none).status == 200)
            #expect(try await hours("profile_updated") == [.null, .null])
            // Quiet hours that the client sends back unchanged keep following the user's.
            let shown = #"{"type":"invoice_overdue","quiet_hours_start":"22:00:00","quiet_hours_end":"07:00:00"}"#
            #expect(try await ada.send(.put, "/api/notifications/preferences", shown).status == 200)
            #expect(try await ada.send(.put, "/v1/settings", #"{"quiet_hours":null}"#).status == 200)
            #expect(try await hours("invoice_overdue") == [.null, .null])
            let half = #"{"type":"invoice_overdue","quiet_hours_start":"22:00:00"}"#
            let refused = try await ada.send(.put, "/api/notifications/preferences", half)
            #expect(refused.status == 422)
            #expect(refused.body["errors"]?.texts("field") == ["quiet_hours_end"])

            // The refused type is not pushed, the other is.
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "refused")])
            try await stack.append([("user", "ada"), ("type", "invoice_overdue"), ("title", "overdue")])
            try await eventually("both tokens got it") { stack.pushed().count == 2 }
            #expect(stack.pushed() == ["t2": ["overdue"], "t3": ["overdue"]])

            let body = #"{"fcm_token":"t3"}"#
            #expect(try await ada.send(.delete, "/api/push/unregister", body).body["removed"]?.integer == 1)
            #expect(try await ada.send(.delete, "/api/push/unregister", body).body["removed"]?.integer == 0)
            #expect(try await ada.send(.delete, "/api/push/unregister?fcm_token=t2").body["removed"]?.integer == 1)
            #expect(try await ada.get("/api/push/devices").body["devices"]?.array?.isEmpty == true)
            let anonymous = try await gateway.call(.get, "/api/notifications", token: nil)
            #expect(anonymous.status == 401)
            #expect(anonymous.body["error"]?.string != nil)
        }
    }
}

/// The scheduler app's client on `/rest/v1`.
@Suite(.timeLimit(.minutes(10)))
struct EdgeClientTests {
    private static let table = "/rest/v1/user_push_tokens"
    private static let apnsToken = String(repeating: "cd", count: 32)

    @Test("the browser of a phone is no row, so no call changes its subscription")
    func browsers() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = CompatibilityClient(gateway, user: "ada")
            let phone = #"{"platform":"android","token":"f:1"}"#
            #expect(try await ada.send(.post, Self.table, phone).status == 201)
            _ = try await stack.query("UPDATE carillon.devices SET provider = 'webpush'")
            #expect(try await ada.get(Self.table).body.array?.isEmpty == true)
            let patch = "\(Self.table)?platform=eq.android"
            #expect(try await ada.send(.patch, patch, #"{"token":"anything"}"#).status == 204)
            #expect(try await ada.send(.delete, patch).status == 204)
            let left = try await stack.query("SELECT FROM carillon.devices WHERE token = 'f:1'")
            #expect(left.count == 1)
        }
    }

    @Test("a device of another app is no row, so no call lists, changes or removes it")
    func otherApps() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = CompatibilityClient(gateway, user: "ada")
            let phone = #"{"platform":"android","token":"f:1","app":"other"}"#
            #expect(try await ada.send(.post, "/v1/devices", phone).status == 201)
            for path in [Self.table, "/api/push/gcm/", "/api/v1/devices"] {
                #expect(try await ada.get(path).body.array?.isEmpty == true, "\(path)")
            }
            let rows = "\(Self.table)?platform=eq.android"
            #expect(try await ada.send(.patch, rows, #"{"locale":"de"}"#).status == 204)
            #expect(try await ada.send(.delete, rows).status == 204)
            let left = try await stack.query("SELECT FROM carillon.devices WHERE app = 'other' AND locale IS NULL")
            #expect(left.count == 1)
        }
    }

    @Test("a user's tokens are upserted, selected, rotated and deleted, and hidden from others")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            let eve = CompatibilityClient(gateway, user: "eve")
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
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            let eve = CompatibilityClient(gateway, user: "eve")
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
            let repeated = "[\(event(one, "opened")),\(event(one, "delivered")),\(event(one, "opened"))]"
            #expect(try await ada.send(.post, path, repeated).status == 201)
            #expect(try await opened() == [true, false])
            #expect(try await stack.statuses(user: "ada") == ["one": "delivered", "two": "delivered"])
            // One that is a push only.
            let pushed = NotificationID(high: 0x01a1_f866_0d7b_841c, low: 0xa9a6_5597_aa05_75f4)
            try await stack.query(
                """
                INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
                    channels, title, body, status, created_at)
                VALUES ('ada', '\(pushed)', 0, 'x', '', 'invoice_created', 'info', 'push', 'normal', 2, 'push', '', 'sent', now())
                """)
            #expect(try await ada.send(.post, path, event("\(pushed)", "opened")).status == 201)
            #expect(try await opened().count { $0 } == 2)
        }
    }

    @Test("a change or removal of a part of the matching rows is refused")
    func parts() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            for part in ["limit=1", "offset=1", "order=last_seen_at.asc"] {
                let path = "/rest/v1/user_push_tokens?platform=eq.ios&\(part)"
                #expect(try await ada.send(.delete, path).status == 400, "\(part)")
                #expect(try await ada.send(.patch, path, #"{"is_active":false}"#).status == 400, "\(part)")
                #expect(try await ada.get(path).status == 200, "\(part)")
            }
        }
    }
}

/// The household-task app's client on `/api/push/apns/`, `/api/push/gcm/` and `/api/push/test/`.
@Suite(.timeLimit(.minutes(10)))
struct TaskClientTests {
    private static let apnsToken = String(repeating: "ab", count: 32)

    @Test("devices of both providers are registered, listed, tested and removed, with or without a final slash")
    func devices() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            let eve = CompatibilityClient(gateway, user: "eve")
            let phone = #"{"registration_id":"\#(Self.apnsToken)","device_id":"D1","name":"iPhone","active":true}"#
            let apns = try await ada.send(.post, "/api/push/apns/", phone)
            #expect(apns.status == 201)
            #expect(apns.body["registration_id"]?.string == Self.apnsToken)
            #expect(apns.body["active"]?.bool == true)
            let number = try #require(apns.body["id"]?.integer)
            #expect((0...Int64(Int32.max)).contains(number))
            // A form, as Python's `requests` sends a dictionary.
            let android = try await gateway.call(
                .post,
                "/api/push/gcm",
                token: ada.token,
                json: "registration_id=f%3Ax&name=Pixel",
                headers: [(name: "content-type", value: "application/x-www-form-urlencoded")]
            )
            #expect(android.status == 201)
            #expect(android.body["registration_id"]?.string == "f:x")
            let bad = try await ada.send(.post, "/api/push/apns/", #"{"registration_id":"xyz"}"#)
            #expect(bad.status == 400)
            #expect(bad.body["error"]?.string?.hasPrefix("registration_id must be 64 to 200 hex") == true)
            #expect(try await ada.get("/api/push/apns/").body.array?.count == 1)
            #expect(try await ada.get("/api/push/gcm/").body.texts("registration_id") == ["f:x"])
            #expect(try await eve.get("/api/push/gcm/").body.array?.isEmpty == true)

            // A disabled device is registered too.
            let off = #"{"registration_id":"off","active":false}"#
            let silenced = try await ada.send(.post, "/api/push/gcm/", off)
            #expect(silenced.status == 201)
            #expect(silenced.body["active"]?.bool == false)

            let test = #"{"title":"Test","message":"Hello"}"#
            #expect(try await ada.send(.post, "/api/push/test/", #"{"title":"Test"}"#).status == 400)
            #expect(try await ada.send(.post, "/api/push/test/", test).status == 200)
            try await eventually("both devices got it") { stack.pushed().count == 2 }
            #expect(stack.pushed() == [Self.apnsToken: ["Test"], "f:x": ["Test"]])
            let on = try await ada.send(.post, "/api/push/gcm/", #"{"registration_id":"off","active":true}"#)
            #expect(on.body["active"]?.bool == true)
            #expect(on.body["id"] == silenced.body["id"])
            #expect(on.body["date_created"] == silenced.body["date_created"])
            #expect(try await ada.send(.delete, "/api/push/gcm/off/").status == 204)
            let inbox = try await ada.get("/v1/notifications/unread-count").body
            #expect(inbox["total"]?.integer == 0)

            #expect(try await eve.send(.delete, "/api/push/apns/\(number)/").status == 404)
            #expect(try await eve.send(.delete, "/api/push/apns/\(Self.apnsToken)/").status == 404)
            #expect(try await ada.send(.delete, "/api/push/gcm/\(number)/").status == 404)
            #expect(try await ada.send(.delete, "/api/push/apns/\(number)/").status == 204)
            #expect(try await ada.send(.delete, "/api/push/apns/\(number)").status == 404)
            #expect(try await ada.send(.delete, "/api/push/gcm/f%3Ax/").status == 204)
            for form in ["body", "query"] {
                _ = try await ada.send(.post, "/api/push/gcm/", #"{"registration_id":"t2"}"#)
                let isBody = form == "body"
                let path = isBody ? "/api/push/gcm/" : "/api/push/gcm/?registration_id=t2"
                let json = isBody ? #"{"registration_id":"t2"}"# : nil
                #expect(try await ada.send(.delete, path, json).status == 204)
            }
            #expect(try await ada.send(.delete, "/api/push/gcm/").status == 400)
            #expect(try await ada.get("/api/push/gcm").body.array?.isEmpty == true)
        }
    }

    @Test("without the type push_test in the catalog there are no test sends")
    func testSends() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: try stack.catalog("types: {t: {}}"))
            let ada = CompatibilityClient(gateway, user: "ada")
            let answer = try await ada.send(.post, "/api/push/test/", #"{"title":"T","message":"M"}"#)
            #expect(answer.status == 404)
            #expect(answer.body["error"]?.string == "test sends are off: the catalog has no type push_test")
        }
    }

    @Test("a user who sends too many tests gets 429 with Retry-After, and no job")
    func testRate() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: try stack.catalog("types: {push_test: {}}"))
            let ada = CompatibilityClient(gateway, user: "ada")
            let test = #"{"title":"T","message":"M"}"#
            var answer = try await ada.send(.post, "/api/push/test/", test)
            var count = 0
            while answer.status == 200, count < 1_000 {
                count += 1
                answer = try await ada.send(.post, "/api/push/test/", test)
            }
            #expect(answer.status == 429 && count >= 60)
            let wait = try #require(answer.header("retry-after").flatMap { Int($0) })
            #expect((1...60).contains(wait))
            let jobs = try await stack.connection.send("XLEN", "carillon:jobs").integer()
            #expect(jobs == Int64(count))
        }
    }
}

/// The news app's client on `/device-token`.
@Suite(.timeLimit(.minutes(10)))
struct NewsClientTests {
    @Test("a token is registered, replaced, reported, pushed to and unregistered")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            let empty = try await ada.get("/device-token/status").body
            #expect(empty["has_token"]?.bool == false)
            #expect(empty["notifications_enabled"]?.bool == false)
            #expect(empty["platform"] == .null)
            let missing = try await ada.send(.post, "/device-token/register", #"{"platform":"ios"}"#)
            #expect(missing.status == 422)
            #expect(missing.body["detail"]?.string == "fcm_token is missing")
            for token in ["old", "new"] {
                let body = #"{"fcm_token":"\#(token)","platform":"ios","app_version":"1.0"}"#
                let answer = try await ada.send(.post, "/device-token/register", body)
                #expect(answer.status == 200)
                #expect(answer.body["success"]?.bool == true)
                #expect(answer.body["message"]?.string == "Device token registered successfully")
            }
            let status = try await ada.get("/device-token/status").body
            #expect(status["has_token"]?.bool == true)
            #expect(status["notifications_enabled"]?.bool == true)
            #expect(status["token_count"]?.integer == 1)
            #expect(status["platform"]?.string == "ios")
            let preferences = status["preferences"]
            #expect(preferences?["breaking_news"]?.bool == true)
            #expect(preferences?["developing_stories"]?.bool == true)
            #expect(preferences?["daily_digest"]?.bool == false)

            let story = #"{"storyId":"s1","category":"politics"}"#
            // The app's monitor repeats a story every five minutes; it notifies once.
            for _ in 0..<2 {
                try await stack.append([
                    ("user", "ada"), ("type", "breaking_news"), ("id", "story:s1"), ("title", "BREAKING"),
                    ("data", story),
                ])
            }
            try await stack.append([("user", "ada"), ("type", "breaking_news"), ("title", "another")])
            try await eventually("both stories") { stack.pushed()["new"]?.count == 2 }
            #expect(Set(stack.pushed()["new"] ?? []) == ["BREAKING", "another"])
            #expect(stack.pushed()["old"] == nil)

            let eve = CompatibilityClient(gateway, user: "eve")
            _ = try await eve.send(.post, "/device-token/unregister", #"{"fcm_token":"new"}"#)
            #expect(try await ada.get("/device-token/status").body["has_token"]?.bool == true)
            let gone = try await ada.send(.post, "/device-token/unregister", #"{"fcm_token":"new"}"#)
            #expect(gone.body["success"]?.bool == true)
            #expect(try await ada.get("/device-token/status").body["notifications_enabled"]?.bool == false)
            #expect(try await gateway.call(.get, "/device-token/status", token: nil).status == 401)

            // As the app does it: unregistering names no token, and registering ends an opt-out.
            let version = String(repeating: "1.", count: 40)
            let register = #"{"fcm_token":"third","platform":"ios","app_version":"\#(version)"}"#
            #expect(try await ada.send(.post, "/device-token/register", register).status == 200)
            let versions = try await ada.get("/v1/devices").body["devices"]?.texts("app_version")
            #expect(versions == [String(version.prefix(64))])
            #expect(try await ada.send(.post, "/device-token/unregister").body["success"]?.bool == true)
            #expect(try await ada.get("/device-token/status").body["has_token"]?.bool == false)
            #expect(try await ada.send(.put, "/v1/settings", #"{"opted_out":true}"#).status == 200)
            #expect(try await ada.send(.post, "/device-token/register", register).status == 200)
            #expect(try await ada.get("/device-token/status").body["notifications_enabled"]?.bool == true)
            #expect(try await ada.get("/v1/settings").body["opted_out"]?.bool == false)
        }
    }
}
