// Carillon · OperatorRestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

@testable import Clients
@testable import HTTP

/// The calls of the operator's page about jobs, the whole installation, previews and dead letters.
@Suite(.timeLimit(.minutes(10)))
struct OperatorRestTests {
    private static let catalog = """
        types:
          invoice_created: {title: "Invoice created"}
          order_shipped:
            channels: [in_app, push, email]
            email_after: 1h
            templates:
              en: {title: "**{{name}}** is on its way", body: "Order {{name}}", email_subject: "Shipped: {{name}}"}
              de: {title: "{{name}} ist unterwegs", body: "Bestellung {{name}}"}
        """

    private static func admin() async throws -> String { Stack.token(user: "root", scope: .admin) }

    private static func counts(_ job: JSONValue?) -> [String: Int64] {
        (job?["statuses"]?.array ?? []).reduce(into: [:]) { counts, status in
            counts[status["status"]?.string ?? "", default: 0] += status["count"]?.integer ?? 0
        }
    }

    @Test("jobs are listed newest first, with filters and pages, and lead to their notifications")
    func jobs() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            try await stack.append([
                ("users", #"["ada","ben"]"#), ("type", "invoice_created"), ("title", "One"), ("id", "j1"),
                ("org", "shop"),
            ])
            try await eventually("the first is there") { try await stack.statuses(user: "ben") == ["One": "sent"] }
            let entry = try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "Two")])
            try await eventually("the second is there") { try await stack.statuses(user: "ada").count == 2 }

            let all = try await gateway.call(.get, "/v1/admin/jobs", token: admin)
            #expect(all.status == 200)
            let jobs = try #require(all.body["jobs"]?.array)
            #expect(jobs.map { $0["title"]?.string } == ["Two", "One"])
            #expect(jobs.map { $0["notifications"]?.integer } == [1, 2])
            #expect(jobs.map { $0["job_id"]?.string } == [nil, "j1"])
            #expect(jobs.last?["org_id"]?.string == "shop")
            #expect(Self.counts(jobs.last) == ["sent": 2])
            #expect(all.body["next_cursor"] == .null)

            let first = try await gateway.call(.get, "/v1/admin/jobs?limit=1", token: admin)
            #expect(first.body["jobs"]?.array?.map { $0["title"]?.string } == ["Two"])
            let cursor = try #require(first.body["next_cursor"]?.string)
            // Beyond the times that PostgreSQL knows.
            let beyond = "\(Int64.min).01a1f866-0d7b-841c-a9a6-5597aa0575f3.ada"
            #expect(try await gateway.call(.get, "/v1/admin/jobs?cursor=\(beyond)", token: admin).status == 400)
            let second = try await gateway.call(.get, "/v1/admin/jobs?limit=1&cursor=\(cursor)", token: admin)
            #expect(second.body["jobs"]?.array?.map { $0["title"]?.string } == ["One"])

            for (query, titles) in [
                ("type=payment_received", ["Two"]), ("org=shop", ["One"]), ("status=failed", []),
                ("until=2020-01-01T00:00:00Z", []), ("since=2020-01-01T00:00:00Z&type=invoice_created", ["One"]),
            ] {
                let found = try await gateway.call(.get, "/v1/admin/jobs?\(query)", token: admin)
                #expect(found.body["jobs"]?.array?.compactMap { $0["title"]?.string } == titles, "\(query)")
            }
            for query in ["cursor=x", "status=gone", "colour=red"] {
                #expect(try await gateway.call(.get, "/v1/admin/jobs?\(query)", token: admin).status == 400, "\(query)")
            }

            let path = "/v1/admin/jobs/j1/notifications"
            let page = try await gateway.call(.get, "\(path)?org=shop&limit=1", token: admin)
            #expect(page.body["notifications"]?.array?.map { $0["user_id"]?.string } == ["ada"])
            #expect(page.body["next_cursor"]?.string == "ada")
            let rest = try await gateway.call(.get, "\(path)?org=shop&cursor=ada", token: admin)
            #expect(rest.body["notifications"]?.array?.map { $0["user_id"]?.string } == ["ben"])
            #expect(rest.body["next_cursor"] == .null)
            // Without its organisation, the id is unknown.
            #expect(try await gateway.call(.get, path, token: admin).status == 404)
            let ofEntry = try await gateway.call(.get, "/v1/admin/jobs/\(entry)/notifications", token: admin)
            #expect(ofEntry.body["notifications"]?.array?.map { $0["title"]?.string } == ["Two"])
            let service = Stack.token(user: "backend", scope: .service)
            for path in ["/v1/admin/jobs", path, "/v1/admin/overview", "/v1/admin/audiences?all=true"] {
                #expect(try await gateway.call(.get, path, token: service).status == 403, "\(path)")
            }
        }
    }

    @Test("a page of jobs ends where its last job begins, though many have the same moment")
    func sameMoment() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            let users = (0..<9).map { "\"u\($0)\"" }.joined(separator: ",")
            try await stack.append([("users", "[\(users)]"), ("type", "invoice_created"), ("title", "x"), ("id", "j")])
            try await eventually("all are stored") {
                try await stack.query("SELECT FROM carillon.notifications").count == 9
            }
            _ = try await stack.query(
                """
                UPDATE carillon.notifications SET stored_at = date_trunc('minute', now()),
                    job_id = CASE WHEN user_id < 'u3' THEN 'a' WHEN user_id < 'u6' THEN 'b' ELSE 'c' END
                """)
            var seen: [String: Int64] = [:]
            var cursor = ""
            for _ in 0..<3 {
                let page = try await gateway.call(.get, "/v1/admin/jobs?limit=1\(cursor)", token: admin)
                let job = try #require(page.body["jobs"]?.array?.first)
                seen[job["job_id"]?.string ?? "", default: 0] += job["notifications"]?.integer ?? 0
                guard let next = page.body["next_cursor"]?.string else { break }
                cursor = "&cursor=\(next)"
            }
            #expect(seen == ["a": 3, "b": 3, "c": 3])
        }
    }

    @Test("a notification, or all of a job with a status, is sent again as a new job")
    func resend() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            try await stack.append([
                ("users", #"["ada","ben"]"#), ("type", "invoice_created"), ("title", "One"), ("id", "j1"),
                ("data", #"{"a":1}"#), ("collapse_key", "k"),
            ])
            try await eventually("both have it") { try await stack.statuses(user: "ben") == ["One": "sent"] }
            let again = try await gateway.call(
                .post, "/v1/admin/jobs/j1/resend", token: admin, json: #"{"status":"sent"}"#)
            #expect(again.status == 202)
            #expect(again.body["count"]?.integer == 2)
            #expect(again.body["next_cursor"] == .null)
            let none = try await gateway.call(
                .post, "/v1/admin/jobs/j1/resend", token: admin, json: #"{"status":"failed"}"#)
            #expect(none.status == 202 && none.body["count"]?.integer == 0)
            // Another id, and another organisation.
            for (job, json) in [("j2", #"{"status":"sent"}"#), ("j1", #"{"status":"sent","org":"shop"}"#)] {
                let unknown = try await gateway.call(
                    .post, "/v1/admin/jobs/\(job)/resend", token: admin, json: json)
                #expect(unknown.status == 404, "\(job)")
            }
            for (query, status) in [("j1/notifications?status=failed", 200), ("j2/notifications", 404)] {
                let list = try await gateway.call(.get, "/v1/admin/jobs/\(query)", token: admin)
                #expect(list.status == status, "\(query)")
            }
            try await eventually("both have it again") {
                try await stack.query("SELECT FROM carillon.notifications WHERE job_id LIKE 'resend:%'").count == 2
            }
            let rows = try await stack.query(
                "SELECT id::text, data::text FROM carillon.notifications WHERE user_id = 'ada' AND job_id = 'j1'")
            let id = try #require(try rows.first?.text(0))
            let copy = try await stack.query(
                "SELECT title, data ->> 'a' FROM carillon.notifications WHERE job_id LIKE 'resend:' || $1 || ':%'",
                .text(id))
            #expect(try copy.first?.text(0) == "One")
            #expect(try copy.first?.text(1) == "1")

            let path = "/v1/admin/notifications/\(id)/resend"
            let one = try await gateway.call(.post, "\(path)?user=ada", token: admin)
            #expect(one.status == 202)
            #expect(one.body["id"]?.string?.hasPrefix("resend:\(id):") == true)
            #expect(try await gateway.call(.post, "\(path)?user=ben", token: admin).status == 404)
            #expect(try await gateway.call(.post, path, token: admin).status == 400)
            let wrong = try await gateway.call(.post, "/v1/admin/jobs/j1/resend", token: admin, json: "{}")
            #expect(wrong.body["errors"]?.array?.first?["field"]?.string == "status")

            // The same key sends each once.
            for _ in 0..<2 {
                let keyed = try await gateway.call(
                    .post, "/v1/admin/jobs/j1/resend", token: admin, json: #"{"status":"sent","key":"k1"}"#)
                #expect(keyed.body["count"]?.integer == 2)
            }
            try await stack.append([("user", "ben"), ("type", "invoice_created"), ("title", "Last")])
            try await eventually("the last is stored") {
                try await stack.query("SELECT FROM carillon.notifications WHERE title = 'Last'").count == 1
            }
            let keyed = try await stack.query("SELECT FROM carillon.notifications WHERE job_id LIKE 'resend:%:k1'")
            #expect(keyed.count == 2)
            #expect(try await stack.query("SELECT FROM carillon.dead_letters").isEmpty)
        }
    }

    @Test("a resend of a large job may find no match in one call, and the next call continues after it")
    func largeResend() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            try await stack.append([("user", "zoe"), ("type", "invoice_created"), ("title", "One"), ("id", "j1")])
            try await eventually("she has it") { try await stack.statuses(user: "zoe") == ["One": "sent"] }
            try await stack.query(
                """
                INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, job_id, type, severity,
                    delivery, lane, channels, title, body, status, created_at)
                SELECT 'u' || number, gen_random_uuid(), 0, n.job_entry, n.org_id, n.job_id, n.type, n.severity,
                    n.delivery, n.lane, n.channels, n.title, n.body, 'suppressed', n.created_at
                FROM carillon.notifications n, generate_series(1, 20000) number
                """)
            var list = try await gateway.call(.get, "/v1/admin/jobs/j1/notifications?status=sent", token: admin)
            #expect(list.body["notifications"]?.array?.isEmpty == true)
            let cursor = try #require(list.body["next_cursor"]?.string)
            list = try await gateway.call(
                .get, "/v1/admin/jobs/j1/notifications?status=sent&cursor=\(cursor)", token: admin)
            #expect(list.body["notifications"]?.array?.map { $0["user_id"]?.string } == ["zoe"])
            #expect(list.body["next_cursor"] == .null)
            for (last, count, next) in [("null", 0, JSONValue.string(cursor)), ("\"\(cursor)\"", 1, .null)] {
                let json = "{\"status\":\"sent\",\"cursor\":\(last)}"
                let answer = try await gateway.call(.post, "/v1/admin/jobs/j1/resend", token: admin, json: json)
                #expect(answer.status == 202 && answer.body["count"]?.integer == Int64(count))
                #expect(answer.body["next_cursor"] == next)
            }
        }
    }

    @Test("the entry of a broadcast finds its notifications, however late they were stored")
    func broadcastByEntry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('ada')")
            let before = Schedules.now() - .seconds(7_200)
            let entry = "\(before.milliseconds)-0"
            try await stack.connection.send(
                "XADD", "carillon:jobs", .text(entry), "all", "true", "type", "invoice_created", "title", "One")
            try await eventually("ada has it") { try await stack.statuses(user: "ada") == ["One": "sent"] }
            let list = try await gateway.call(.get, "/v1/admin/jobs/\(entry)/notifications", token: admin)
            #expect(list.body["notifications"]?.array?.compactMap { $0["title"]?.string } == ["One"])
            let again = try await gateway.call(
                .post, "/v1/admin/jobs/\(entry)/resend", token: admin, json: #"{"status":"sent"}"#)
            #expect(again.status == 202)
            #expect(again.body["count"]?.integer == 1)
        }
    }

    @Test("a resend follows the preferences of now, takes large data, and is refused for an unknown type")
    func resendRules() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            func prefer(_ isOn: Bool) async throws {
                let json = "{\"types\":[{\"type\":\"payment_received\",\"in_app\":\(isOn),\"push\":\(isOn)}]}"
                let token = Stack.token(user: "ada")
                #expect(try await gateway.call(.put, "/v1/preferences", token: token, json: json).status == 200)
            }
            func find(_ title: String) async throws -> (id: String, status: String) {
                try await eventualValue("\(title) is settled") {
                    let row = try await stack.query(
                        """
                        SELECT id::text, status FROM carillon.notifications
                        WHERE user_id = 'ada' AND title = $1 AND status <> 'pending'
                        """, .text(title)
                    ).first
                    return try row.map { (try $0.text(0), try $0.text(1)) }
                }
            }
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await prefer(false)
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "Refused")])
            let refused = try await find("Refused")
            #expect(refused.status == "suppressed")
            try await prefer(true)
            let again = try await gateway.call(
                .post, "/v1/admin/notifications/\(refused.id)/resend?user=ada&key=k", token: admin)
            #expect(again.body["id"]?.string == "resend:\(refused.id):k")
            try await eventually("it is pushed") { stack.pushed()["ada-phone"] == ["Refused"] }

            // PostgreSQL writes JSON with more white space than a job may have.
            let data = "{" + (0..<1_400).map { "\"k\($0)\":1" }.joined(separator: ",") + "}"
            try await stack.append([
                ("user", "ada"), ("type", "payment_received"), ("title", "Large"), ("data", data),
            ])
            let large = try await find("Large")
            let sent = try await gateway.call(
                .post, "/v1/admin/notifications/\(large.id)/resend?user=ada", token: admin)
            #expect(sent.status == 202)
            try await eventually("it is pushed twice") {
                stack.pushed()["ada-phone"]?.count { $0 == "Large" } == 2
            }
            _ = try await stack.query("UPDATE carillon.notifications SET type = 'gone' WHERE title = 'Large'")
            let gone = try await gateway.call(
                .post, "/v1/admin/notifications/\(large.id)/resend?user=ada", token: admin)
            #expect(gone.status == 422)
            #expect(gone.body["errors"]?.array?.first?["field"]?.string == "type")
            #expect(try await stack.query("SELECT FROM carillon.dead_letters").isEmpty)
        }
    }

    @Test("the overview counts a span and an organisation, and the nodes have version and start of each process")
    func overview() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ben")
            for (user, org) in [("ada", "caf\u{e9}"), ("ben", ""), ("ben", "")] {
                let fields = [("user", user), ("type", "payment_received"), ("title", "t")]
                try await stack.append(fields + (org.isEmpty ? [] : [("org", org)]))
            }
            try await eventually("the socket has two") { socket.titles.count == 2 }
            try await eventually("all is known") {
                let rows = try await stack.query(
                    """
                    SELECT (SELECT count(*) FROM carillon.notifications WHERE status = 'delivered'),
                        (SELECT count(*) FROM carillon.delivery_attempts WHERE kind = 'push' AND outcome = 'accepted')
                    """)
                return try rows.first?.int8(0) == 2 && rows.first?.int8(1) == 1
            }
            let day = try await gateway.call(.get, "/v1/admin/overview?span=24h", token: admin)
            #expect(day.status == 200)
            #expect(day.body["complete"] == .bool(true))
            #expect(day.body["stored"]?.integer == 3)
            #expect(day.body["delivered"]?.integer == 2)
            #expect(day.body["accepted"]?.integer == 1)
            #expect(day.body["latency"]?["socket"]?["count"]?.integer == 2)
            #expect(day.body["latency"]?["push"]?["count"]?.integer == 1)
            #expect(day.body["latency"]?["push"]?["p99"]?.integer ?? 0 > 0)
            #expect(day.body["latency"]?["email"] == .null)
            let shares = (day.body["organisations"]?.array ?? []).map { ($0["org_id"]?.string, $0["stored"]?.integer) }
            #expect(shares.map(\.0) == ["", "caf\u{e9}"])
            #expect(shares.map(\.1) == [2, 1])
            let nodes = try await gateway.call(.get, "/v1/admin/nodes", token: admin)
            for role in ["gateways", "dispatchers"] {
                let process = nodes.body[role]?.array?.first
                #expect(process?["alive"] == .bool(true), "\(role)")
                #expect(process?["version"]?.string?.isEmpty == false, "\(role)")
                #expect(process?["started_at"]?.string.flatMap { Timestamp(rfc3339: $0) } != nil, "\(role)")
            }
            let path = "/v1/admin/overview?org="
            let shop = try await gateway.call(.get, path + "caf%C3%A9", token: admin)
            #expect(shop.body["stored"]?.integer == 1)
            #expect(shop.body["latency"]?["socket"] == .null)
            // The same name in two scalars is another organisation, for the cache too.
            let twin = try await gateway.call(.get, path + "cafe%CC%81", token: admin)
            #expect(twin.body["stored"]?.integer == 0)
            let wrong = try await gateway.call(.get, "/v1/admin/overview?span=1y", token: admin)
            #expect(wrong.status == 400)
        }
    }

    @Test("the overview's latencies leave out late proofs, calls for attention after a proof, and deferred pushes")
    func waits() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await gateway.register(user: "cem", platform: "android", token: "cem-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ben")
            for user in ["ada", "ben", "cem"] {
                for title in ["one", "two"] {
                    try await stack.append([("user", user), ("type", "payment_received"), ("title", title)])
                }
            }
            for (user, status) in [("ada", "sent"), ("ben", "delivered"), ("cem", "sent")] {
                try await eventually("\(user) has both") {
                    try await stack.statuses(user: user) == ["one": status, "two": status]
                }
            }
            #expect(Set(socket.titles) == ["one", "two"])
            try await stack.query(
                """
                UPDATE carillon.notifications SET delivered_at = stored_at + interval '8 hours'
                WHERE user_id = 'ben' AND title = 'two'
                """)
            try await stack.query(
                """
                UPDATE carillon.notifications SET sent_via = 'socket', delivered_at = stored_at
                WHERE user_id = 'ada' AND title = 'two'
                """)
            // Quiet hours deferred these before the span.
            try await stack.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, provider, kind, attempt, outcome)
                SELECT now() - interval '9 hours', user_id, id, 'none', 'step', 0, 'deferred'
                FROM carillon.notifications WHERE user_id = 'cem'
                """)
            let found = try await gateway.call(.get, "/v1/admin/overview?span=1h", token: try await Self.admin())
            #expect(found.body["delivered"]?.integer == 3)
            #expect(found.body["latency"]?["socket"]?["count"]?.integer == 2)
            #expect(found.body["latency"]?["push"]?["count"]?.integer == 1)
        }
    }

    @Test("the overview's latencies leave broadcasts out, which may wait for their confirmation")
    func latencies() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ben")
            for user in ["ada", "ben"] {
                try await stack.append([("user", user), ("type", "payment_received"), ("title", "one")])
            }
            for (user, status) in [("ada", "sent"), ("ben", "delivered")] {
                try await eventually("\(user) has it") { try await stack.statuses(user: user) == ["one": status] }
            }
            try await stack.append([("all", "true"), ("type", "payment_received"), ("title", "all"), ("id", "b1")])
            try await eventually("the broadcast is proven and accepted") {
                let rows = try await stack.query(
                    """
                    SELECT (SELECT count(*) FROM carillon.notifications WHERE status = 'delivered'),
                        (SELECT count(*) FROM carillon.delivery_attempts WHERE kind = 'push' AND outcome = 'accepted')
                    """)
                return try rows.first?.int8(0) == 2 && rows.first?.int8(1) == 2
            }
            #expect(socket.titles == ["one", "all"])
            let found = try await gateway.call(.get, "/v1/admin/overview", token: try await Self.admin())
            #expect(found.body["stored"]?.integer == 4)
            #expect(found.body["delivered"]?.integer == 2)
            #expect(found.body["accepted"]?.integer == 2)
            #expect(found.body["latency"]?["socket"]?["count"]?.integer == 1)
            #expect(found.body["latency"]?["push"]?["count"]?.integer == 1)
        }
    }

    @Test("a preview has the texts of each locale for each channel, and an audience its size")
    func previews() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: try stack.catalog(Self.catalog))
            let admin = try await Self.admin()
            func preview(_ job: String) async throws -> (status: Int, body: JSONValue) {
                let answer = try await gateway.call(
                    .post, "/v1/admin/previews", token: admin, json: "{\"job\":\(job)}")
                return (answer.status, answer.body)
            }
            let found = try await preview(
                #"{"type":"order_shipped","delivery":"push","vars":{"name":"A7"}}"#)
            #expect(found.status == 200)
            let texts = found.body["previews"]?.array ?? []
            #expect(texts.map { $0["locale"]?.string } == ["en", "de"])
            #expect(texts.first?["in_app"]?["title"]?.string == "**A7** is on its way")
            #expect(texts.first?["push"]?["title"]?.string == "A7 is on its way")
            #expect(texts.first?["email"]?["subject"]?.string == "Shipped: A7")
            #expect(texts.last?["push"]?["body"]?.string == "Bestellung A7")
            // The job's own parts precede the template's; the texts stand in for missing ones.
            let mailed = try await preview(
                #"""
                {"type":"order_shipped","vars":{"name":"A7"},"url":"https://example.com/a7",
                 "platform":{"email":{"subject":"Own","html":"<p>A7</p>"}}}
                """#)
            let mail = mailed.body["previews"]?.array?.last?["email"]
            #expect(mail?["subject"]?.string == "Own")
            #expect(mail?["text"]?.string == "A7 ist unterwegs\n\nBestellung A7\n\nhttps://example.com/a7")
            #expect(mail?["html"]?.string == "<p>A7</p>")
            let untitled = try await preview(#"{"type":"order_shipped","body":"**B**"}"#)
            #expect(untitled.body["previews"]?.array?.first?["email"]?["subject"]?.string == "B")
            let cases: [(String, [String])] = [
                (#""delivery":"push","channels":["push"],"topic":"news""#, ["push"]),
                // Channels that the type does not have.
                (#""delivery":"push","channels":["push","email"]"#, ["push"]),
                // The type's delivery is in_app, which removes push.
                (#""channels":["in_app","push"]"#, ["in_app"]), (#""lane":"bulk""#, ["in_app"]),
            ]
            for (fields, channels) in cases {
                let plain = try await preview("{\"type\":\"invoice_created\",\"title\":\"T\",\(fields)}")
                let shown = plain.body["previews"]?.array?.first
                #expect(
                    ["in_app", "push", "email"].filter { shown?[$0]?.object != nil } == channels, "\(fields)")
                for channel in channels { #expect(shown?[channel]?["title"]?.string == "T") }
            }
            for (job, field) in [
                (#"{"type":"order_shipped","vars":{}}"#, "job.vars.name"), (#"{"type":"unheard_of"}"#, "job.type"),
                (#"{"event":"typing"}"#, "job.event"), ("[]", "job"),
                (#"{"type":"order_shipped","title":["a"],"all":null}"#, "job.title"),
            ] {
                let refused = try await preview(job)
                #expect(refused.body["errors"]?.array?.first?["field"]?.string == field, "\(job): \(refused.body)")
            }

            _ = try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('a'), ('b')")
            _ = try await stack.query("INSERT INTO carillon.subscriptions (topic, user_id) VALUES ('news', 'a')")
            for (query, count) in [("all=true", 2), ("topic=news", 1), ("topic=other", 0)] as [(String, Int64)] {
                let audience = try await gateway.call(.get, "/v1/admin/audiences?\(query)", token: admin)
                #expect(audience.body["count"]?.integer == count, "\(query)")
                #expect(audience.body["complete"] == .bool(true))
            }
            #expect(try await gateway.call(.get, "/v1/admin/audiences", token: admin).status == 400)

            let catalog = try await gateway.call(.get, "/v1/admin/catalog", token: admin)
            #expect(catalog.body["types"]?.array?.map { $0["title"]?.string } == ["Invoice created", nil])
            #expect(catalog.body["types"]?.array?.map { $0["sent"]?.integer } == [0, 0])
            let advice = catalog.body["advice"]?.array?.compactMap(\.string) ?? []
            #expect(advice.contains { $0.contains("order_shipped: has no title") }, "\(advice)")
        }
    }

    @Test("dead letters are counted by reason, and a job can be edited before it is replayed")
    func deadLetters() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            for number in 0..<2 {
                try await stack.append([("user", "ada"), ("type", "unheard_of"), ("title", "t\(number)")])
            }
            try await stack.append([("user", ""), ("type", "invoice_created"), ("title", "t2")])
            try await eventually("three are dead") {
                try await stack.query("SELECT FROM carillon.dead_letters").count == 3
            }
            let reasons = try await gateway.call(.get, "/v1/admin/dead-letters/reasons", token: admin)
            let found = reasons.body["reasons"]?.array ?? []
            #expect(found.map { $0["count"]?.integer } == [2, 1])
            #expect(found.first?["reason"]?.string == "type: is not in the catalog")
            #expect(found.map { $0["replayable"]?.integer } == [2, 1])
            let one = try await gateway.call(.get, "/v1/admin/dead-letters/reasons?type=invoice_created", token: admin)
            #expect(one.body["reasons"]?.array?.count == 1)

            let ids = try await stack.query("SELECT id FROM carillon.dead_letters ORDER BY id")
            let path = "/v1/admin/dead-letters/\(try #require(try ids.first?.int8(0)))/replay"
            for fields in [#"[["user","ada"],["type","nope"]]"#, #"[["user","ada"]]"#, #"[["user"]]"#, "[]", #""x""#] {
                let refused = try await gateway.call(.post, path, token: admin, json: "{\"fields\":\(fields)}")
                #expect([400, 422].contains(refused.status), "\(fields)")
                #expect(refused.body["errors"]?.array?.isEmpty == false, "\(fields)")
            }
            #expect(try await stack.query("SELECT FROM carillon.dead_letters").count == 3)
            let edited = #"{"fields":[["user","ada"],["type","invoice_created"],["title","mended"]]}"#
            let replayed = try await gateway.call(.post, path, token: admin, json: edited)
            #expect(replayed.status == 202)
            #expect(replayed.body["count"]?.integer == 1)
            try await eventually("ada has it") { try await stack.statuses(user: "ada") == ["mended": "sent"] }
            try await eventually("the letter is gone") {
                try await stack.query("SELECT FROM carillon.dead_letters").count == 2
            }
            #expect(try await gateway.call(.post, path, token: admin, json: edited).status == 404)
        }
    }

    @Test("a letter whose broadcast has begun is replayed with other fields for named users alone")
    func editedBroadcast() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let admin = try await Self.admin()
            try await stack.query("INSERT INTO carillon.users (user_id) VALUES ('ada'), ('ben')")
            let job = #"["all","true"],["type","invoice_created"],["template","gone"]"#
            try await stack.insertLetter(0, reason: "template: is not in the catalog", fields: "[\(job)]")
            try await stack.failBroadcasts()
            // The letter of a replay that failed before the job was read.
            try await stack.insertLetter(
                1, reason: "template: is not in the catalog",
                fields: #"[\#(job),["carillon:replay","carillon:jobs/1795000000000-0"]]"#)
            func replay(_ id: Int64, for audience: String) async throws -> Gateway.Answer {
                let fields = "[[\(audience)],[\"type\",\"invoice_created\"],[\"title\",\"mended\"]]"
                return try await gateway.call(
                    .post, "/v1/admin/dead-letters/\(id)/replay", token: admin, json: "{\"fields\":\(fields)}")
            }
            let ids = try await stack.query("SELECT id FROM carillon.dead_letters ORDER BY id").map { try $0.int8(0) }
            #expect(ids.count == 2)
            for id in ids {
                let refused = try await replay(id, for: #""all","true""#)
                #expect(refused.status == 409)
                #expect(refused.body["detail"]?.string?.hasPrefix("its broadcast has begun") == true)
            }
            let named = try await replay(try #require(ids.first), for: #""user","ada""#)
            #expect(named.status == 202)
            try await eventually("ada has it") { try await stack.statuses(user: "ada") == ["mended": "sent"] }
            let others = try await stack.statuses(user: "ben")
            #expect(others.isEmpty)
            let broadcasts = try await stack.query("SELECT FROM carillon.broadcasts")
            #expect(broadcasts.count == 1)
        }
    }

    @Test("an edited letter that was replayed before keeps its first entry, so its ids stay")
    func editAfterReplay() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let first = "carillon:jobs/1795000000000-0"
            try await stack.append([("user", "ada"), ("type", "unheard_of"), ("carillon:replay", first)])
            try await eventually("it is dead") {
                try await stack.query("SELECT FROM carillon.dead_letters").count == 1
            }
            let id = try #require(try await stack.query("SELECT id FROM carillon.dead_letters").first?.int8(0))
            let edited = """
                {"fields":[["user","ada"],["type","invoice_created"],["title","mended"],["carillon:replay","x/1-0"]]}
                """
            let replayed = try await gateway.call(
                .post, "/v1/admin/dead-letters/\(id)/replay", token: try await Self.admin(), json: edited)
            #expect(replayed.status == 202)
            try await eventually("ada has it") { try await stack.statuses(user: "ada") == ["mended": "sent"] }
            let entries = try await stack.query("SELECT job_entry FROM carillon.notifications")
            #expect(try entries.map { try $0.text(0) } == [first])
        }
    }
}
