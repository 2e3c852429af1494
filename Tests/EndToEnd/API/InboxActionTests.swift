// Carillon · InboxActionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

@testable import HTTP
@testable import Storage

/// Changes of notifications besides reading: unread again, archive, snooze, restore.
@Suite(.timeLimit(.minutes(10)))
struct InboxActionTests {
    /// A running stack, a user's socket, and calls as this user.
    private struct Scene {
        let stack: Stack
        let gateway: Gateway
        let socket: TestSocket
        let ada: CompatibilityClient

        func notify(_ title: String, _ more: [(String, String)] = []) async throws -> String {
            try await self.stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)] + more)
            return try await eventualValue("\(title) is listed") {
                try await self.listed().first { $0["title"]?.string == title }?["id"]?.string
            }
        }

        func listed() async throws -> [JSONValue] {
            try await self.ada.get("/v1/notifications").body["notifications"]?.array ?? []
        }

        func archived() async throws -> [String] {
            try await self.ada.get("/v1/notifications/archived").body["notifications"]?.texts("title") ?? []
        }

        /// Calls an action, and expects the unread count and the total after it.
        func act(_ action: String, on id: String, unread: Int64, total: Int64) async throws {
            let answer = try await self.ada.send(.post, "/v1/notifications/\(id)/\(action)")
            #expect(answer.status == 200, "\(action)")
            #expect(answer.body["changed"]?.integer == 1, "\(action)")
            let state = try await self.ada.get("/v1/notifications/unread-count").body
            #expect(state["unread"]?.integer == unread && state["total"]?.integer == total, "\(action): \(state)")
            #expect(answer.body["unread"]?.integer == unread, "\(action)")
        }

        /// Snoozes a notification for an hour.
        func snooze(_ id: String) async throws -> Gateway.Answer {
            try await self.ada.send(
                .post, "/v1/notifications/\(id)/snooze", #"{"until":"\#(Schedules.later(.seconds(3_600)))"}"#)
        }

        /// The frames of a kind that the socket got about a notification.
        func frames(_ type: String, about id: String) -> [JSONValue] {
            self.socket.messages.filter { message in
                guard message["type"]?.string == type else { return false }
                return message["notification"]?["id"]?.string == id
                    || message["change"]?["ids"]?.strings?.contains(id) == true
            }
        }
    }

    /// A catalog whose type has buttons.
    private static let buttons = """
        types:
          invoice_created: {actions: invoices}
        actions:
          invoices:
            buttons:
              approve: {title: {en: Approve}, url: /invoices}
              refuse: {title: {en: Refuse}}
            default: {buttons: [approve, refuse]}
        """

    private static func with(catalog: String? = nil, _ body: (Scene) async throws -> Void) async throws {
        try await Stack.with { stack in
            let environment = try catalog.map { try stack.catalog($0) } ?? [:]
            let gateway = try await stack.startBoth(environment: environment)
            let ada = CompatibilityClient(gateway, user: "ada")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await body(Scene(stack: stack, gateway: gateway, socket: socket, ada: ada))
        }
    }

    @Test("a notification becomes unread again, on open sockets too, and silently")
    func unread() async throws {
        try await Self.with { scene in
            let id = try await scene.notify("one")
            _ = try await scene.notify("two")
            try await scene.act("read", on: id, unread: 1, total: 2)
            try await scene.act("unread", on: id, unread: 2, total: 2)
            try await eventually("the socket has it again") { scene.frames("notification", about: id).count == 2 }
            let frame = scene.frames("notification", about: id).last
            #expect(frame?["notification"]?["read_at"] == .null)
            #expect(frame?["notification"]?["silent"]?.bool == true && frame?["notification"]?["again"]?.bool == true)
            #expect(frame?["unread"]?.integer == 2)
            let again = try await scene.ada.send(.post, "/v1/notifications/\(id)/unread")
            #expect(again.status == 200 && again.body["changed"]?.integer == 0)
            let other = CompatibilityClient(scene.gateway, user: "ben")
            #expect(try await other.send(.post, "/v1/notifications/\(id)/unread").status == 404)
        }
    }

    @Test("clients of every dialect get a notification that came back while PostgreSQL could not read it")
    func unreadable() async throws {
        try await Self.with { scene in
            let id = try await scene.notify("one")
            let port = scene.gateway.port
            let stream = try await TestStream.open(port: port, user: "ada")
            _ = try await stream.first("sync")
            let hub = try await TestSignalR.synced(scene.gateway, user: "ada")
            let engine = try await TestSocket.open(
                port: port, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
            try await eventually("the session opens") { !engine.texts.isEmpty }
            try await engine.send(opcode: 1, payload: Array(#"40{"token":"\#(scene.ada.token)"}"#.utf8))
            try await eventually("it joins") { engine.texts.contains { $0.hasPrefix(#"42["sync""#) } }
            func hubCount() -> Int {
                hub.messages.arguments("ReceiveNotification").count { $0["id"]?.string == id }
            }
            func engineCount() -> Int {
                engine.texts.count { $0.hasPrefix(#"42["notification","#) && $0.contains(id) }
            }

            for action in ["unread", "restore"] {
                if action == "unread" {
                    try await scene.act("read", on: id, unread: 0, total: 1)
                } else {
                    #expect(try await scene.ada.send(.delete, "/v1/notifications/\(id)").status == 200)
                }
                let (hubBefore, engineBefore) = (hubCount(), engineCount())
                // Reading an unread notification of the inbox fails; changing it to one does not.
                try await scene.stack.query("ALTER TABLE carillon.notifications RENAME TO stored_notifications")
                try await scene.stack.query(
                    """
                    CREATE VIEW carillon.notifications AS SELECT * FROM carillon.stored_notifications
                    WHERE 1 / (CASE WHEN read_at IS NULL AND deleted_at IS NULL THEN 0 ELSE 1 END) = 1
                    """)
                let answer = try await scene.ada.send(.post, "/v1/notifications/\(id)/\(action)")
                #expect(answer.status == 200 && answer.body["changed"]?.integer == 1, "\(action): \(answer.body)")
                let version = try #require(answer.body["version"]?.integer)
                try await scene.stack.query("DROP VIEW carillon.notifications")
                try await scene.stack.query("ALTER TABLE carillon.stored_notifications RENAME TO notifications")

                func isSynced(_ messages: [JSONValue]) -> Bool {
                    messages.contains { message in
                        guard message["type"]?.string == "sync", message["version"]?.integer == version else {
                            return false
                        }
                        let listed = message["notifications"]?.array ?? []
                        return message["unread"]?.integer == 1
                            && listed.contains { $0["id"]?.string == id && $0["read_at"] == .null }
                    }
                }
                try await eventually("a native socket has it after \(action)") { isSynced(scene.socket.messages) }
                try await eventually("a stream has it after \(action)") {
                    isSynced(stream.events.compactMap { try? JSONParser.parse(Array($0.data.utf8)) })
                }
                try await eventually("SignalR has it after \(action)") {
                    hubCount() > hubBefore && hub.messages.counts.last == 1
                }
                try await eventually("Socket.IO has it after \(action)") { engineCount() > engineBefore }
            }
        }
    }

    @Test("each press of a button reaches upstream apps, with the button's id; only the user's own do")
    func press() async throws {
        try await Self.with(catalog: Self.buttons) { scene in
            let id = try await scene.notify("one", [("id", "j1"), ("org", "shop")])
            let shown = try await scene.ada.get("/v1/notifications/\(id)").body["data"]?["actions"]?.array ?? []
            #expect(shown.map { $0["id"]?.string } == ["approve", "refuse"])
            #expect(shown.map { $0["url"]?.string } == ["/invoices", nil])
            let path = "/v1/notifications/\(id)/actions"
            let ben = CompatibilityClient(scene.gateway, user: "ben")
            #expect(try await ben.send(.post, path, #"{"action":"approve"}"#).status == 404)
            for body in [
                "{}", #"{"action":""}"#, #"{"action":7}"#, #"{"action":"a","more":1}"#, #"{"action":"other"}"#,
            ] {
                #expect(try await scene.ada.send(.post, path, body).status == 422, "\(body)")
            }
            for _ in 0..<2 {
                #expect(try await scene.ada.send(.post, path, #"{"action":"approve"}"#).status == 204)
            }
            let events = try await scene.stack.events().filter { $0["user"] == "ada" }
            let presses = events.filter { $0["event"] == "acted" }
            #expect(presses.map { $0["reason"] } == ["approve", "approve"])
            #expect(presses.allSatisfy { $0["notification"] == id && $0["job"] == "j1" && $0["org"] == "shop" })
            #expect(events.count { $0["event"] == "opened" } == 1)
        }
    }

    @Test("a user who presses buttons too often, or makes notifications unread, gets 429 and no event")
    func pressRate() async throws {
        try await Self.with(catalog: Self.buttons) { scene in
            let id = try await scene.notify("one")
            let ada = scene.ada
            func callAtOnce(_ action: String, _ body: String? = nil) async throws -> [Gateway.Answer] {
                try await withThrowingTaskGroup { group in
                    for _ in 0..<100 {
                        group.addTask { try await ada.send(.post, "/v1/notifications/\(id)/\(action)", body) }
                    }
                    return try await group.reduce(into: [Gateway.Answer]()) { $0.append($1) }
                }
            }
            let presses = try await callAtOnce("actions", #"{"action":"approve"}"#)
            let refused = presses.filter { $0.status == 429 }
            #expect(!refused.isEmpty && refused.count <= 40)
            #expect(refused.allSatisfy { $0.header("retry-after") == "1" && "\($0.body)".contains("pressed buttons") })
            #expect(presses.count { $0.status == 204 } == 100 - refused.count)
            let acted = try await scene.stack.events().count { $0["event"] == "acted" }
            #expect(acted == 100 - refused.count)
            // Reading the notification again would repeat `read` and `opened`.
            let unread = try await callAtOnce("unread")
            #expect(unread.contains { $0.status == 429 && $0.header("retry-after") == "1" })
        }
    }

    @Test("an archived notification leaves the inbox, and comes back as it was")
    func archive() async throws {
        try await Self.with { scene in
            let id = try await scene.notify("one")
            _ = try await scene.notify("two")
            let version = try await scene.ada.get("/v1/notifications").body["version"]?.integer ?? 0
            try await scene.act("archive", on: id, unread: 1, total: 1)
            try await eventually("the socket drops it") { scene.frames("deleted", about: id).count == 1 }
            #expect(try await scene.archived() == ["one"])
            #expect(try await scene.listed().compactMap { $0["title"]?.string } == ["two"])
            let changes = try await scene.ada.get("/v1/notifications?since_version=\(version)").body
            #expect(changes["deleted"]?.strings == [id])
            #expect(try await scene.ada.send(.post, "/v1/notifications/\(id)/archive").status == 404)
            // A page with the archive reports what the user does there.
            for receipt in ["delivered", "opened"] {
                #expect(try await scene.ada.send(.post, "/v1/notifications/\(id)/\(receipt)").status == 204)
            }
            let export = try await scene.gateway.call(
                .get, "/v1/users/ada", token: Stack.token(user: "app", scope: .service))
            #expect(export.body["archived"]?.texts("notification_id") == [id])

            try await scene.act("restore", on: id, unread: 2, total: 2)
            try await eventually("the socket has it") { scene.frames("notification", about: id).count == 2 }
            #expect(try await scene.archived() == [])
            #expect(try await scene.listed().compactMap { $0["title"]?.string } == ["two", "one"])
            // A retry after a lost answer.
            let again = try await scene.ada.send(.post, "/v1/notifications/\(id)/restore")
            #expect(again.status == 200 && again.body["changed"]?.integer == 0)

            // Deleting in the archive changes no count.
            try await scene.act("archive", on: id, unread: 1, total: 1)
            #expect(try await scene.ada.send(.delete, "/v1/notifications/\(id)").status == 200)
            #expect(try await scene.archived() == [])
            let state = try await scene.ada.get("/v1/notifications/unread-count").body
            #expect(state["unread"]?.integer == 1 && state["total"]?.integer == 1)
        }
    }

    @Test("a cancelled job leaves the archive, and what was snoozed of it does not come back")
    func cancelled() async throws {
        try await Self.with { scene in
            let service = Stack.token(user: "app", scope: .service)
            _ = try await scene.gateway.call(.put, "/v1/settings", token: scene.ada.token, json: "{}")
            await scene.socket.close()
            try await eventually("she is offline") {
                let admin = Stack.token(user: "root", scope: .admin)
                return try await scene.gateway.call(.get, "/v1/admin/presence/ada", token: admin).body["online"]?.bool
                    == false
            }
            let archived = try await scene.notify("one", [("id", "j1")])
            let unseen = try await scene.notify("two", [("id", "j2")])
            let delivered = try await scene.notify("three", [("id", "j3")])
            try await scene.act("archive", on: archived, unread: 2, total: 2)
            #expect(try await scene.ada.send(.post, "/v1/notifications/\(delivered)/delivered").status == 204)
            for snoozed in [unseen, delivered] { #expect(try await scene.snooze(snoozed).status == 200) }
            #expect(try await scene.archived() == ["one"])
            for (job, status) in [("j1", "cancelled"), ("j2", "cancelled"), ("j3", "too_late")] {
                let answer = try await scene.gateway.call(.delete, "/v1/jobs/\(job)", token: service)
                #expect(answer.status == 200 && answer.body["status"]?.string == status, "\(answer.body)")
            }
            #expect(try await scene.archived() == [])
            #expect(try await scene.stack.query("SELECT FROM carillon.schedules").isEmpty)
            // As when a provider, which had it meanwhile, accepts it.
            try await scene.stack.query(
                """
                UPDATE carillon.notifications SET status = 'sent', status_reason = 'cancelled_too_late'
                WHERE title = 'one'
                """)
            #expect(try await scene.archived() == [])
            #expect(try await scene.ada.send(.post, "/v1/notifications/\(archived)/restore").status == 404)
        }
    }

    @Test("what was snoozed of a cancelled job, once or twice, does not come back when no row of it is left")
    func cancelledLate() async throws {
        try await Self.with { scene in
            let service = Stack.token(user: "app", scope: .service)
            let first = try await scene.notify("twice", [("id", "j1")])
            #expect(try await scene.snooze(first).status == 200)
            try await Schedules.makeDue(scene.stack)
            let second = try await eventualValue("it comes back") { try await scene.listed().first?["id"]?.string }
            let once = try await scene.notify("once", [("id", "j2")])
            for snoozed in [second, once] { #expect(try await scene.snooze(snoozed).status == 200) }
            // As retention does after `TOMBSTONE_DAYS`.
            try await scene.stack.query("DELETE FROM carillon.notifications")
            for job in ["j1", "j2"] {
                let answer = try await scene.gateway.call(.delete, "/v1/jobs/\(job)", token: service)
                #expect(answer.status == 200, "\(answer.body)")
            }
            #expect(try await scene.stack.query("SELECT FROM carillon.schedules").isEmpty)
        }
    }

    @Test("a deleted notification can be restored, one that another replaced or whose time is over cannot")
    func restore() async throws {
        try await Self.with { scene in
            let id = try await scene.notify("one", [("collapse_key", "k")])
            #expect(try await scene.ada.send(.delete, "/v1/notifications/\(id)").status == 200)
            try await scene.act("restore", on: id, unread: 1, total: 1)
            _ = try await scene.notify("newer", [("collapse_key", "k")])
            try await scene.ada.waitForCount(1)
            #expect(try await scene.ada.send(.post, "/v1/notifications/\(id)/restore").status == 404)
            // The newer one replaces only those that are in the inbox.
            let archived = try await scene.notify("older", [("collapse_key", "other")])
            try await scene.act("archive", on: archived, unread: 1, total: 1)
            let newer = try await scene.notify("newest", [("collapse_key", "other")])
            try await scene.act("restore", on: archived, unread: 3, total: 3)
            for both in [archived, newer] {
                #expect(try await scene.ada.send(.delete, "/v1/notifications/\(both)").status == 200)
            }

            let soon = Timestamp(seconds: Int64(Date.now.timeIntervalSince1970) + 600).rfc3339
            let brief = try await scene.notify("brief", [("keep_until", soon)])
            #expect(try await scene.ada.send(.delete, "/v1/notifications/\(brief)").status == 200)
            try await scene.act("restore", on: brief, unread: 2, total: 2)
            #expect(try await scene.ada.send(.delete, "/v1/notifications/\(brief)").status == 200)
            try await scene.stack.query("UPDATE carillon.notifications SET keep_until = now() WHERE title = 'brief'")
            #expect(try await scene.ada.send(.post, "/v1/notifications/\(brief)/restore").status == 404)
        }
    }

    @Test("a snoozed notification comes back with its job's own buttons, or with the catalog's")
    func snoozeButtons() async throws {
        try await Self.with(catalog: Self.buttons) { scene in
            let own = try await scene.notify("own", [("data", #"{"actions":[{"id":"pay","title":"Pay"}]}"#)])
            let plain = try await scene.notify("plain")
            for id in [own, plain] { #expect(try await scene.snooze(id).status == 200) }
            try await Schedules.makeDue(scene.stack)
            for (title, buttons) in [("own", ["pay"]), ("plain", ["approve", "refuse"])] {
                let back = try await eventualValue("\(title) comes back") {
                    try await scene.listed().first { $0["title"]?.string == title }
                }
                #expect(back["data"]?["actions"]?.array?.compactMap { $0["id"]?.string } == buttons)
            }
        }
    }

    @Test("a snoozed notification comes back as a new one; a restored one comes back at once, and only once")
    func snooze() async throws {
        try await Self.with { scene in
            let id = try await scene.notify(
                "one",
                [
                    ("body", "Read me"), ("org", "acme"),
                    ("data", #"{"invoice":"i9","actions":[{"id":"pay","title":"Pay"}]}"#),
                ])
            #expect(try await scene.snooze(id).status == 200)
            #expect(try await scene.listed() == [])
            try await Schedules.makeDue(scene.stack)
            let back = try await eventualValue("it comes back") { try await scene.listed().first }
            #expect(back["title"]?.string == "one" && back["body"]?.string == "Read me" && back["read_at"] == .null)
            #expect(back["data"]?["invoice"]?.string == "i9")
            #expect(back["data"]?["actions"]?.array?.count == 1)
            let second = try #require(back["id"]?.string)
            #expect(second != id)
            try await eventually("the socket has it") { scene.frames("notification", about: second).count == 1 }
            let row = try await scene.stack.query(
                "SELECT org_id, job_id FROM carillon.notifications WHERE deleted_at IS NULL"
            ).first
            #expect(try row?.text(0) == "acme")
            #expect(try row?.text(1).hasPrefix("snooze:\(id):") == true)

            #expect(try await scene.snooze(second).status == 200)
            #expect(try await scene.stack.query("SELECT FROM carillon.schedules").count == 1)
            try await scene.act("restore", on: second, unread: 1, total: 1)
            #expect(try await scene.stack.query("SELECT FROM carillon.schedules").count == 0)

            for (body, word) in [
                ("{}", "until"), (#"{"until":"2020-01-01T00:00:00Z"}"#, "in the past"),
                (#"{"until":"2200-01-01T00:00:00Z"}"#, "366 days"), (#"{"until":"soon"}"#, "RFC 3339"),
            ] {
                let answer = try await scene.ada.send(.post, "/v1/notifications/\(second)/snooze", body)
                #expect(answer.status == 422 && "\(answer.body)".contains(word), "\(body): \(answer.body)")
            }
            #expect(try await scene.listed().count == 1)

            // The schedule stays if the notification cannot come back at once.
            #expect(try await scene.snooze(second).status == 200)
            _ = try await scene.stack.query("DELETE FROM carillon.notifications WHERE id::text = $1", .text(second))
            #expect(try await scene.ada.send(.post, "/v1/notifications/\(second)/restore").status == 404)
            #expect(try await scene.stack.query("SELECT FROM carillon.schedules").count == 1)

            let soon = Timestamp(seconds: Int64(Date.now.timeIntervalSince1970) + 600).rfc3339
            let brief = try await scene.notify("brief", [("keep_until", soon)])
            let late = try await scene.snooze(brief)
            #expect(late.status == 422 && "\(late.body)".contains("is removed"))
        }
    }

    @Test("a snoozed notification comes back on its channels, but not by e-mail")
    func snoozeChannels() async throws {
        let catalog = "types: {invoice_created: {delivery: push, channels: [in_app, push, email], email_after: 1h}}"
        try await Self.with(catalog: catalog) { scene in
            func channels() async throws -> Channels? {
                let rows = try await scene.stack.query(
                    "SELECT channels::int4 FROM carillon.notifications WHERE deleted_at IS NULL")
                return try rows.first.map { Channels(rawValue: UInt8(try $0.int4(0))) }
            }
            let id = try await scene.notify("one")
            let before = try await channels()
            #expect(before == Channels.all)
            #expect(try await scene.snooze(id).status == 200)
            try await Schedules.makeDue(scene.stack)
            let back = try await eventualValue("it comes back") { try await channels() }
            #expect(back == [.inApp, .push])
        }
    }

    @Test("a user who snoozes too often gets 429 with Retry-After, and the notification stays")
    func snoozeRate() async throws {
        try await Self.with { scene in
            let id = try await scene.notify("one")
            var answer = try await scene.snooze(id)
            var count = 0
            while answer.status == 200, count < 1_000 {
                count += 1
                let restored = try await scene.ada.send(.post, "/v1/notifications/\(id)/restore")
                #expect(restored.status == 200)
                answer = try await scene.snooze(id)
            }
            #expect(answer.status == 429 && count >= 60)
            #expect("\(answer.body)".contains("too many snoozes"))
            let listed = try await scene.listed()
            let schedules = try await scene.stack.query("SELECT FROM carillon.schedules")
            #expect(listed.count == 1 && schedules.isEmpty)

            func wait(_ answer: Gateway.Answer) throws -> Int {
                try #require(answer.header("retry-after").flatMap { Int($0) })
            }
            // Acts as if this time had passed: the key holds the moment when the bucket is full, in
            // ms.
            func pass(_ seconds: Int) async throws {
                let redis = scene.stack.connection
                let key = RedisArgument.text(Keyspace().bucket("own_sends", "ada"))
                let full = try await redis.send("GET", key).string().flatMap { Double($0) }
                let earlier = try #require(full) - Double(seconds) * 1_000
                try await redis.send("SET", key, .text("\(earlier)"), "KEEPTTL")
            }
            // The calls above took time, and the bucket got part of a token.
            try await pass(wait(answer) - 60)
            answer = try await scene.snooze(id)
            #expect(try answer.status == 429 && (31...60).contains(wait(answer)))
            try await pass(30)
            #expect(try await scene.snooze(id).status == 429)
            try await pass(30)
            #expect(try await scene.snooze(id).status == 200)
        }
    }

    @Test("of two snoozes at once one is refused, and only the other's schedule stays")
    func snoozes() async throws {
        try await Self.with { scene in
            let id = try await scene.notify("one")
            let path = "/v1/notifications/\(id)/snooze"
            let moments = [3_600, 7_200].map { Schedules.later(.seconds($0)) }
            let ada = scene.ada
            async let first = ada.send(.post, path, #"{"until":"\#(moments[0])"}"#)
            async let second = ada.send(.post, path, #"{"until":"\#(moments[1])"}"#)
            let statuses = try await [first.status, second.status]
            #expect(statuses.sorted() == [200, 404])
            let rows = try await scene.stack.query("SELECT due_at FROM carillon.schedules")
            let due = try rows.map { Timestamp(microseconds: try $0.timestamptz(0)) }
            let winner = statuses.first == 200 ? moments[0] : moments[1]
            #expect(due == [Timestamp(rfc3339: winner)])
        }
    }

    @Test("a snooze that answers 503 changes nothing and leaves no schedule")
    func snoozeFails() async throws {
        try await Self.with { scene in
            let id = try await scene.notify("one")
            try await scene.stack.query(
                """
                CREATE FUNCTION carillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE 'refused' USING ERRCODE = '57014'; END $$
                """)
            try await scene.stack.query(
                """
                CREATE TRIGGER refuse BEFORE UPDATE ON carillon.notifications FOR EACH ROW
                WHEN (NEW.deleted_at IS NOT NULL) EXECUTE FUNCTION carillon.refuse()
                """)
            let refused = try await scene.gateway.call(
                .post, "/v1/notifications/\(id)/snooze", token: scene.ada.token,
                json: #"{"until":"\#(Schedules.later(.seconds(3_600)))"}"#, retriesOutages: false)
            #expect(refused.status == 503, "\(refused.body)")
            #expect(try await scene.listed().count == 1)
            #expect(try await scene.stack.query("SELECT FROM carillon.schedules").isEmpty)
            try await scene.stack.query("DROP TRIGGER refuse ON carillon.notifications")
            let snoozed = try await scene.snooze(id)
            #expect(snoozed.status == 200, "\(snoozed.body)")
            #expect(try await scene.stack.query("SELECT FROM carillon.schedules").count == 1)
        }
    }

    @Test("a list of one category, and unread counts by category")
    func categories() async throws {
        try await Self.with { scene in
            _ = try await scene.notify("i1")
            _ = try await scene.notify("n1", [("category", "news")])
            let read = try await scene.notify("n2", [("category", "news")])
            try await scene.act("read", on: read, unread: 2, total: 3)
            let news = try await scene.ada.get("/v1/notifications?category=news").body
            #expect(news["notifications"]?.texts("title") == ["n2", "n1"])
            let unread = try await scene.ada.get("/v1/notifications?category=news&unread_only=true&limit=1").body
            #expect(unread["notifications"]?.texts("title") == ["n1"])
            #expect(unread["next_cursor"] == .null)
            let counts = try await scene.ada.get("/v1/notifications/unread-count?by_category=true").body
            #expect(counts["categories"]?["invoices"]?.integer == 1 && counts["categories"]?["news"]?.integer == 1)
        }
    }

    @Test("a list of one organisation, and its unread counts by category")
    func organisations() async throws {
        try await Self.with { scene in
            _ = try await scene.notify("i1")
            _ = try await scene.notify("a1", [("org", "acme")])
            _ = try await scene.notify("a2", [("org", "acme"), ("category", "news")])
            _ = try await scene.notify("b1", [("org", "bolt"), ("category", "news")])
            let acme = try await scene.ada.get("/v1/notifications?org=acme").body
            #expect(acme["notifications"]?.texts("title") == ["a2", "a1"])
            #expect(acme["notifications"]?.texts("org") == ["acme", "acme"])
            let news = try await scene.ada.get("/v1/notifications?org=bolt&category=news&unread_only=true").body
            #expect(news["notifications"]?.texts("title") == ["b1"])
            let counts = try await scene.ada.get("/v1/notifications/unread-count?by_category=true&org=acme").body
            #expect(counts["categories"]?.object?.map(\.key) == ["invoices", "news"])
            #expect(counts["categories"]?.object?.allSatisfy { $0.value.integer == 1 } == true)
            #expect(try await scene.ada.get("/v1/notifications/unread-count?org=acme").status == 400)
        }
    }

    @Test("types have names, descriptions and icons in the wanted language")
    func types() async throws {
        let catalog = """
            types:
              payment_received:
                title: {en: Payment received, de: Zahlung erhalten}
                description: {en: Somebody paid, de: Jemand hat bezahlt}
                icon: coins
                category: payments
              retired: {title: Old news, enabled: false}
            categories:
              payments: {title: {en: Payments, de: Zahlungen}}
            """
        try await Self.with(catalog: catalog) { scene in
            func types(_ locale: String) async throws -> Gateway.Answer {
                try await scene.ada.get("/v1/types?locale=\(locale)")
            }
            let german = try await types("de-AT,en")
            let payment = german.body["types"]?.array?.first { $0["type"]?.string == "payment_received" }
            #expect(payment?["title"]?.string == "Zahlung erhalten" && payment?["icon"]?.string == "coins")
            #expect(payment?["category"]?.string == "payments")
            #expect(payment?["description"]?.string == "Jemand hat bezahlt")
            // Inboxes may still show a retired type, but no one can choose it.
            let retired = german.body["types"]?.array?.first { $0["type"]?.string == "retired" }
            #expect(retired?["title"]?.string == "Old news")
            let preferences = try await scene.ada.get("/v1/preferences").body["types"]
            #expect(preferences?.texts("type") == ["payment_received"])
            let category = german.body["categories"]?.array?.first { $0["category"]?.string == "payments" }
            #expect(category?["title"]?.string == "Zahlungen")
            // A language without texts has the catalog's default.
            let japanese = try await types("ja").body["types"]?.array ?? []
            #expect(japanese.first { $0["type"]?.string == "payment_received" }?["title"]?.string == "Payment received")
            let tag = try #require(german.header("etag"))
            let again = try await scene.gateway.call(
                .get, "/v1/types?locale=de-AT,en", token: scene.ada.token, headers: [("if-none-match", tag)])
            #expect(again.status == 304)
            #expect(try await types("fr").header("etag") != tag)
            #expect(try await scene.gateway.call(.get, "/v1/types", token: nil).status == 401)
        }
    }
}
