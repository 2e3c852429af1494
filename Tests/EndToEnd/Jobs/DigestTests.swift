// Carillon · DigestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

@testable import HTTP
@testable import Storage

/// Several notifications become one: digests and collapse keys.
@Suite(.timeLimit(.minutes(10)))
struct DigestTests {
    private static let catalog = """
        types:
          comment: {severity: info, delivery: push, digest: {window: 1h, singles: 2}}
          score: {severity: info, delivery: push}
          reply:
            severity: info
            delivery: push
            digest: {window: 1h}
            summary:
              en: {title: "{{count}} replies", body: "{{#items}}{{title}};{{/items}}"}
        """

    private static func with(_ body: (Stack, Gateway) async throws -> Void) async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            for name in ["one", "two"] { _ = try await stack.startDispatcher(name: name, environment: environment) }
            try await body(stack, gateway)
        }
    }

    @Test("after the first two scheduled jobs, the rest becomes one summary, once with two dispatchers")
    func digest() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let due = Schedules.later(.seconds(3_600))
            for number in 1...6 {
                try await stack.append([
                    ("user", "ada"), ("type", "comment"), ("title", "c\(number)"), ("digest", "post-1"),
                    ("deliver_at", due),
                ])
            }
            try await eventually("they wait for their time") { try await Schedules.count(stack) == 6 }
            try await Schedules.makeDue(stack)
            // The only one of another digest is not summarised.
            try await stack.append([
                ("user", "ada"), ("type", "comment"), ("title", "other"), ("digest", "post-2"),
            ])
            try await eventually("four wait for their summary") {
                try await stack.query("SELECT 1 FROM carillon.digest_items WHERE NOT is_single").count == 4
            }
            try await stack.closeDigests()
            try await eventually("two single ones, the other post's and a summary of four") {
                let titles = stack.pushed()["ada-phone"] ?? []
                return titles.count == 4 && titles.contains("4 notifications") && titles.contains("other")
            }
            let list = try await gateway.call(
                .get, "/v1/notifications", token: Stack.token(user: "ada"))
            let notifications = try #require(list.body["notifications"]?.array)
            #expect(notifications.count == 4)
            let summary = notifications.first { $0["title"]?.string == "4 notifications" }
            #expect(summary?["data"]?["count"]?.integer == 4)
            #expect(summary?["data"]?["notifications"]?.array?.count == 4)
        }
    }

    /// Appends replies for a user and waits until the digest holds them.
    private static func reply(
        _ stack: Stack,
        _ user: String,
        _ titles: [String],
        _ fields: [(String, String)] = []
    ) async throws {
        for title in titles {
            try await stack.append([("user", user), ("type", "reply"), ("title", title), ("digest", "k")] + fields)
        }
        try await eventually("they wait for their summary") {
            try await stack.query(
                "SELECT 1 FROM carillon.digest_items WHERE user_id = $1 AND title = ANY (string_to_array($2, ','))",
                .text(user), .text(titles.joined(separator: ","))
            ).count == titles.count
        }
    }

    /// Waits for the only notification in a user's inbox.
    private static func only(_ gateway: Gateway, _ user: String) async throws -> JSONValue {
        let token = Stack.token(user: user)
        return try await eventualValue("a notification of \(user)") {
            let list = try await gateway.call(.get, "/v1/notifications", token: token)
            let notifications = list.body["notifications"]?.array ?? []
            return notifications.count == 1 ? notifications[0] : nil
        }
    }

    @Test("a summary's text gets the count of all items and the first ten of them")
    func words() async throws {
        try await Self.with { stack, gateway in
            let titles = (1...12).map { "r\($0)" }
            try await Self.reply(stack, "gus", titles)
            try await stack.closeDigests()
            let summary = try await Self.only(gateway, "gus")
            #expect(summary["title"]?.string == "12 replies")
            let named = (summary["body"]?.string ?? "").split(separator: ";").map { String($0) }
            #expect(named.count == 10)
            #expect(Set(named).count == 10)
            #expect(Set(named).isSubset(of: titles))
            #expect(summary["data"]?["count"]?.integer == 12)
            #expect(summary["data"]?["notifications"]?.array?.count == 10)
        }
    }

    @Test("items without the variables of a summary's text are left out, logged once per type")
    func missing() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  reply:
                    digest: {window: 1h}
                    summary:
                      en: {title: "{{count}} replies", body: "{{#items}}{{data.post}};{{/items}}"}
                """
            )
            let gateway = try await stack.startGateway(environment: environment)
            let dispatcher = try await stack.startDispatcher(environment: environment)
            for user in ["some", "none"] {
                try await Self.reply(stack, user, ["bare 1", "bare 2"])
            }
            try await Self.reply(stack, "some", ["whole"], [("data", #"{"post":"p3"}"#)])
            try await stack.closeDigests()
            let some = try await Self.only(gateway, "some")
            #expect(some["title"]?.string == "3 replies")
            #expect(some["body"]?.string == "p3;")
            #expect(some["data"]?["count"]?.integer == 3)
            let none = try await Self.only(gateway, "none")
            #expect(none["title"]?.string == "2 notifications")
            #expect(Set((none["body"]?.string ?? "").split(separator: "\n")) == ["bare 1", "bare 2"])
            let lines = dispatcher.errors().split(separator: "\n").filter {
                $0.contains("summary template needs a variable that items lack")
            }
            #expect(lines.count == 1)
            #expect(lines.first?.contains("data.post") == true)
        }
    }

    @Test("a summary's mail has the e-mail parts of its text")
    func mail() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  reply:
                    channels: [in_app, email]
                    digest: {window: 1h}
                    summary:
                      en:
                        title: "{{count}} replies"
                        email_subject: "{{count}} new replies"
                        email_html: "<ul>{{#items}}<li>{{title}}</li>{{/items}}</ul>"
                """
            )
            let gateway = try await stack.startGateway(environment: environment)
            let settings = environment.merging(stack.mailSettings(gateway: gateway)) { $1 }
            _ = try await stack.startDispatcher(environment: settings)
            try await stack.setAddress("ada@example.com", of: "ada", wanting: "reply", by: gateway)
            try await Self.reply(stack, "ada", ["<a>", "<b>"])
            try await stack.closeDigests()
            let mail = try await stack.firstMail()
            #expect(mail.subject == "2 new replies")
            #expect(mail.html.hasPrefix("<ul><li>&lt;"))
            #expect(mail.html.contains("<li>&lt;a&gt;</li>") && mail.html.contains("<li>&lt;b&gt;</li>"))
            #expect(mail.text.hasPrefix("2 replies"))
        }
    }

    @Test("a summary has none of its type's buttons, also after a snooze")
    func buttons() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  reply: {delivery: push, category: replies, actions: replies, digest: {window: 1h}}
                actions:
                  replies: {buttons: {answer: {}}, default: {category: REPLY, buttons: [answer]}}
                """
            )
            let gateway = try await stack.startBoth(environment: environment)
            let phone = String(repeating: "ab", count: 32)
            try await gateway.register(user: "ada", platform: "ios", token: phone)
            try await Self.reply(stack, "ada", ["a", "b"])
            try await stack.closeDigests()
            let summary = try await Self.only(gateway, "ada")
            let id = try #require(summary["id"]?.string)
            try await eventually("it is pushed") { stack.pushed()[phone] == ["2 notifications"] }
            let answer = try await gateway.call(
                .post, "/v1/notifications/\(id)/snooze", token: Stack.token(user: "ada"),
                json: #"{"until":"\#(Schedules.later(.seconds(3_600)))"}"#)
            #expect(answer.status == 200)
            try await Schedules.makeDue(stack)
            try await eventually("it is pushed again") {
                stack.pushed()[phone]?.count { $0 == "2 notifications" } == 2
            }
            let back = try await Self.only(gateway, "ada")
            #expect(back["id"]?.string != id)
            #expect(back["data"]?["count"]?.integer == 2)
            #expect(back["data"]?["actions"]?.array == [])
            for message in stack.sandbox.received() {
                #expect(try JSONParser.parse(message.payload)["aps"]?["category"] == nil)
            }
        }
    }

    @Test("an inbox-only summary is not pushed, and expired items are left out")
    func channels() async throws {
        try await Self.with { stack, gateway in
            for user in ["hal", "ida"] {
                try await gateway.register(user: user, platform: "android", token: "\(user)-phone")
            }
            try await Self.reply(stack, "hal", ["a", "b"], [("channels", #"["in_app"]"#)])
            try await Self.reply(stack, "ida", ["a", "b"], [("delivery", "in_app")])
            try await stack.query(
                """
                UPDATE carillon.digest_items SET expires_at = now() WHERE user_id = 'ida' AND title = 'a'
                """
            )
            try await stack.closeDigests()
            try await eventually("both rest in the inbox") {
                let hal = try await stack.statuses(user: "hal")
                let ida = try await stack.statuses(user: "ida")
                return hal == ["2 replies": "sent"] && ida == ["b": "sent"]
            }
            #expect(stack.pushed().isEmpty)
        }
    }

    @Test("a digest of one item is sent as that item")
    func alone() async throws {
        try await Self.with { stack, gateway in
            try await Self.reply(
                stack, "jon", ["only"],
                [
                    ("id", "j9"), ("url", "https://example.org/9"), ("image", "https://example.org/9.png"),
                    ("severity", "warning"), ("category", "news"),
                ])
            try await stack.closeDigests()
            let notification = try await Self.only(gateway, "jon")
            #expect(notification["title"]?.string == "only")
            #expect(notification["url"]?.string == "https://example.org/9")
            #expect(notification["image"]?.string == "https://example.org/9.png")
            #expect(notification["severity"]?.string == "warning")
            #expect(notification["category"]?.string == "news")
            let service = Stack.token(user: "backend", scope: .service)
            let report = try await eventualValue("its job is done") {
                let report = try await gateway.call(.get, "/v1/jobs/j9", token: service)
                return report.body["final"]?.bool == true ? report : nil
            }
            #expect(report.body["recipients"]?["sent"]?.integer == 1)
        }
    }

    @Test("a digest of one item replaces the single ones before it by its collapse key")
    func aloneCollapses() async throws {
        try await Self.with { stack, gateway in
            for number in 1...3 {
                try await stack.append([
                    ("user", "mia"), ("type", "comment"), ("title", "c\(number)"), ("digest", "post"),
                    ("collapse_key", "post"),
                ])
                try await eventually("c\(number) is gathered") {
                    try await stack.query("SELECT 1 FROM carillon.digest_items").count == number
                }
            }
            try await stack.closeDigests()
            let token = Stack.token(user: "mia")
            try await eventually("the last one is in the inbox alone") {
                let list = try await gateway.call(.get, "/v1/notifications", token: token)
                return list.body["notifications"]?.array?.compactMap { $0["title"]?.string } == ["c3"]
            }
        }
    }

    @Test("an item that PostgreSQL cannot store is dead-lettered, and the items with it are held")
    func unstorable() async throws {
        try await Self.with { stack, _ in
            _ = try await stack.query(
                """
                CREATE FUNCTION carillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE numeric_value_out_of_range; END $$
                """)
            for table in ["digest_items", "notifications"] {
                _ = try await stack.query(
                    """
                    CREATE TRIGGER refuse BEFORE INSERT ON carillon.\(table) FOR EACH ROW
                    WHEN (NEW.title = 'bad') EXECUTE FUNCTION carillon.refuse()
                    """)
            }
            try await stack.append([
                ("users", #"["nia","ole"]"#), ("type", "reply"), ("title", "good"), ("digest", "k"),
            ])
            let bad = try await stack.append([
                ("user", "nia"), ("type", "reply"), ("title", "bad"), ("digest", "k"),
            ])
            try await Self.reply(stack, "ole", ["later"])
            try await eventually("the bad one is dead-lettered") {
                try await stack.deadReasons()[bad]?.hasPrefix("PostgreSQL refused it") == true
            }
            try await eventually("the good ones are held") {
                try await stack.query("SELECT title FROM carillon.digest_items").count == 3
            }
        }
    }

    @Test("a cancelled job's items leave the summary, and a held id with different content is rejected")
    func cancel() async throws {
        try await Self.with { stack, gateway in
            let service = Stack.token(user: "backend", scope: .service)
            let early = try await gateway.call(.delete, "/v1/jobs/c0", token: service)
            #expect(early.body["status"]?.string == "pending")
            try await stack.append([
                ("user", "kim"), ("type", "reply"), ("title", "c0"), ("digest", "k"), ("id", "c0"),
            ])
            for job in ["c1", "c2", "c3"] { try await Self.reply(stack, "kim", [job], [("id", job)]) }
            let held = try await gateway.call(.get, "/v1/jobs/c1", token: service)
            #expect(held.body["recipients"]?["deferred"]?.integer == 1)
            #expect(held.body["final"]?.bool == false)
            let traced = try await stack.command(["trace", "c1"])
            #expect(traced.code == 0 && traced.output.contains("gathered"), "\(traced)")
            let answer = try await gateway.call(.delete, "/v1/jobs/c1", token: service)
            #expect(answer.body["status"]?.string == "cancelled")
            #expect(answer.body["cancelled"]?.integer == 1)
            #expect(answer.body["final"]?.bool == true)
            let other = try await stack.append([
                ("user", "kim"), ("type", "reply"), ("title", "other"), ("digest", "k"), ("id", "c2"),
            ])
            try await eventually("the id's other content is refused") {
                try await stack.deadReasons()[other]?.hasPrefix("id: was used before") == true
            }
            try await stack.closeDigests()
            try await eventually("the first is stored as cancelled, and the two others have a summary") {
                try await stack.statuses(user: "kim") == ["c0": "cancelled", "2 replies": "sent"]
            }
            let late = try await gateway.call(.delete, "/v1/jobs/c2", token: service)
            #expect(late.body["status"]?.string == "too_late")
            #expect(late.body["too_late"]?.integer == 1)
            for job in ["c0", "c1"] {
                let report = try await gateway.call(.get, "/v1/jobs/\(job)", token: service)
                #expect(report.body["recipients"]?["cancelled"]?.integer == 1, "\(job)")
            }
        }
    }

    @Test("an id notifies once, with its digest first or without")
    func once() async throws {
        try await Self.with { stack, _ in
            func append(_ id: String, _ title: String, digest: Bool) async throws -> String {
                let fields = [("user", "liv"), ("type", "reply"), ("title", title), ("id", id)]
                return try await stack.append(digest ? fields + [("digest", "k")] : fields)
            }
            try await Self.reply(stack, "liv", ["held"], [("id", "h")])
            try await Self.reply(stack, "liv", ["beside"])
            _ = try await append("h", "held", digest: false)
            _ = try await append("p", "plain", digest: false)
            try await eventually("the one without a digest is stored") {
                try await stack.statuses(user: "liv").keys.contains("plain")
            }
            _ = try await append("p", "plain", digest: true)
            let refused = [
                try await append("h", "other", digest: false), try await append("p", "other", digest: true),
            ]
            try await eventually("the other content of both is refused") {
                let reasons = try await stack.deadReasons()
                return refused.allSatisfy { reasons[$0]?.hasPrefix("id: was used before") == true }
            }
            try await stack.closeDigests()
            try await eventually("the summary is of the two that were held, and nothing came twice") {
                try await stack.statuses(user: "liv") == ["2 replies": "sent", "plain": "sent"]
            }
        }
    }

    @Test("a newer notification replaces the older one on sockets and in the inbox")
    func collapse() async throws {
        try await Self.with { stack, gateway in
            let socket = try await TestSocket.synced(port: gateway.port, user: "ben")
            for (number, score) in ["1:0", "2:0"].enumerated() {
                try await stack.append([
                    ("user", "ben"), ("type", "score"), ("title", score), ("collapse_key", "match-7"),
                ])
                // Two stored together would be shown as one.
                try await eventually("the socket has \(score)") { socket.all("notification").count == number + 1 }
            }
            try await eventually("the socket has both, and loses the first") {
                socket.all("notification").count == 2 && socket.all("deleted").count == 1
            }
            let first = try #require(
                socket.all("notification").first { $0["notification"]?["title"]?.string == "1:0" })
            let removed = try #require(socket.all("deleted").first)
            #expect(removed["change"]?["ids"]?.array?.first?.string == first["notification"]?["id"]?.string)
            #expect(removed["unread"]?.integer == 1)
            let token = Stack.token(user: "ben")
            let list = try await gateway.call(.get, "/v1/notifications", token: token)
            #expect(list.body["notifications"]?.array?.compactMap { $0["title"]?.string } == ["2:0"])
            #expect(list.body["unread"]?.integer == 1)
        }
    }

    @Test("a push whose notification was replaced while it waited for a retry is not sent")
    func collapseAtTheGate() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "gus", platform: "android", token: "unavailable-once-gus")
            func append(_ title: String) async throws {
                try await stack.append([
                    ("user", "gus"), ("type", "score"), ("title", title), ("collapse_key", "match-7"),
                ])
            }
            try await append("1:0")
            // Takes the retry out of the set until the notification is replaced.
            let keys = Keyspace()
            let script = """
                local due = redis.call('ZPOPMIN', KEYS[1])
                if #due == 0 then return false end
                return due[1]
                """
            let work = try await eventualValue("the first attempt has failed") {
                try await stack.connection.send("EVAL", .text(script), "1", .text(keys.retries(.fcm, .normal))).string()
            }
            try await append("2:0")
            try await eventually("it is replaced") {
                try await stack.query(
                    "SELECT 1 FROM carillon.notifications WHERE title = '1:0' AND replaced_by IS NOT NULL"
                ).count == 1
            }
            try await stack.connection.send("XADD", .text(keys.deliveries(.fcm, .normal)), "*", "d", .text(work))
            try await eventually("the gate skips it") {
                let rows = try await stack.query(
                    "SELECT reason FROM carillon.delivery_attempts WHERE outcome = 'skipped'")
                let reasons = try rows.map { try $0.text(0) }
                // A replaced notification also leaves the inbox; either reason is right.
                return reasons.contains("replaced") || reasons.contains("deleted")
            }
            try await eventually("the newer one is pushed") { stack.pushed()["unavailable-once-gus"] != nil }
            try await stack.waitForPushes()
            #expect(stack.pushed() == ["unavailable-once-gus": ["2:0"]])
        }
    }

    @Test("a trace shows what happened to a notification, a simulation what would happen")
    func answers() async throws {
        try await Self.with { stack, gateway in
            try await gateway.register(user: "cleo", platform: "android", token: "cleo-phone")
            try await stack.append([("user", "cleo"), ("type", "score"), ("title", "3:0")])
            try await eventually("pushed") { try await stack.statuses(user: "cleo") == ["3:0": "sent"] }
            let admin = Stack.token(user: "root", scope: .admin)
            let list = try await gateway.call(
                .get, "/v1/notifications", token: Stack.token(user: "cleo"))
            let id = try #require(list.body["notifications"]?.array?.first?["id"]?.string)
            for query in ["", "?user=cleo"] {
                let trace = try await gateway.call(
                    .get, "/v1/admin/notifications/\(id)/trace\(query)", token: admin)
                #expect(trace.status == 200)
                #expect(trace.body["sent_via"]?.string == "fcm")
                let steps = trace.body["steps"]?.array?.filter { $0["outcome"]?.string != "retry" }
                #expect(steps?.compactMap { $0["event"]?.string } == ["enqueued", "stored", "push"])
                // The row's version is that of its last change.
                #expect(steps?[1]["version"] == nil)
                #expect(steps?.last?["outcome"]?.string == "accepted")
            }
            let foreign = try await gateway.call(
                .get, "/v1/admin/notifications/\(id)/trace", token: Stack.token(user: "cleo"))
            #expect(foreign.status == 403)
            let simulated = try await gateway.call(
                .post, "/v1/admin/simulate", token: admin,
                json: #"""
                    {"user": "cleo", "job": {"type": "score", "title": "x"}, "presence": "online", "proven": false,
                     "at": "2026-03-29T01:30:00Z"}
                    """#)
            let steps = simulated.body["steps"]?.array ?? []
            #expect(steps.compactMap { $0["step"]?.string } == ["store", "publish", "await_proof", "push"])
            #expect(steps.last?["at"]?.string == "2026-03-29T01:30:05.000Z")
            let nodes = try await gateway.call(.get, "/v1/admin/nodes", token: admin)
            #expect(nodes.body["gateways"]?.array?.map { $0["alive"]?.bool } == [true])
            let workers = nodes.body["dispatchers"]?.array ?? []
            #expect(!workers.isEmpty)
            #expect(workers.allSatisfy { $0["alive"]?.bool == true })
            let streams = try await gateway.call(.get, "/v1/admin/streams", token: admin)
            let jobs = streams.body["streams"]?.array?.first { $0["name"]?.string == "carillon:jobs" }
            #expect(jobs?["length"]?.integer == 0)
            #expect(jobs?["pending"]?.integer == 0)
            let faulty = try await gateway.call(
                .post, "/v1/admin/simulate", token: admin, json: #"{"user": "cleo", "job": {"type": "none"}}"#)
            #expect(faulty.status == 422)
            #expect(faulty.faults == ["job.type"])
        }
    }
}
