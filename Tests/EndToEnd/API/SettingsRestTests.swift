// Carillon · SettingsRestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Devices, preferences and settings over REST.
@Suite(.timeLimit(.minutes(10)))
struct SettingsRestTests {
    @Test("the current device is deleted by token or device_id, and only by its user")
    func currentDevice() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = Stack.token(user: "ada")
            let eve = Stack.token(user: "eve")
            for number in 0..<3 {
                let device = #"{"platform":"android","token":"t\#(number)","device_id":"d\#(number)"}"#
                #expect(try await gateway.call(.post, "/v1/devices", token: ada, json: device).status == 201)
            }
            let path = "/v1/devices/current"
            #expect(try await gateway.call(.delete, path, token: eve, json: #"{"token":"t0"}"#).status == 404)
            #expect(try await gateway.call(.delete, path, token: ada, json: #"{"token":"t0"}"#).status == 204)
            #expect(try await gateway.call(.delete, path, token: ada, json: #"{"device_id":"d1"}"#).status == 204)
            #expect(try await gateway.call(.delete, "\(path)?device_id=d2", token: ada).status == 204)
            #expect(try await gateway.call(.delete, "\(path)?device_id=d2", token: ada).status == 404)
            for body in [#"{}"#, #"{"token":"a","device_id":"b"}"#] {
                let answer = try await gateway.call(.delete, path, token: ada, json: body)
                #expect(answer.status == 422)
                #expect(answer.faults == ["token"])
            }
            let list = try await gateway.call(.get, "/v1/devices", token: ada)
            #expect(list.body["devices"]?.array?.isEmpty == true)
        }
    }

    @Test("with an app, only its device is deleted, although another app's has the same device_id")
    func currentDeviceOfApp() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = Stack.token(user: "ada")
            let path = "/v1/devices/current"
            func register() async throws {
                for app in ["one", "two"] {
                    let device = #"{"platform":"android","token":"t-\#(app)","device_id":"d","app":"\#(app)"}"#
                    #expect(try await gateway.call(.post, "/v1/devices", token: ada, json: device).status == 201)
                }
            }
            func remove(_ query: String, _ body: String? = nil) async throws -> Gateway.Answer {
                try await gateway.call(.delete, path + query, token: ada, json: body)
            }
            func apps() async throws -> Set<String> {
                let list = try await gateway.call(.get, "/v1/devices", token: ada)
                return Set(list.body["devices"]?.array?.compactMap { $0["app"]?.string } ?? [])
            }
            try await register()
            #expect(try await remove("", #"{"device_id":"d","app":"three"}"#).status == 404)
            #expect(try await remove("", #"{"token":"t-two","app":"one"}"#).status == 404)
            let both = try await remove("?app=one", #"{"device_id":"d","app":"two"}"#)
            #expect(both.status == 422 && both.faults == ["app"])
            #expect(try await apps() == ["one", "two"])
            #expect(try await remove("", #"{"device_id":"d","app":"one"}"#).status == 204)
            #expect(try await apps() == ["two"])
            #expect(try await remove("?device_id=d&app=one").status == 404)
            #expect(try await remove("?device_id=d&app=two").status == 204)
            try await register()
            #expect(try await remove("", #"{"token":"t-two","app":"two"}"#).status == 204)
            #expect(try await apps() == ["one"])
            try await register()
            #expect(try await remove("?device_id=d").status == 204)
            #expect(try await apps().isEmpty)
        }
    }

    @Test("a user whose tokens change too often gets 429 with Retry-After; others may register")
    func tokenChanges() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            func register(_ user: String, _ token: String) async throws -> Gateway.Answer {
                let body = #"{"platform":"android","token":"\#(token)","device_id":"d"}"#
                return try await gateway.call(.post, "/v1/devices", token: Stack.token(user: user), json: body)
            }
            var count = 0
            var answer = try await register("ada", "t0")
            while answer.status == 201, count < 1_000 {
                count += 1
                answer = try await register("ada", "t\(count)")
            }
            #expect(answer.status == 429 && count >= 100)
            #expect(answer.header("retry-after") == "3600")
            let rows = try await stack.query("SELECT FROM carillon.delivery_attempts WHERE kind = 'token'").count
            #expect((200...202).contains(rows))
            let row = "/rest/v1/user_push_tokens?device_id=eq.d"
            let ada = Stack.token(user: "ada")
            #expect(try await gateway.call(.patch, row, token: ada, json: #"{"token":"new"}"#).status == 429)
            #expect(try await gateway.call(.patch, row, token: ada, json: #"{"locale":"de"}"#).status == 204)
            #expect(try await register("eve", "other").status == 201)
        }
    }

    @Test("a token that APNs cannot have issued is refused by name")
    func apnsTokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = Stack.token(user: "ada")
            let short = String(repeating: "ab", count: 31)
            for token in [short, short + "xy", short + "abc", String(repeating: "ab", count: 101), "phone"] {
                let body = #"{"platform":"ios","token":"\#(token)"}"#
                let answer = try await gateway.call(.post, "/v1/devices", token: ada, json: body)
                #expect(answer.status == 422, "\(token)")
                #expect(answer.faults == ["token"], "\(token)")
            }
            let long = String(repeating: "ab", count: 100)
            for token in [short + "AB", long] {
                let body = #"{"platform":"ios","token":"\#(token)"}"#
                #expect(try await gateway.call(.post, "/v1/devices", token: ada, json: body).status == 201)
            }
            let row = "/rest/v1/user_push_tokens?token=eq.\(long)"
            let changed = try await gateway.call(.patch, row, token: ada, json: #"{"token":"phone"}"#)
            #expect(changed.status == 400)
        }
    }

    @Test("an FCM topic is accepted from a service but from no user, on any path")
    func topics() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = Stack.token(user: "ada")
            let topic = #"{"platform":"android","token":"/topics/news"}"#
            let ios = #"{"platform":"ios","provider":"fcm","token":"/topics/news"}"#
            for body in [topic, ios] {
                let answer = try await gateway.call(.post, "/v1/devices", token: ada, json: body)
                #expect(answer.status == 422)
                #expect(answer.faults == ["token"])
            }
            let named = #"{"fcm_token":"/topics/news","platform":"android"}"#
            let rows = "/rest/v1/user_push_tokens"
            let others: [(TransferRequest.Method, String, String)] = [
                (.post, "/api/push/register", named), (.post, "/device-token/register", named),
                (.post, "/api/v1/devices", #"{"token":"/topics/news","platform":2}"#),
                (.post, "/api/push/gcm/", #"{"registration_id":"/topics/news"}"#), (.post, rows, "[\(topic)]"),
                (.patch, "\(rows)?platform=eq.android", #"{"token":"/topics/news"}"#),
            ]
            // A row for the PATCH among them.
            let phone = #"{"platform":"android","token":"phone"}"#
            #expect(try await gateway.call(.post, "/v1/devices", token: ada, json: phone).status == 201)
            for (method, path, body) in others {
                let answer = try await gateway.call(method, path, token: ada, json: body)
                #expect([400, 422].contains(answer.status), "\(path): \(answer.status)")
            }
            #expect(try await stack.query("SELECT FROM carillon.devices WHERE token <> 'phone'").count == 0)

            let service = Stack.token(user: "backend", scope: .service)
            #expect(try await gateway.call(.post, "/v1/devices", token: service, json: topic).status == 201)
            let record = #"{"devices":[{"platform":"android","token":"/topics/sport"}]}"#
            #expect(try await gateway.call(.put, "/v1/users/eve", token: service, json: record).status == 200)
        }
    }

    @Test("without a Web Push key the answer names the missing setting")
    func webPushKey() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["VAPID_KEY": ""])
            let answer = try await gateway.call(.get, "/v1/web-push/key", token: Stack.token(user: "ada"))
            #expect(answer.status == 404)
            #expect(answer.type == "application/problem+json")
            #expect(answer.body["detail"]?.string?.contains("VAPID_KEY") == true)
        }
    }

    @Test("settings that the body leaves out stay, and null clears them")
    func settings() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let quiet = try await gateway.call(
                .put,
                "/v1/preferences/quiet-hours",
                token: token,
                json: #"{"start":"22:00","end":"07:30","weekdays":[1,7]}"#
            )
            #expect(quiet.body["quiet_hours"]?["end"]?.string == "07:30")
            let all =
                #"{"zone":"Europe/Zurich","locale":"de-CH","email":"ada@example.com","opted_out":true,"#
                + #""email_opted_out":true}"#
            #expect(try await gateway.call(.put, "/v1/settings", token: token, json: all).status == 200)
            let some = try await gateway.call(.put, "/v1/settings", token: token, json: #"{"zone":"Asia/Tokyo"}"#)
            #expect(some.body["zone"]?.string == "Asia/Tokyo")
            #expect(some.body["locale"]?.string == "de-CH")
            #expect(some.body["email"]?.string == "ada@example.com")
            #expect(some.body["opted_out"] == .bool(true))
            #expect(some.body["email_opted_out"] == .bool(true))
            #expect(some.body["quiet_hours"]?["weekdays"]?.array?.compactMap(\.integer) == [1, 7])
            let cleared = try await gateway.call(.put, "/v1/settings", token: token, json: #"{"quiet_hours":null}"#)
            #expect(cleared.body["quiet_hours"] == .null)
            #expect(cleared.body["zone"]?.string == "Asia/Tokyo")
            #expect(try await gateway.call(.get, "/v1/settings", token: token).body == cleared.body)
            let nulls = #"{"zone":null,"locale":null,"email":null,"opted_out":null,"email_opted_out":null}"#
            let none = try await gateway.call(.put, "/v1/settings", token: token, json: nulls)
            for name in ["zone", "locale", "email"] { #expect(none.body[name] == .null, "\(name)") }
            for name in ["opted_out", "email_opted_out"] { #expect(none.body[name] == .bool(false), "\(name)") }
            // As phones with regional preferences, Java and Apple write it.
            for locale in ["zh-Hans-CN-u-fw-mon-ms-metric-mu-celsius", "zh_CN_#Hans", "th_TH@calendar=gregorian"] {
                let answer = try await gateway.call(
                    .put, "/v1/settings", token: token, json: #"{"locale":"\#(locale)"}"#)
                #expect(answer.body["locale"]?.string == locale)
                let device = #"{"platform":"android","token":"\#(locale)","locale":"\#(locale)"}"#
                #expect(try await gateway.call(.post, "/v1/devices", token: token, json: device).status == 201)
            }
            // Setting quiet hours keeps the other settings.
            _ = try await gateway.call(.put, "/v1/settings", token: token, json: all)
            let later = try await gateway.call(
                .put, "/v1/preferences/quiet-hours", token: token, json: #"{"start":"01:00","end":"02:00"}"#)
            #expect(later.body["email"]?.string == "ada@example.com")
            #expect(later.body["email_opted_out"] == .bool(true))
        }
    }

    @Test("channels that a preference leaves out stay, and null returns them to the default")
    func partialPreferences() async throws {
        try await Stack.with { stack in
            let catalog = try stack.catalog("types: {news: {category: world, channels: [in_app, push, email]}}")
            let gateway = try await stack.startGateway(environment: catalog)
            let token = Stack.token(user: "ada")
            func put(_ json: String) async throws -> JSONValue? {
                let answer = try await gateway.call(.put, "/v1/preferences", token: token, json: json)
                #expect(answer.status == 200, "\(answer.body)")
                return answer.body
            }
            _ = try await put(#"{"types":[{"type":"news","in_app":false,"push":false}]}"#)
            _ = try await put(#"{"categories":[{"category":"world","push":false,"email":true}]}"#)
            let partial = try await put(#"{"types":[{"type":"news","email":false}]}"#)?["types"]?.array?.first
            #expect(partial?["in_app"] == .bool(false))
            #expect(partial?["push"] == .bool(false))
            func own(_ type: JSONValue?) -> [JSONValue?] { ["in_app", "push", "email"].map { type?["own"]?[$0] } }
            #expect(own(partial) == [.bool(false), .bool(false), .bool(false)])
            let cleared = try await put(
                #"{"types":[{"type":"news","in_app":null,"push":null,"email":null}],"#
                    + #""categories":[{"category":"world","push":null}]}"#)
            let type = cleared?["types"]?.array?.first
            #expect(type?["in_app"] == .bool(true))
            #expect(type?["push"] == .bool(true))
            // The category's word that the body has left out.
            #expect(type?["email"] == .bool(true))
            #expect(own(type) == [.null, .null, .null])
        }
    }

    @Test("e-mail enabled without a working address is reported by settings and preferences")
    func emailMissing() async throws {
        try await Stack.with { stack in
            var environment = try stack.catalog(
                """
                types:
                  news: {channels: [in_app, email]}
                  plain: {}
                """)
            environment["LOG_LEVEL"] = "warning"
            let gateway = try await stack.startGateway(environment: environment)
            let token = Stack.token(user: "ada")
            func missing(_ path: String) async throws -> Bool? {
                try await gateway.call(.get, path, token: token).body["email_missing"]?.bool
            }
            func put(_ path: String, _ json: String) async throws -> Bool? {
                try await gateway.call(.put, path, token: token, json: json).body["email_missing"]?.bool
            }
            for path in ["/v1/settings", "/v1/preferences"] { #expect(try await missing(path) == false) }
            #expect(try await put("/v1/preferences", #"{"types":[{"type":"plain","email":true}]}"#) == false)
            #expect(try await put("/v1/preferences", #"{"types":[{"type":"news","email":true}]}"#) == true)
            #expect(try await missing("/v1/settings") == true)
            #expect(try await put("/v1/settings", #"{"email_opted_out":true}"#) == false)
            #expect(try await put("/v1/settings", #"{"email_opted_out":false}"#) == true)
            #expect(try await put("/v1/settings", #"{"email":"ada@example.com"}"#) == false)
            #expect(try await missing("/v1/preferences") == false)
            // A relay has refused the address.
            _ = try await stack.query("UPDATE carillon.user_settings SET email_invalid_at = now()")
            for path in ["/v1/settings", "/v1/preferences"] { #expect(try await missing(path) == true) }
        }
    }

    @Test("accepts 1.0 as a whole number, changes nothing for an empty list, and rejects null as a list")
    func shapesOfValues() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let hours = #"{"start":"22:00","end":"07:00","weekdays":[1.0,2e0]}"#
            let set = try await gateway.call(.put, "/v1/preferences/quiet-hours", token: token, json: hours)
            #expect(set.status == 200)
            #expect(set.body["quiet_hours"]?["weekdays"]?.array?.compactMap(\.integer) == [1, 2])
            for body in [#"{"types":[]}"#, #"{"categories":[]}"#] {
                #expect(
                    try await gateway.call(.put, "/v1/preferences", token: token, json: body).status == 200, "\(body)")
            }
            for (body, field) in [
                (#"{"categories":null}"#, "categories"), (#"{"types":null,"categories":[]}"#, "types"),
            ] {
                let answer = try await gateway.call(.put, "/v1/preferences", token: token, json: body)
                #expect(answer.status == 422 && answer.faults == [field], "\(body)")
            }
            let admin = Stack.token(user: "boss", scope: .admin)
            for body in [#"{"reason":"x","all":{}}"#, #"{"all":{}}"#, #"{"type":"x","all":"yes"}"#] {
                let answer = try await gateway.call(
                    .post, "/v1/admin/dead-letters/replay", token: admin, json: body)
                #expect(answer.status == 422 && answer.faults.contains("all"), "\(body)")
            }
        }
    }

    @Test("a required type can neither be switched off nor have its own quiet hours")
    func requiredType() async throws {
        try await Stack.with { stack in
            let catalog = try stack.catalog("types: {fire: {required: true}}")
            let gateway = try await stack.startGateway(environment: catalog)
            let token = Stack.token(user: "ada")
            let quiet = #""quiet_hours":{"start":"22:00","end":"07:00"}"#
            for (change, rule) in [
                (#""push":false"#, "be switched off"), (quiet, "have its own quiet hours"),
                (#""push":false,\#(quiet)"#, "be switched off"),
            ] {
                let answer = try await gateway.call(
                    .put, "/v1/preferences", token: token, json: #"{"types":[{"type":"fire",\#(change)}]}"#)
                #expect(answer.status == 422)
                #expect(answer.faults == ["types[0].type"])
                let reasons = answer.body["errors"]?.texts("reason")
                #expect(reasons == ["is required and cannot \(rule)"], "\(change)")
            }
            // Set before the type became required.
            try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('ada') ON CONFLICT DO NOTHING")
            try await stack.query(
                "INSERT INTO carillon.preferences (user_id, type, quiet_off) VALUES ('ada', 'fire', true)")
            let shown = try await gateway.call(.get, "/v1/preferences", token: token)
            #expect(shown.body["types"]?.array?.first?["quiet_hours"] == .null)
        }
    }

    @Test("a user who changes quiet hours or the zone too often gets 429 with Retry-After; other changes go on")
    func quietChanges() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let ada = CompatibilityClient(gateway, user: "ada")
            func set(_ number: Int) async throws -> Gateway.Answer {
                let hours = #"{"start":"22:00","end":"07:\#(10 + number % 50)"}"#
                return try await ada.send(.put, "/v1/preferences/quiet-hours", hours)
            }
            // Invalid changes do not count.
            let path = "/api/v1/notifications/preferences/quiet-hours"
            for _ in 0..<11 {
                let invalid = #"{"start":"25:00","end":"07:00"}"#
                #expect(try await ada.send(.put, "/v1/preferences/quiet-hours", invalid).status == 422)
                #expect(try await ada.send(.put, path, #"{"enabled":true}"#).status == 400)
            }
            var count = 0
            var answer = try await set(0)
            while answer.status == 200, count < 1_000 {
                count += 1
                answer = try await set(count)
            }
            #expect(answer.status == 429 && count >= 20)
            let wait = try #require(answer.header("retry-after").flatMap { Int($0) })
            #expect((1...60).contains(wait))
            let hybrid = #"{"type":"invoice_created","quiet_hours_start":"01:00","quiet_hours_end":"02:00"}"#
            let changes: [(path: String, refused: [String], accepted: String)] = [
                (
                    "/v1/settings", [#"{"zone":"Asia/Tokyo"}"#, #"{"quiet_hours":null}"#],
                    #"{"locale":"de","zone":"Asia/Tokyo","opted_out":true}"#
                ),
                (
                    "/v1/preferences", [#"{"types":[{"type":"invoice_created","quiet_hours":"none"}]}"#],
                    #"{"types":[{"type":"invoice_created","push":false}]}"#
                ),
                (
                    "/api/notifications/preferences", [hybrid],
                    #"{"type":"invoice_created","push_enabled":true}"#
                ),
                (
                    "/api/v1/notifications/preferences/quiet-hours",
                    [#"{"enabled":false}"#, #"{"enabled":true,"startTime":"01:00","endTime":"02:00"}"#], ""
                ),
            ]
            for (path, refused, accepted) in changes {
                for body in refused {
                    // One more a minute is allowed.
                    let first = try await ada.send(.put, path, body).status
                    let last = first == 200 ? try await ada.send(.put, path, body).status : first
                    #expect(last == 429, "\(path) \(body)")
                }
                guard !accepted.isEmpty else { continue }
                #expect(try await ada.send(.put, path, accepted).status == 200, "\(path)")
            }
            let service = Stack.token(user: "backend", scope: .service)
            let record = #"{"settings":{"zone":"Asia/Tokyo"}}"#
            #expect(try await gateway.call(.put, "/v1/users/ada", token: service, json: record).status == 200)
            let eve = CompatibilityClient(gateway, user: "eve")
            #expect(try await eve.send(.put, "/v1/settings", #"{"zone":"Asia/Tokyo"}"#).status == 200)
        }
    }

    @Test("each faulty field is named, and nothing changes")
    func faults() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let settings: [(String, Set<String>)] = [
                (#"{"zone":"Mars/Olympus","locale":"d","email":"x"}"#, ["zone", "email"]),
                (#"{"locale":"de CH"}"#, ["locale"]), (#"{"locale":"-"}"#, ["locale"]),
                (#"{"locale":"_#Hans"}"#, ["locale"]), (#"{"locale":"de@a\nb"}"#, ["locale"]),
                (#"{"email":"a@b\r\nBcc: c@d"}"#, ["email"]), (#"{"email":"a@b@c"}"#, ["email"]),
                // The dispatcher could not send to these.
                (#"{"email":"jörg@example.com"}"#, ["email"]), (#"{"email":"ada.@example.com"}"#, ["email"]),
                (#"{"opted_out":"yes"}"#, ["opted_out"]), (#"{"zone":""}"#, ["zone"]), (#"{"a":1}"#, ["a"]),
                (#"{"quiet_hours":{"start":"24:00","end":"7:00"}}"#, ["quiet_hours.start", "quiet_hours.end"]),
                (#"{"quiet_hours":5}"#, ["quiet_hours", "quiet_hours.start", "quiet_hours.end"]),
            ]
            for (body, fields) in settings {
                let answer = try await gateway.call(.put, "/v1/settings", token: token, json: body)
                #expect(answer.status == 422, "\(body)")
                #expect(answer.faults == fields, "\(body)")
            }
            let hours = [(#"{}"#, "start"), (#"{"start":"22:00","end":"07:00","weekdays":[0]}"#, "weekdays")]
            for (body, field) in hours {
                let answer = try await gateway.call(.put, "/v1/preferences/quiet-hours", token: token, json: body)
                #expect(answer.status == 422, "\(body)")
                #expect(answer.faults.contains(field), "\(body)")
            }
            let preferences = [
                (#"{}"#, "types"), (#"{"types":[5]}"#, "types[0]"),
                (#"{"types":[{"type":"x","push":1,"a":2}]}"#, "types[0].push"),
                (#"{"types":[{"type":"x"}]}"#, "types[0].type"),
                (#"{"types":[{"type":"invoice_created"},{"type":"invoice_created"}]}"#, "types[1].type"),
            ]
            for (body, field) in preferences {
                let answer = try await gateway.call(.put, "/v1/preferences", token: token, json: body)
                #expect(answer.status == 422, "\(body)")
                #expect(answer.faults.contains(field), "\(body): \(answer.faults)")
            }
            #expect(try await stack.query("SELECT FROM carillon.users").count == 0)
        }
    }
}

/// Subscriptions over REST.
@Suite(.timeLimit(.minutes(10)))
struct TopicRestTests {
    private static func topics(_ stack: Stack, user: String) async throws -> [String] {
        let rows = try await stack.query(
            "SELECT topic FROM carillon.subscriptions WHERE user_id = $1 ORDER BY topic", .text(user))
        return try rows.map { try $0.text(0) }
    }

    @Test("users subscribe to open topics, services subscribe anyone")
    func subscriptions() async throws {
        try await Stack.with { stack in
            let text = """
                types: {t: {}}
                topics:
                  news: {open: true}
                  "team/*": {open: true}
                  team/board: {open: false}
                """
            let gateway = try await stack.startGateway(environment: try stack.catalog(text))
            let ada = Stack.token(user: "ada")
            let service = Stack.token(user: "backend", scope: .service)
            for topic in ["news", "news", "team%2Fblue"] {
                #expect(try await gateway.call(.put, "/v1/topics/\(topic)/subscription", token: ada).status == 204)
            }
            for topic in ["team%2Fboard", "staff", "team"] {
                let answer = try await gateway.call(.put, "/v1/topics/\(topic)/subscription", token: ada)
                #expect(answer.status == 403)
                #expect(answer.type == "application/problem+json")
            }
            #expect(try await Self.topics(stack, user: "ada") == ["news", "team/blue"])
            #expect(try await gateway.call(.put, "/v1/topics/staff/members/ada", token: ada).status == 403)
            for _ in 0..<2 {
                #expect(try await gateway.call(.put, "/v1/topics/staff/members/ada", token: service).status == 204)
            }
            #expect(try await Self.topics(stack, user: "ada") == ["news", "staff", "team/blue"])
            for _ in 0..<2 {
                #expect(try await gateway.call(.delete, "/v1/topics/news/subscription", token: ada).status == 204)
                #expect(try await gateway.call(.delete, "/v1/topics/staff/members/ada", token: service).status == 204)
            }
            #expect(try await Self.topics(stack, user: "ada") == ["team/blue"])
            let long = String(repeating: "t", count: 129)
            let answer = try await gateway.call(.put, "/v1/topics/\(long)/subscription", token: ada)
            #expect(answer.status == 400)
            #expect(answer.faults == ["topic"])
        }
    }
}
