// Carillon · SystemScenarioTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Sandbox
import Support
import Testing

/// Notification types of the five replaced systems, with the shipped catalog.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SystemScenarioTests {
    @Test("family finance: a deposit has its text, code and thirty days, and a pause needs no reason")
    func allowance() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let child = try await CompatibilityClient(gateway, user: "child")
            try await stack.append([
                ("user", "child"), ("type", "AllowanceDeposit"), ("vars", #"{"amount":"$10","balance":"$25.50"}"#),
                ("entity_type", "Transaction"), ("entity_id", "7"),
            ])
            try await stack.append([("user", "child"), ("type", "AllowancePaused"), ("vars", "{}")])
            let missing = try await stack.append([
                ("user", "child"), ("type", "AllowanceDeposit"), ("vars", #"{"amount":"$10"}"#),
            ])
            try await child.waitForCount(2)
            let list = try await child.get("/api/v1/notifications").body["notifications"]
            #expect(list?.texts("title") == ["Allowance Paused", "Allowance Received!"])
            #expect(
                list?.texts("body") == [
                    "Your allowance has been paused",
                    "Your weekly allowance of $10 has been deposited. New balance: $25.50",
                ])
            #expect(list?.array?.last?["type"]?.integer == 10)
            try await eventually("the deposit without its balance is set aside") {
                try await stack.deadReasons()
                    == [missing: "vars.balance: is missing, in type AllowanceDeposit, locale en"]
            }
            let days = try await stack.query(
                "SELECT DISTINCT extract(day FROM expires_at - created_at)::int4 FROM carillon.notifications")
            #expect(try days.map { try $0.int4(0) } == [30])
        }
    }

    @Test("family finance: an Android phone rings with the default sound")
    func allowanceSound() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let child = try await CompatibilityClient(gateway, user: "child")
            #expect(try await child.send(.post, "/api/v1/devices", #"{"token":"phone","platform":2}"#).status < 300)
            try await stack.append([
                ("user", "child"), ("type", "AllowanceDeposit"), ("vars", #"{"amount":"$10","balance":"$25.50"}"#),
            ])
            try await eventually("it is pushed") { stack.pushed()["phone"] == ["Allowance Received!"] }
            let message = try JSONParser.parse(try #require(stack.sandbox.received().first).payload)["message"]
            #expect(message?["android"]?["notification"]?["sound"]?.string == "default")
            #expect(message?["android"]?["priority"]?.string == "HIGH")
        }
    }

    @Test("news: an alert has its text, badge, sound, data and buttons; the digest is opt-in")
    func news() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let ada = try await CompatibilityClient(gateway, user: "ada")
            let device = #"{"fcm_token":"phone","platform":"ios"}"#
            #expect(try await ada.send(.post, "/device-token/register", device).status == 200)
            try await stack.append([
                ("user", "ada"), ("type", "breaking_news"), ("id", "story:s1"), ("vars", #"{"title":"It rains"}"#),
                ("data", #"{"storyId":"s1","category":"politics","priority":"breaking","sourceCount":"5"}"#),
            ])
            try await stack.append([("user", "ada"), ("type", "daily_digest"), ("title", "Today")])
            try await eventually("the alert") { stack.pushed()["phone"] == ["🚨 BREAKING NEWS"] }
            try await eventually("the digest is suppressed") {
                try await stack.statuses(user: "ada")["Today"] == "suppressed"
            }
            let message = try JSONParser.parse(try #require(stack.sandbox.received().first).payload)["message"]
            #expect(message?["notification"]?["body"]?.string == "It rains")
            #expect(message?["android"]?["priority"]?.string == "HIGH")
            #expect(message?["android"]?["notification"]?["notification_count"]?.integer == 1)
            #expect(message?["apns"]?["payload"]?["aps"]?["sound"]?.string == "default")
            #expect(message?["apns"]?["payload"]?["aps"]?["badge"]?.integer == 1)
            #expect(message?["data"]?["storyId"]?.string == "s1")
            #expect(message?["data"]?["category"]?.string == "politics")
            let actions = try JSONParser.parse(Array(try #require(message?["data"]?["actions"]?.string).utf8))
            #expect(actions.texts("id") == ["read", "save", "share"])
        }
    }

    @Test("accounting: important types are pushed, others stay in the inbox, and maintenance is opt-in")
    func accounting() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            let types = [
                "payment_received", "invoice_overdue", "invoice_created", "profile_updated", "system_maintenance",
            ]
            for type in types { try await stack.append([("user", "ada"), ("type", type), ("title", type)]) }
            try await eventually("each is where it belongs") {
                let statuses = try await stack.statuses(user: "ada")
                return statuses.count == 5 && !statuses.values.contains("pending")
                    && statuses["system_maintenance"] == "suppressed"
            }
            #expect(Set(stack.pushed()["phone"] ?? []) == ["payment_received", "invoice_overdue"])
        }
    }

    @Test("reminders: every token of the user gets the push with its route")
    func reminders() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            for token in ["one", "two"] {
                try await gateway.register(user: "ada", platform: "android", token: token, name: token)
            }
            try await stack.append([
                ("user", "ada"), ("type", "scheduled_reminder"), ("title", "Drink"), ("url", "/notifications/log"),
            ])
            try await eventually("both have it") { stack.pushed() == ["one": ["Drink"], "two": ["Drink"]] }
            let payload = try JSONParser.parse(try #require(stack.sandbox.received().first).payload)
            #expect(payload["message"]?["data"]?["url"]?.string == "/notifications/log")
        }
    }
}
