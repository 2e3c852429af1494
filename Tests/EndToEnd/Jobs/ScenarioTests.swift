// Carillon · ScenarioTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Sandbox
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Notification types of the five replaced systems, with the shipped catalog.
@Suite(.timeLimit(.minutes(10)))
struct SystemScenarioTests {
    @Test("family finance: a deposit has its text, code and thirty days, and a pause needs no reason")
    func allowance() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let child = CompatibilityClient(gateway, user: "child")
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
            try await eventually("the deposit without its balance is dead-lettered") {
                try await stack.deadReasons()
                    == [missing: "vars.balance: is missing, in type AllowanceDeposit, locale en"]
            }
            let days = try await stack.query(
                "SELECT DISTINCT extract(day FROM expires_at - created_at)::int4 FROM carillon.notifications")
            #expect(try days.map { try $0.int4(0) } == [30])
        }
    }

    @Test("family finance: an Android phone rings with the default sound, also for a summary in the bulk lane")
    func allowanceSound() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let child = CompatibilityClient(gateway, user: "child")
            #expect(try await child.send(.post, "/api/v1/devices", #"{"token":"phone","platform":2}"#).status < 300)
            let summary = [
                ("user", "child"), ("type", "WeeklySummary"), ("vars", #"{"income":"$30","spending":"$12"}"#),
            ]
            try await stack.append(summary, stream: "carillon:jobs:bulk")
            try await eventually("it is pushed") { stack.pushed()["phone"] == ["Your Weekly Summary"] }
            let message = try JSONParser.parse(try #require(stack.sandbox.received().first).payload)["message"]
            #expect(message?["android"]?["notification"]?["sound"]?.string == "default")
            #expect(message?["android"]?["priority"]?.string == "HIGH")
        }
    }

    @Test("news: an alert has its text, badge, sound, data and buttons; the digest is opt-in")
    func news() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let ada = CompatibilityClient(gateway, user: "ada")
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
}

/// Scheduled notifications of the five replaced systems, with the shipped catalog.
@Suite(.timeLimit(.minutes(10)))
struct ScheduleScenarioTests {
    private static func service() -> String { Stack.token(user: "app", scope: .service) }

    private static func schedule(_ gateway: Gateway, _ json: String) async throws -> JSONValue {
        let answer = try await gateway.call(.post, "/v1/schedules", token: Self.service(), json: json)
        #expect(answer.status == 201, "\(answer.body)")
        return answer.body
    }

    private static func post(_ gateway: Gateway, _ json: String) async throws {
        let answer = try await gateway.call(.post, "/v1/jobs", token: Self.service(), json: json)
        #expect(answer.status == 202, "\(answer.body)")
    }

    @Test("reminders: each user is pushed at local time, later if asleep; a changed zone counts at once")
    func reminders() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            for token in ["ada-one", "unregistered-ada"] {
                try await gateway.register(user: "ada", platform: "android", token: token, name: token)
            }
            try await gateway.register(user: "bob", platform: "android", token: "bob-phone")
            // It is night for Ada; Bob has the same clock times in a zone where it is noon.
            try await gateway.set(QuietNow.settings, of: "ada")
            try await gateway.set(QuietNow.settings(zone: "Etc/GMT+12"), of: "bob")
            let created = try await Self.schedule(
                gateway,
                #"""
                {"cron":"0 9 * * *","zone":"recipient","job":{"users":["ada","bob"],"type":"scheduled_reminder",
                 "title":"Log it","url":"/notifications/log"}}
                """#)
            #expect(created["next_local"]?.string?.hasSuffix("T09:00") == true)
            // Split the occurrence first, then make it nine o'clock in both zones.
            let early = Schedules.lastMinute() + .seconds(-14 * 3_600)
            try await Schedules.makeDue(stack, daily: early)
            try await eventually("there is a part for each zone, or it was fired") {
                let parts = try await stack.query("SELECT 1 FROM carillon.schedules WHERE cron IS NULL").count
                let stored = try await stack.query("SELECT 1 FROM carillon.notifications").count
                return parts + stored == 2
            }
            try await stack.query(
                "UPDATE carillon.schedules SET due_at = now(), wake_at = now() WHERE cron IS NULL")
            try await eventually("Bob has it") { stack.pushed() == ["bob-phone": ["Log it"]] }
            try await eventually("Ada's waits") {
                try await stack.statuses(user: "ada") == ["Log it": "deferred"]
            }
            try await gateway.set(#"{"zone":"Etc/GMT+12"}"#, of: "ada")
            try await eventually("Ada has it where she is now") {
                stack.pushed() == ["bob-phone": ["Log it"], "ada-one": ["Log it"]]
            }
            let payload = try JSONParser.parse(try #require(stack.sandbox.received().last).payload)
            #expect(payload["message"]?["data"]?["url"]?.string == "/notifications/log")
            try await eventually("the dead token is deactivated") {
                let rows = try await stack.query("SELECT token FROM carillon.devices WHERE NOT active")
                return try rows.map { try $0.text(0) } == ["unregistered-ada"]
            }
        }
    }

    @Test("family finance: the weekly summary goes to the family except the child, and next week's is scheduled")
    func allowance() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            for member in ["mom", "dad", "kid"] {
                let answer = try await gateway.call(
                    .put, "/v1/topics/family-7/members/\(member)", token: Self.service())
                #expect(answer.status == 204)
            }
            try await gateway.register(user: "mom", platform: "android", token: "mom-phone")
            let moment = Schedules.lastMinute()
            let minute = moment.seconds / 60 % 1_440
            // Unix day 0 was a Thursday.
            let weekday = (moment.seconds / 86_400 + 4) % 7
            let created = try await Self.schedule(
                gateway,
                #"""
                {"cron":"\#(minute % 60) \#(minute / 60) * * \#(weekday)","zone":"UTC",
                 "job":{"topic":"family-7","except":["kid"],"type":"WeeklySummary",
                        "vars":{"income":"$30","spending":"$12"}}}
                """#)
            #expect(created["next_at"]?.string == (moment + .seconds(7 * 86_400)).rfc3339)
            try await Schedules.makeDue(stack, daily: moment)
            let words = ["Your Weekly Summary", "This week: +$30 earned, -$12 spent"]
            try await eventually("the parents have it") {
                let mom = try await stack.texts(user: "mom")
                let dad = try await stack.texts(user: "dad")
                return mom == [words] && dad == [words]
            }
            try await eventually("the phone has it") { stack.pushed() == ["mom-phone": [words[0]]] }
            #expect(try await stack.texts(user: "kid").isEmpty)
            let id = try #require(created["id"]?.string)
            try await eventually("the next one is in a week") {
                let next = try await gateway.call(.get, "/v1/schedules/\(id)", token: Self.service())
                return next.body["next_at"]?.string == (moment + .seconds(7 * 86_400)).rfc3339
            }
        }
    }

    @Test("accounting: maintenance reaches users who opted in, and a paid invoice's reminder is cancelled")
    func accounting() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "bob", platform: "android", token: "bob-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            let preference = #"{"types":[{"type":"system_maintenance","in_app":true}]}"#
            let answer = try await gateway.call(
                .put, "/v1/preferences", token: Stack.token(user: "ada"), json: preference)
            #expect(answer.status == 200)
            let later = Schedules.later(.seconds(3_600))
            _ = try await Self.schedule(
                gateway,
                #"{"at":"\#(later)","job":{"all":true,"type":"system_maintenance","title":"Back at three"}}"#)
            for invoice in ["i1", "i2"] {
                try await Self.post(
                    gateway,
                    #"""
                    {"id":"overdue:\#(invoice)","user":"bob","type":"invoice_overdue","title":"\#(invoice) is overdue",
                     "deliver_at":"\#(later)"}
                    """#)
            }
            try await eventually("all wait") { try await Schedules.count(stack) == 3 }
            let paid = try await gateway.call(.delete, "/v1/jobs/overdue:i1", token: Self.service())
            #expect(paid.status == 200)
            try await Schedules.makeDue(stack)
            try await eventually("the user who opted in gets it") { socket.titles == ["Back at three"] }
            try await eventually("the unpaid invoice is pushed") {
                stack.pushed() == ["bob-phone": ["i2 is overdue"]]
            }
            try await eventually("the paid invoice is cancelled, and no other user gets the maintenance") {
                try await stack.statuses(user: "bob") == ["i1 is overdue": "cancelled", "i2 is overdue": "sent"]
            }
        }
    }
}

/// Buttons of the household-task app: the task's state picks the category and the actions.
@Suite(.timeLimit(.minutes(10)))
struct ButtonTests {
    private static let table: [(state: String, category: String, buttons: [String])] = [
        ("overdue", "TASK_ACTIONABLE", ["edit", "complete", "cancel", "mark_in_progress"]),
        ("due_soon", "TASK_ACTIONABLE", ["edit", "complete", "cancel", "mark_in_progress"]),
        ("in_progress", "TASK_IN_PROGRESS", ["edit", "complete", "cancel"]),
        ("cancelled", "TASK_CANCELLED", ["edit"]),
        ("completed", "TASK_COMPLETED", ["edit"]),
    ]

    @Test("each task state has its category on iOS and its buttons on Android; other states have none")
    func states() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let phone = String(repeating: "ab", count: 32)
            try await gateway.register(user: "ada", platform: "ios", token: phone)
            try await gateway.register(user: "ada", platform: "android", token: "robot")
            for row in Self.table {
                try await stack.append([
                    ("user", "ada"), ("type", "task_overdue"), ("title", row.state), ("state", row.state),
                    ("entity_type", "task"), ("entity_id", "t7"),
                ])
            }
            try await stack.append([("user", "ada"), ("type", "task_assigned"), ("title", "new"), ("state", "new")])
            try await stack.append([
                ("user", "ada"), ("type", "task_overdue"), ("title", "own"), ("state", "overdue"), ("category", "MINE"),
                ("data", #"{"actions":[],"a":1}"#),
            ])
            try await eventually("both phones have them") {
                stack.pushed()[phone]?.count == 7 && stack.pushed()["robot"]?.count == 7
            }
            let received = try stack.sandbox.received().map { ($0, try JSONParser.parse($0.payload)) }
            let rows: [(state: String, category: String?, buttons: [String])] =
                Self.table.map { ($0.state, $0.category, $0.buttons) } + [("new", nil, []), ("own", "MINE", [])]
            for row in rows {
                for (message, payload) in received where Stack.title(message) == row.state {
                    switch message.provider {
                    case .apns:
                        #expect(payload["aps"]?["category"]?.string == row.category)
                        #expect(payload["actions"]?.texts("id") ?? [] == row.buttons)
                    case .fcm:
                        let actions = payload["message"]?["data"]?["actions"]?.string
                        let parsed = try actions.map { try JSONParser.parse(Array($0.utf8)) }
                        #expect(parsed?.texts("id") ?? [] == row.buttons)
                    case .webpush:
                        #expect(payload["actions"]?.texts("id") ?? [] == row.buttons)
                    case .email, .webhook: Issue.record("unexpected provider")
                    }
                }
            }
            let ada = CompatibilityClient(gateway, user: "ada")
            let inbox = try await ada.get("/v1/notifications").body["notifications"]
            #expect(
                Set(inbox?.texts("category") ?? []) == ["tasks", "MINE"],
                "the inbox shows the job's own category, or else the type's")
            let cancel = received.compactMap { $0.1["actions"]?.array?.first { $0["id"]?.string == "cancel" } }.first
            #expect(cancel?["title"]?.string == "Cancel")
            #expect(cancel?["destructive"]?.bool == true)
        }
    }
}
