// Carillon · AllowanceClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients
@testable import HTTP

/// The family-finance app's client against `/api/v1`.
@Suite(.timeLimit(.minutes(10)))
struct AllowanceClientTests {
    private static let inbox = "/api/v1/notifications"

    @Test("the inbox pages, filters, marks read and deletes, and hides other users' notifications")
    func notifications() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            let eve = CompatibilityClient(gateway, user: "eve")
            let entity = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
            for number in 0..<5 {
                try await stack.append([
                    ("user", "ada"), ("type", number == 2 ? "GoalProgress" : "AllowanceDeposit"),
                    ("title", "n\(number)"), ("data", #"{"amount":10}"#), ("entity_type", "Transaction"),
                    ("entity_id", entity),
                ])
            }
            try await ada.waitForCount(5)
            let first = try await ada.get("\(Self.inbox)?page=1&pageSize=2").body
            #expect(first["notifications"]?.texts("title") == ["n4", "n3"])
            #expect(first["unreadCount"]?.integer == 5)
            #expect(first["totalCount"]?.integer == 5)
            #expect(first["hasMore"]?.bool == true)
            let item = try #require(first["notifications"]?.array?.first)
            #expect(item["type"]?.integer == 10)
            #expect(item["typeName"]?.string == "Allowance Deposit")
            #expect(item["data"]?.string == #"{"amount": 10}"# || item["data"]?.string == #"{"amount":10}"#)
            #expect(item["isRead"]?.bool == false)
            #expect(item["relatedEntityType"]?.string == "Transaction")
            #expect(item["relatedEntityId"]?.string == entity)
            #expect(item["timeAgo"]?.string == "just now")
            let last = try await ada.get("\(Self.inbox)?page=3&pageSize=2").body
            #expect(last["notifications"]?.texts("title") == ["n0"])
            #expect(last["hasMore"]?.bool == false)
            let goals = try await ada.get("\(Self.inbox)?type=20").body
            #expect(goals["notifications"]?.texts("title") == ["n2"])
            #expect(goals["totalCount"]?.integer == 1)
            #expect(try await ada.get("\(Self.inbox)?type=77").status == 400)
            let deep = try await ada.get("\(Self.inbox)?page=1000&pageSize=50")
            #expect(deep.status == 400)
            #expect(deep.body["errors"]?["page"]?.array?.count == 1)

            let id = try #require(item["id"]?.string)
            #expect(try await eve.get("\(Self.inbox)/\(id)").status == 404)
            #expect(try await eve.send(.patch, "\(Self.inbox)/\(id)/read").status == 404)
            #expect(try await eve.send(.delete, "\(Self.inbox)/\(id)").status == 404)
            #expect(try await ada.get("\(Self.inbox)/\(id)").body["title"]?.string == "n4")
            let read = try await ada.send(.patch, "\(Self.inbox)/\(id)/read")
            #expect(read.status == 200)
            #expect(read.body["isRead"]?.bool == true)
            #expect(try await ada.send(.patch, "\(Self.inbox)/\(id)/read").body["readAt"] == read.body["readAt"])
            #expect(try await ada.get("\(Self.inbox)/unread-count").body["count"]?.integer == 4)
            #expect(try await ada.get("\(Self.inbox)?unreadOnly=true").body["totalCount"]?.integer == 4)

            let some = #"{"notificationIds":["\#(id)"]}"#
            #expect(try await ada.send(.post, "\(Self.inbox)/read", some).body["markedCount"]?.integer == 0)
            let none = #"{"notificationIds":[]}"#
            #expect(try await ada.send(.post, "\(Self.inbox)/read", none).body["markedCount"]?.integer == 0)
            #expect(try await ada.send(.post, "\(Self.inbox)/read").status == 400)
            let all = #"{"notificationIds":null}"#
            #expect(try await ada.send(.post, "\(Self.inbox)/read", all).body["markedCount"]?.integer == 4)
            #expect(try await ada.send(.delete, "\(Self.inbox)/\(id)").status == 204)
            #expect(try await ada.send(.delete, "\(Self.inbox)/\(id)").status == 404)
            #expect(try await ada.send(.delete, Self.inbox).body["deletedCount"]?.integer == 4)
            #expect(try await ada.get(Self.inbox).body["totalCount"]?.integer == 0)
        }
    }

    @Test("a sixth device deactivates the stalest one, and upstream apps get an event")
    func fiveDevices() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: ["DEVICES_PER_USER": "5"])
            let ada = CompatibilityClient(gateway, user: "ada")
            for number in 1...6 {
                let body = #"{"token":"t\#(number)","platform":2,"deviceName":"phone \#(number)"}"#
                #expect(try await ada.send(.post, "/api/v1/devices", body).status == 200)
            }
            let active = try await stack.query("SELECT token FROM carillon.devices WHERE active ORDER BY token")
            #expect(try active.map { try $0.text(0) } == ["t2", "t3", "t4", "t5", "t6"])
            let rows = try await stack.query("SELECT id::text FROM carillon.devices WHERE NOT active")
            let off = try #require(rows.first).text(0)
            let events = try await stack.events()
            #expect(events.count == 1)
            let event = try #require(events.first)
            #expect(event["event"] == "device_deactivated" && event["reason"] == "too_many_devices")
            #expect(event["user"] == "ada" && event["app"] == "default" && event["platform"] == "android")
            #expect(event["device"] == off && event["notification"] == nil)
        }
    }

    @Test("a name and a version of any length register a device, cut as its export cuts them")
    func longNames() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = CompatibilityClient(gateway, user: "ada")
            let (name, version) = (String(repeating: "é", count: 300), String(repeating: "1.", count: 40))
            for token in ["old", "new"] {
                let body = #"{"token":"\#(token)","platform":1,"deviceName":"\#(name)","appVersion":"\#(version)"}"#
                #expect(try await ada.send(.post, "/api/v1/devices", body).status == 200)
            }
            let devices = try await ada.get("/v1/devices").body["devices"]
            #expect(devices?.texts("name") == [String(name.prefix(255))])
            #expect(devices?.texts("app_version") == [String(version.prefix(64))])
        }
    }

    @Test("devices, preferences and quiet hours are stored; a test send respects them")
    func settings() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
            let devices = "/api/v1/devices"
            for token in ["t1", "t2"] {
                let body = #"{"token":"\#(token)","platform":1,"deviceName":"Ada's iPhone","appVersion":"2.0"}"#
                let device = try await ada.send(.post, devices, body)
                #expect(device.status == 200)
                #expect(device.body["platform"]?.integer == 1)
                #expect(device.body["isActive"]?.bool == true)
            }
            let android = try await ada.send(.post, devices, #"{"token":"t3","platform":2}"#)
            let list = try await ada.get(devices).body.array
            #expect(list?.compactMap { $0["platform"]?.integer } == [2, 1])
            let bad = try await ada.send(.post, devices, #"{"platform":9}"#)
            #expect(bad.status == 400)
            #expect(bad.body["errors"]?["token"]?.strings == ["is missing"])
            #expect(bad.body["errors"]?["platform"] != nil)

            let preferences = "\(Self.inbox)/preferences"
            let before = try await ada.get(preferences).body
            #expect(before["preferences"]?.array?.count == 26)
            #expect(before["quietHoursEnabled"]?.bool == false)
            let deposit = before["preferences"]?.array?.first { $0["notificationType"]?.integer == 10 }
            #expect(deposit?["category"]?.string == "Allowance")
            #expect(deposit?["pushEnabled"]?.bool == true)
            #expect(deposit?["emailEnabled"]?.bool == false)
            let body =
                #"{"preferences":[{"notificationType":10,"inAppEnabled":true,"pushEnabled":false,"emailEnabled":true}]}"#
            let after = try await ada.send(.put, preferences, body).body
            let changed = after["preferences"]?.array?.first { $0["notificationType"]?.integer == 10 }
            #expect(changed?["pushEnabled"]?.bool == false)
            #expect(changed?["emailEnabled"]?.bool == true)
            let hours = #"{"enabled":true,"startTime":"22:00:00","endTime":"07:00:00"}"#
            let quiet = try await ada.send(.put, "\(preferences)/quiet-hours", hours).body
            #expect(quiet["quietHoursEnabled"]?.bool == true)
            #expect(quiet["quietHoursStart"]?.string == "22:00:00")
            let off = #"{"enabled":false,"startTime":null,"endTime":null}"#
            let loud = try await ada.send(.put, "\(preferences)/quiet-hours", off).body
            #expect(loud["quietHoursEnabled"]?.bool == false)
            #expect(loud["quietHoursStart"]?.string == "22:00:00", "the times are kept for the next switch-on")
            #expect(loud["quietHoursEnd"]?.string == "07:00:00")
            #expect(try await ada.get("/v1/settings").body["quiet_hours"] == .null, "quiet hours are off")
            let on = try await ada.send(.put, "\(preferences)/quiet-hours", #"{"enabled":true}"#).body
            #expect(on["quietHoursEnabled"]?.bool == true)
            #expect(on["quietHoursEnd"]?.string == "07:00:00")
            let other = #"{"enabled":false,"startTime":"23:00:00","endTime":"06:00:00"}"#
            let changed2 = try await ada.send(.put, "\(preferences)/quiet-hours", other).body
            #expect(changed2["quietHoursEnabled"]?.bool == false)
            #expect(changed2["quietHoursStart"]?.string == "23:00:00")
            let stranger = CompatibilityClient(gateway, user: "stranger")
            let first = try await stranger.send(.put, "\(preferences)/quiet-hours", #"{"enabled":true}"#)
            #expect(first.status == 400, "there are no stored times")

            // Test sends by operators: the disabled type stays off the phone, the other one
            // arrives.
            let test = #"{"userId":"ada","type":TYPE,"title":"test TYPE","body":"b"}"#
            #expect(try await ada.send(.post, "\(Self.inbox)/test", test).status == 403)
            let service = Stack.token(user: "backend", scope: .service)
            for code in ["10", "20"] {
                let json = test.replacing("TYPE", with: code)
                let sent = try await gateway.call(.post, "\(Self.inbox)/test", token: service, json: json)
                #expect(sent.status == 202)
            }
            try await ada.waitForCount(2)
            try await eventually("both devices got it") { stack.pushed().count == 2 }
            #expect(stack.pushed() == ["t2": ["test 20"], "t3": ["test 20"]])

            let id = try #require(android.body["id"]?.string)
            let eve = CompatibilityClient(gateway, user: "eve")
            #expect(try await eve.send(.delete, "\(devices)/\(id)").status == 404)
            #expect(try await ada.send(.delete, "\(devices)/\(id)").status == 204)
            let current = try await gateway.call(
                .delete,
                "\(devices)/current",
                token: ada.token,
                headers: [(name: "X-Device-Token", value: "t2")]
            )
            #expect(current.status == 204)
            #expect(try await ada.send(.delete, "\(devices)/current").status == 400)
            #expect(try await ada.get(devices).body.array?.isEmpty == true)
        }
    }

    @Test("setting quiet hours keeps concurrent changes of other settings")
    func quietHoursAlone() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = CompatibilityClient(gateway, user: "ada")
            let settings =
                #"{"zone":"Europe/Zurich","email":"ada@example.com","#
                + #""quiet_hours":{"start":"20:00","end":"06:00","weekdays":[1]}}"#
            #expect(try await ada.send(.put, "/v1/settings", settings).status == 200)
            // A concurrent change: every change of settings first inserts the user if missing,
            // which fires this trigger.
            try await stack.query(
                """
                CREATE FUNCTION carillon.meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    UPDATE carillon.user_settings
                    SET zone = 'Asia/Tokyo', opted_out = true, email_opted_out = true, quiet_weekdays = 3
                    WHERE user_id = NEW.user_id;
                    RETURN NEW;
                END $$
                """
            )
            try await stack.query(
                """
                CREATE TRIGGER meanwhile BEFORE INSERT ON carillon.users FOR EACH ROW
                EXECUTE FUNCTION carillon.meanwhile()
                """
            )
            let hours = #"{"enabled":true,"startTime":"22:00:00","endTime":"07:00:00"}"#
            let quiet = try await ada.send(.put, "\(Self.inbox)/preferences/quiet-hours", hours)
            #expect(quiet.body["quietHoursStart"]?.string == "22:00:00")
            let after = try await ada.get("/v1/settings").body
            #expect(after["quiet_hours"]?["start"]?.string == "22:00")
            #expect(after["quiet_hours"]?["weekdays"]?.array?.compactMap(\.integer) == [1, 2])
            #expect(after["zone"]?.string == "Asia/Tokyo")
            #expect(after["email"]?.string == "ada@example.com")
            #expect(after["opted_out"]?.bool == true)
            #expect(after["email_opted_out"]?.bool == true)
        }
    }

    @Test("setting one preference keeps concurrent changes of the others")
    func preferencesAlone() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = CompatibilityClient(gateway, user: "ada")
            let eve = CompatibilityClient(gateway, user: "eve")
            let all =
                #"{"preferences":[{"notificationType":10,"inAppEnabled":true,"pushEnabled":true,"emailEnabled":false}]}"#
            for client in [ada, eve] {
                #expect(try await client.send(.put, "\(Self.inbox)/preferences", all).status == 200)
            }
            // A concurrent change: every change of preferences first inserts the user if missing,
            // which fires this trigger.
            try await stack.query(
                """
                CREATE FUNCTION carillon.meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    UPDATE carillon.preferences SET in_app = false, email = true WHERE user_id = NEW.user_id;
                    RETURN NEW;
                END $$
                """
            )
            try await stack.query(
                """
                CREATE TRIGGER meanwhile BEFORE INSERT ON carillon.users FOR EACH ROW
                EXECUTE FUNCTION carillon.meanwhile()
                """
            )
            let some = #"{"preferences":[{"notificationType":10,"pushEnabled":false}]}"#
            #expect(try await ada.send(.put, "\(Self.inbox)/preferences", some).status == 200)
            let one = #"{"type":"AllowanceDeposit","push_enabled":false}"#
            let answer = try await eve.send(.put, "/api/notifications/preferences", one)
            #expect(answer.body["in_app_enabled"]?.bool == false, "must be the current value, not the earlier one")
            for client in [ada, eve] {
                let after = try await client.get("\(Self.inbox)/preferences").body["preferences"]?.array
                let deposit = after?.first { $0["notificationType"]?.integer == 10 }
                #expect(deposit?["inAppEnabled"]?.bool == false)
                #expect(deposit?["pushEnabled"]?.bool == false)
                #expect(deposit?["emailEnabled"]?.bool == true)
            }
        }
    }

    @Test("sending back what is shown stores nothing for channels that the user cannot choose")
    func fixedChannels() async throws {
        try await Stack.with { stack in
            let catalog = """
                types:
                  Security: {code: 5, required: true, channels: [in_app, push, email]}
                  Statement: {code: 6, channels: [push]}
                  Alarm: {code: 7, required: true, channels: [push]}
                """
            let gateway = try await stack.startGateway(environment: try stack.catalog(catalog))
            let ada = CompatibilityClient(gateway, user: "ada")
            let shown = try #require(try await ada.get("\(Self.inbox)/preferences").body["preferences"]?.array)
            #expect(shown.map { $0["emailEnabled"]?.bool } == [true, false, false])
            #expect(shown.map { $0["inAppEnabled"]?.bool } == [true, false, false])
            let body = JSONWriter.bytes(of: .object([JSONMember("preferences", .array(shown))]))
            let answer = try await ada.send(.put, "\(Self.inbox)/preferences", String(decoding: body, as: UTF8.self))
            #expect(answer.status == 200)
            #expect(answer.body["preferences"]?.array == shown)
            let rows = try await stack.query(
                "SELECT type FROM carillon.preferences WHERE coalesce(in_app, push, email) IS NOT NULL")
            #expect(try rows.map { try $0.text(0) } == ["Statement"])
            for type in ["Security", "Alarm"] {
                let echo = #"{"type":"\#(type)","in_app_enabled":\#(type == "Security"),"push_enabled":true}"#
                #expect(try await ada.send(.put, "/api/notifications/preferences", echo).status == 200)
                let off = #"{"type":"\#(type)","push_enabled":false}"#
                #expect(try await ada.send(.put, "/api/notifications/preferences", off).status == 422)
            }
        }
    }

    @Test("settings leave out a disabled type, and an old client may still send it back")
    func retired() async throws {
        try await Stack.with { stack in
            let catalog = """
                types:
                  kept: {code: 5, category: news}
                  retired: {code: 6, category: news, enabled: false}
                """
            let gateway = try await stack.startGateway(environment: try stack.catalog(catalog))
            let ada = CompatibilityClient(gateway, user: "ada")
            let coded = try await ada.get("\(Self.inbox)/preferences").body["preferences"]
            #expect(coded?.texts("typeName") == ["Kept"])
            let named = try await ada.get("/api/notifications/preferences").body["preferences"]
            #expect(named?.texts("type") == ["kept"])
            let news = try await ada.get("/device-token/status").body["preferences"]
            #expect(news?["kept"]?.bool == true && news?["retired"] == nil)
            let both = #"{"preferences":[{"notificationType":5},{"notificationType":6,"pushEnabled":false}]}"#
            let answer = try await ada.send(.put, "\(Self.inbox)/preferences", both)
            #expect(answer.status == 200)
            #expect(answer.body["preferences"]?.texts("typeName") == ["Kept"])
            let one = #"{"type":"retired","push_enabled":false}"#
            #expect(try await ada.send(.put, "/api/notifications/preferences", one).status == 200)
        }
    }

    @Test("a category's preference shows on its types and stays the category's when a client sends it back")
    func categories() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = CompatibilityClient(gateway, user: "ada")
            let preferences = "\(Self.inbox)/preferences"
            func setCategory(_ channels: String) async throws {
                let body = #"{"categories":[{"category":"Allowance",\#(channels)}]}"#
                #expect(try await ada.send(.put, "/v1/preferences", body).status == 200)
            }
            func deposit() async throws -> JSONValue? {
                let list = try await ada.get(preferences).body["preferences"]?.array
                return list?.first { $0["notificationType"]?.integer == 10 }
            }
            func hybrid() async throws -> JSONValue? {
                let list = try await ada.get("/api/notifications/preferences").body["preferences"]?.array
                return list?.first { $0["type"]?.string == "AllowanceDeposit" }
            }
            try await setCategory(#""push":false"#)
            #expect(try await deposit()?["pushEnabled"]?.bool == false)
            #expect(try await deposit()?["inAppEnabled"]?.bool == true)
            #expect(try await hybrid()?["push_enabled"]?.bool == false)

            // The app sends back the values it was shown.
            let shown = #"{"notificationType":10,"inAppEnabled":true,"pushEnabled":false,"emailEnabled":false}"#
            let answer = try await ada.send(.put, preferences, #"{"preferences":[\#(shown)]}"#)
            #expect(answer.status == 200)
            let one = #"{"type":"AllowanceDeposit","push_enabled":false}"#
            let entry = try await ada.send(.put, "/api/notifications/preferences", one).body
            #expect(entry["push_enabled"]?.bool == false)
            try await setCategory(#""push":true"#)
            #expect(try await deposit()?["pushEnabled"]?.bool == true, "the type has no preference of its own")
            #expect(try await hybrid()?["push_enabled"]?.bool == true)

            // A value that differs from the category's becomes the type's own.
            _ = try await ada.send(.put, "/api/notifications/preferences", one)
            try await setCategory(#""email":true"#)
            #expect(try await deposit()?["pushEnabled"]?.bool == false)
            #expect(try await deposit()?["emailEnabled"]?.bool == false, "became the type's own together with push")
        }
    }
}
