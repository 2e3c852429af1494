// Carillon · HybridClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// The accounting app's client on `/api/notifications` and `/api/push`.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct HybridClientTests {
    @Test("the inbox pages, counts, marks read, reads in bulk and deletes, and hides other users' notifications")
    func inbox() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let ada = try await CompatibilityClient(gateway, user: "ada")
            let eve = try await CompatibilityClient(gateway, user: "eve")
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

    @Test("devices are registered, rotated and unregistered, and preferences keep their defaults by type")
    func pushAndPreferences() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let ada = try await CompatibilityClient(gateway, user: "ada")
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
