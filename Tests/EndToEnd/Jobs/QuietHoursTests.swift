// Carillon · QuietHoursTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Sandbox
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Quiet hours, caps, idle users and switches, through both programs.
@Suite(.timeLimit(.minutes(10)))
struct QuietHoursTests {
    private static let catalog = """
        types:
          news: {severity: info, delivery: push, category: world, attention_delay: 1s}
          memo: {severity: info, delivery: push, attention_delay: 1h}
          offer: {severity: info, delivery: push, category: shop, cap: {count: 2, per: 1h}}
          fire: {severity: alert, delivery: push, quiet_hours: ignore}
          whisper: {severity: info, delivery: push, quiet_hours: in_app_only}
          gone: {severity: info, delivery: push, quiet_hours: drop}
          notice: {severity: info, delivery: push, required: true}
        """

    /// - Parameter more: a further type.
    private static func with(_ more: String = "", _ body: (Stack, Gateway) async throws -> Void) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth(environment: stack.catalog("\(self.catalog)\n  \(more)\n"))
            try await body(stack, gateway)
        }
    }

    private static func set(_ gateway: Gateway, _ path: String, user: String, _ json: String) async throws {
        let answer = try await gateway.call(.put, path, token: Stack.token(user: user), json: json)
        #expect(answer.status == 200, "\(path): \(answer.body)")
    }

    @Test("deferred notifications are released when quiet hours end, and each type's policy applies")
    func policies() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await Self.set(gateway, "/v1/settings", user: "ada", QuietNow.settings)
            for type in ["news", "fire", "whisper", "gone"] {
                try await stack.append([("user", "ada"), ("type", type), ("title", type)])
            }
            try await eventually("each has its status") {
                try await stack.statuses(user: "ada")
                    == ["news": "deferred", "fire": "sent", "whisper": "sent", "gone": "suppressed"]
            }
            #expect(stack.pushed() == ["ada-phone": ["fire"]])
            // A change of quiet hours re-evaluates waiting notifications at once.
            try await Self.set(gateway, "/v1/settings", user: "ada", #"{"quiet_hours":null}"#)
            try await eventually("the deferred one is pushed") { stack.pushed() == ["ada-phone": ["fire", "news"]] }
            try await eventually("it counts as sent") { try await stack.statuses(user: "ada")["news"] == "sent" }
            let rows = try await stack.query("SELECT id FROM carillon.notifications WHERE title = 'news'")
            let id = NotificationID(try #require(rows.first).uuid(0))
            let trace = try await gateway.call(
                .get, "/v1/admin/notifications/\(id)/trace?user=ada",
                token: Stack.token(user: "root", scope: .admin))
            let steps = trace.body["steps"]?.array?.filter { $0["outcome"]?.string != "retry" } ?? []
            #expect(steps.compactMap { $0["event"]?.string } == ["enqueued", "stored", "deferred", "push"])
            let deferral = steps.first { $0["event"]?.string == "deferred" }
            #expect(deferral?["reason"]?.string == "quiet_hours")
            let until = try #require(deferral?["until"]?.string.flatMap { Timestamp(rfc3339: $0) })
            let at = try #require(deferral?["at"]?.string.flatMap { Timestamp(rfc3339: $0) })
            #expect(until > at)
        }
    }

    @Test("more than five deferred notifications become one summary without those read or outside the inbox")
    func summary() async throws {
        try await Self.with { stack, gateway in
            let token = Stack.token(user: "ben")
            try await gateway.register(user: "ben", platform: "android", token: "ben-phone")
            try await Self.set(gateway, "/v1/settings", user: "ben", QuietNow.settings)
            for number in 1...7 {
                try await stack.append([("user", "ben"), ("type", "news"), ("title", "n\(number)")])
            }
            try await stack.append([
                ("user", "ben"), ("type", "news"), ("title", "push only"), ("channels", #"["push"]"#),
            ])
            try await eventually("all wait") {
                try await stack.statuses(user: "ben").values.count { $0 == "deferred" } == 8
            }
            let list = try await gateway.call(.get, "/v1/notifications?limit=1", token: token)
            let latest = try #require(list.body["notifications"]?.array?.first?["id"]?.string)
            #expect(try await gateway.call(.post, "/v1/notifications/\(latest)/read", token: token).status < 300)
            try await Self.set(gateway, "/v1/settings", user: "ben", #"{"quiet_hours":null}"#)
            try await eventually("one push gives their number") {
                stack.pushed()["ben-phone"]?.sorted() == ["6 notifications", "push only"]
            }
            let unread = try await gateway.call(.get, "/v1/notifications/unread-count", token: token)
            #expect(unread.body["unread"]?.integer == 6)
        }
    }

    @Test("caps are checked at release, not before, and notifications over the cap stay in the inbox with the reason")
    func capsAtRelease() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "gil", platform: "android", token: "gil-phone")
            try await gateway.set(QuietNow.settings, of: "gil")
            for number in 1...4 {
                try await stack.append([("user", "gil"), ("type", "offer"), ("title", "o\(number)")])
                try await eventually("it waits, over the cap or not") {
                    try await stack.statuses(user: "gil")["o\(number)"] == "deferred"
                }
            }
            #expect(try await stack.connection.send("EXISTS", "carillon:used:{gil}:type:offer").integer() == 0)
            try await gateway.set(QuietNow.over, of: "gil")
            func capped() async throws -> [[String]] {
                let rows = try await stack.query(
                    """
                    SELECT title, status, coalesce(status_reason, '') FROM carillon.notifications
                    WHERE user_id = 'gil' AND status_reason = 'capped_by_type' ORDER BY title
                    """
                )
                return try rows.map { [try $0.text(0), try $0.text(1), try $0.text(2)] }
            }
            try await eventually("two are pushed") { Set(stack.pushed()["gil-phone"] ?? []) == ["o1", "o2"] }
            try await eventually("the others rest") {
                try await capped() == ["o3", "o4"].map { [$0, "sent", "capped_by_type"] }
            }
            // Pushes at release count.
            try await stack.append([("user", "gil"), ("type", "offer"), ("title", "o5")])
            try await eventually("the next one is over the cap") { try await capped().count == 3 }
            #expect(stack.pushed()["gil-phone"]?.count == 2)
            let unread = try await gateway.call(
                .get, "/v1/notifications/unread-count", token: Stack.token(user: "gil"))
            #expect(unread.body["unread"]?.integer == 5)
        }
    }

    @Test(
        "pushes one by one when the user or the catalog has switched summaries off",
        arguments: ["summary: {delivery: push}", "summary: {delivery: push, enabled: false}"])
    func refusedSummary(type: String) async throws {
        try await Self.with(type) { stack, gateway in
            try await gateway.register(user: "mia", platform: "android", token: "mia-phone")
            try await gateway.set(QuietNow.settings, of: "mia")
            if !type.contains("enabled") {
                try await Self.set(
                    gateway, "/v1/preferences", user: "mia", #"{"types":[{"type":"summary","push":false}]}"#)
            }
            let titles = (1...6).map { "n\($0)" }
            for title in titles {
                try await stack.append([("user", "mia"), ("type", "news"), ("title", title)])
            }
            try await eventually("all wait") {
                try await stack.statuses(user: "mia").values.count { $0 == "deferred" } == 6
            }
            try await gateway.set(QuietNow.over, of: "mia")
            try await eventually("each is pushed") { stack.pushed()["mia-phone"]?.sorted() == titles }
            try await eventually("each counts as sent by its own push") {
                let rows = try await stack.query("SELECT sent_via FROM carillon.notifications WHERE user_id = 'mia'")
                return try rows.map { try $0.optionalText(0) } == [String?](repeating: "fcm", count: 6)
            }
        }
    }

    @Test("pushes one by one to clients of moved systems, which cannot open a summary")
    func movedClients() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let types = ["payment_received", "task_completed", "scheduled_reminder"]
            let titles = (1...6).map { "n\($0)" }
            for type in types {
                try await gateway.register(user: type, platform: "android", token: type)
                try await gateway.set(QuietNow.settings, of: type)
                for title in titles { try await stack.append([("user", type), ("type", type), ("title", title)]) }
            }
            for type in types {
                try await eventually("all wait") {
                    try await stack.statuses(user: type).values.count { $0 == "deferred" } == 6
                }
                try await gateway.set(QuietNow.over, of: type)
            }
            for type in types {
                try await eventually("each is pushed") { stack.pushed()[type]?.sorted() == titles }
            }
            for message in stack.sandbox.received() {
                let shown = try JSONParser.parse(message.payload)["message"]?["android"]?["notification"]
                #expect(shown?["tag"] != nil && shown?["notification_count"] == nil)
            }
        }
    }

    @Test("pushes one by one when the user switches quiet hours off for their type alone")
    func ownHours() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "noa", platform: "android", token: "noa-phone")
            try await gateway.set(QuietNow.settings, of: "noa")
            let titles = (1...6).map { "n\($0)" }
            for title in titles { try await stack.append([("user", "noa"), ("type", "news"), ("title", title)]) }
            try await eventually("all wait") {
                try await stack.statuses(user: "noa").values.count { $0 == "deferred" } == 6
            }
            try await Self.set(
                gateway, "/v1/preferences", user: "noa", #"{"types":[{"type":"news","quiet_hours":"none"}]}"#)
            try await eventually("each is pushed") { stack.pushed()["noa-phone"]?.sorted() == titles }
        }
    }

    @Test("required notifications are pushed one by one, even to users who opted out of everything")
    func required() async throws {
        try await Self.with { stack, gateway in
            let notices = (1...6).map { "notice \($0)" }
            for (user, others) in [("hal", 0), ("ivy", 6), ("jon", 5)] {
                try await gateway.register(user: user, platform: "android", token: "\(user)-phone")
                try await gateway.set(QuietNow.settings, of: user)
                for title in notices {
                    try await stack.append([("user", user), ("type", "notice"), ("title", title)])
                }
                for number in 0..<others {
                    try await stack.append([("user", user), ("type", "news"), ("title", "news \(number)")])
                }
                try await eventually("all wait") {
                    try await stack.statuses(user: user).values.count { $0 == "deferred" } == 6 + others
                }
            }
            try await gateway.set(#"{"opted_out":true,"quiet_hours":null}"#, of: "hal")
            for user in ["ivy", "jon"] { try await gateway.set(QuietNow.over, of: user) }
            let expected = [
                "hal-phone": notices, "ivy-phone": ["6 notifications"] + notices,
                "jon-phone": (0..<5).map { "news \($0)" } + notices,
            ]
            try await eventually("each notice comes alone, and many others as a summary") {
                stack.pushed().mapValues { $0.sorted() } == expected.mapValues { $0.sorted() }
            }
            try await eventually("no notice counts as part of a summary") {
                let rows = try await stack.query(
                    "SELECT DISTINCT sent_via FROM carillon.notifications WHERE type = 'notice'")
                return try rows.map { try $0.optionalText(0) } == ["fcm"]
            }
        }
    }

    @Test("a trace names the summary of a notification, and a summary has its items' organisation if they share one")
    func summaryTrace() async throws {
        try await Self.with { stack, gateway in
            // The same name in one scalar and in two: two organisations.
            for (user, orgs) in [("kim", ["acme"]), ("lea", ["caf\u{e9}", "cafe\u{301}"])] {
                try await gateway.register(user: user, platform: "android", token: "\(user)-phone")
                try await gateway.set(QuietNow.settings, of: user)
                for number in 0..<6 {
                    let org = orgs[number % orgs.count]
                    try await stack.append([
                        ("user", user), ("type", "news"), ("title", "n\(number)"), ("org", org),
                    ])
                }
                try await eventually("all wait") {
                    try await stack.statuses(user: user).values.count { $0 == "deferred" } == 6
                }
                try await gateway.set(QuietNow.over, of: user)
            }
            let admin = Stack.token(user: "root", scope: .admin)
            for (user, org) in [("kim", "acme"), ("lea", "")] {
                try await eventually("the summary is sent") {
                    stack.pushed()["\(user)-phone"] == ["6 notifications"]
                }
                let summary = try #require(
                    try await stack.query(
                        "SELECT id, org_id FROM carillon.notifications WHERE user_id = $1 AND type = 'summary'",
                        .text(user)
                    ).first)
                #expect(try summary.text(1) == org)
                let id = NotificationID(try summary.uuid(0)).description
                let items = try await stack.query(
                    "SELECT id FROM carillon.notifications WHERE user_id = $1 AND type = 'news'", .text(user))
                for item in items {
                    let path = "/v1/admin/notifications/\(NotificationID(try item.uuid(0)))/trace?user=\(user)"
                    try await eventually("the trace names it once") {
                        let steps = try await gateway.call(.get, path, token: admin).body["steps"]?.array ?? []
                        let summarised = steps.filter { $0["event"]?.string == "summarised" }
                        return summarised.map { $0["summary"]?.string } == [id]
                    }
                }
            }
        }
    }

    @Test("a second summary leaves the first alone")
    func twoSummaries() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "fay", platform: "android", token: "fay-phone")
            for night in 1...2 {
                try await gateway.set(QuietNow.settings, of: "fay")
                for number in 1...6 {
                    try await stack.append([("user", "fay"), ("type", "news"), ("title", "\(night).\(number)")])
                }
                try await eventually("all wait") {
                    try await stack.statuses(user: "fay").values.count { $0 == "deferred" } == 6
                }
                try await gateway.set(QuietNow.over, of: "fay")
                try await eventually("the morning's summary") {
                    stack.pushed() == ["fay-phone": [String](repeating: "6 notifications", count: night)]
                }
            }
            try await eventually("both count as sent") {
                let rows = try await stack.query(
                    "SELECT status, replaced_by IS NULL FROM carillon.notifications WHERE type = 'summary'")
                return try rows.map { [try $0.text(0), "\(try $0.bool(1))"] } == [["sent", "true"], ["sent", "true"]]
            }
            // The pushes have different tags, so the phone shows both.
            let tags = try stack.sandbox.received().map {
                try JSONParser.parse($0.payload)["message"]?["android"]?["notification"]?["tag"]?.string
            }
            #expect(Set(tags).count == 2)
        }
    }

    @Test("an open socket gets a silent notification in quiet hours, and no push follows")
    func silent() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "cleo", platform: "android", token: "cleo-phone")
            try await Self.set(gateway, "/v1/settings", user: "cleo", QuietNow.settings)
            let socket = try await TestSocket.synced(port: gateway.port, user: "cleo")
            try await stack.append([("user", "cleo"), ("type", "news"), ("title", "psst")])
            #expect(try await socket.first("notification")["notification"]?["silent"]?.bool == true)
            try await eventually("it is confirmed") { try await stack.statuses(user: "cleo") == ["psst": "delivered"] }
            try await Self.set(gateway, "/v1/settings", user: "cleo", #"{"quiet_hours":null}"#)
            try await stack.append([("user", "cleo"), ("type", "news"), ("title", "loud")])
            try await eventually("the next is loud") { socket.all("notification").count == 2 }
            #expect(socket.all("notification").last?["notification"]?["silent"] == nil)
            let pushed = stack.pushed()
            let isLate = try await stack.hasLateProof()
            #expect(pushed.isEmpty || isLate)
        }
    }

    @Test("a type over its cap stays in the inbox with the reason; a category and a device can be switched off")
    func switches() async throws {
        try await Self.with { stack, gateway in
            let token = Stack.token(user: "dora")
            let phone = try await gateway.register(user: "dora", platform: "android", token: "dora-phone")
            for number in 1...3 {
                try await stack.append([("user", "dora"), ("type", "offer"), ("title", "o\(number)")])
            }
            try await eventually("two are pushed") { stack.pushed()["dora-phone"]?.sorted() == ["o1", "o2"] }
            try await eventually("the third rests in the inbox") {
                let list = try await gateway.call(.get, "/v1/notifications", token: token)
                return list.body["notifications"]?.array?.first { $0["title"]?.string == "o3" }?["held_back"]?.string
                    == "capped_by_type"
            }
            try await Self.set(
                gateway, "/v1/preferences", user: "dora", #"{"categories":[{"category":"world","push":false}]}"#)
            try await stack.append([("user", "dora"), ("type", "news"), ("title", "no push")])
            try await eventually("the category's switch holds") {
                try await stack.statuses(user: "dora")["no push"] == "sent"
            }
            try await Self.set(gateway, "/v1/devices/\(phone)", user: "dora", #"{"enabled":false}"#)
            try await stack.append([("user", "dora"), ("type", "fire"), ("title", "to nobody")])
            try await eventually("a disabled device gets nothing") {
                try await stack.statuses(user: "dora")["to nobody"] == "sent"
            }
            #expect(stack.pushed()["dora-phone"]?.sorted() == ["o1", "o2"])
            try await Self.set(gateway, "/v1/devices/\(phone)", user: "dora", #"{"enabled":true}"#)
            try await stack.append([("user", "dora"), ("type", "fire"), ("title", "again")])
            try await eventually("an enabled device gets the next") {
                stack.pushed()["dora-phone"]?.contains("again") == true
            }
        }
    }

    @Test("an idle user is pushed after the type's delay")
    func attention() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "eve", platform: "android", token: "eve-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "eve")
            try await stack.makeIdle(socket, user: "eve")
            try await stack.append([("user", "eve"), ("type", "news"), ("title", "look")])
            _ = try await socket.first("notification")
            try await eventually("the phone rings too") { stack.pushed() == ["eve-phone": ["look"]] }
        }
    }

    @Test("a notification that an idle user reads within the delay is not pushed")
    func attentionRead() async throws {
        try await Self.with { stack, gateway in
            let token = Stack.token(user: "gil")
            try await gateway.register(user: "gil", platform: "android", token: "gil-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "gil")
            try await stack.makeIdle(socket, user: "gil")
            for title in ["seen", "unseen"] {
                try await stack.append([("user", "gil"), ("type", "memo"), ("title", title)])
            }
            try await eventually("their pushes are deferred") {
                try await stack.query("SELECT 1 FROM carillon.follow_ups").count == 2
            }
            try await eventually("both frames are there") { socket.titles == ["seen", "unseen"] }
            let id = try #require(socket.notifications.first?["id"]?.string)
            #expect(try await gateway.call(.post, "/v1/notifications/\(id)/read", token: token).status < 300)
            // The delay is over.
            try await stack.query("UPDATE carillon.follow_ups SET due_at = now()")
            try await eventually("the phone rings for what is unread") {
                stack.pushed()["gil-phone"]?.contains("unseen") == true
            }
            try await eventually("no follow-up is left") {
                try await stack.query("SELECT 1 FROM carillon.follow_ups").isEmpty
            }
            try await stack.waitForPushes()
            #expect(stack.pushed() == ["gil-phone": ["unseen"]])
        }
    }
}
