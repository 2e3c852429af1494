// Carillon · EventTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Events for upstream apps.
@Suite(.timeLimit(.minutes(10)))
struct EventTests {
    @Test("delivered, opened and read are each reported once, with all that names the notification")
    func users() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([
                ("user", "ada"), ("type", "payment_received"), ("title", "one"), ("id", "job-1"), ("org", "acme"),
            ])
            // On a machine that stalls, a late proof comes after an event `sent`.
            try await eventually("it is delivered") { try await stack.kinds(user: "ada").last == "delivered" }
            let delivered = try #require(try await stack.events().last)
            let id = try #require(delivered["notification"])
            #expect(delivered["job"] == "job-1")
            #expect(delivered["org"] == "acme")
            #expect(delivered["type"] == "payment_received")
            #expect(delivered["category"] == "payments")
            #expect(delivered["channel"] == "in_app")
            #expect(delivered["at"].flatMap { Timestamp(rfc3339: $0) } != nil)
            #expect(socket.titles == ["one"])
            let token = Stack.token(user: "ada")
            for _ in 0..<2 {
                for step in ["opened", "read", "delivered"] {
                    let answer = try await gateway.call(.post, "/v1/notifications/\(id)/\(step)", token: token)
                    #expect(answer.status < 300)
                }
            }
            let kinds = try await stack.kinds(user: "ada").filter { $0 != "sent" }
            #expect(kinds == ["delivered", "opened", "read"])
        }
    }

    @Test("sent, failed, token_invalid, suppressed and expired are reported with channel, device and reason")
    func dispatchers() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let device = try await gateway.register(user: "offline", platform: "android", token: "token-offline")
            let gone = try await gateway.register(user: "gone", platform: "android", token: "unregistered-1")
            let answer = try await gateway.call(
                .put, "/v1/preferences", token: Stack.token(user: "refuser"),
                json: #"{"types":[{"type":"payment_received","push":false,"in_app":false}]}"#)
            #expect(answer.status < 300)
            _ = try await stack.startDispatcher()
            for user in ["offline", "gone", "refuser", "deviceless"] {
                try await stack.append([("user", user), ("type", "payment_received"), ("title", "x")])
            }
            try await stack.append([
                ("user", "late"), ("type", "payment_received"), ("title", "x"), ("expires_at", "2026-01-01T00:00:00Z"),
            ])
            try await eventually("all events are there") { try await stack.events().count == 6 }
            let events = try await stack.events()
            func event(_ user: String, _ kind: String) throws -> [String: String] {
                try #require(events.first { $0["user"] == user && $0["event"] == kind }, "\(kind) of \(user)")
            }
            let sent = try event("offline", "sent")
            #expect(sent["channel"] == "push")
            #expect(sent["device"] == device)
            #expect(sent["platform"] == "android")
            #expect(sent["app"] == "default")
            let invalid = try event("gone", "token_invalid")
            #expect(invalid["device"] == gone)
            #expect(invalid["reason"] == "UNREGISTERED")
            #expect(try event("gone", "failed")["reason"] == "UNREGISTERED")
            #expect(try event("refuser", "suppressed")["reason"] != nil)
            #expect(try event("late", "expired")["reason"] == "expired")
            let waits = try event("deviceless", "sent")
            #expect(waits["channel"] == "in_app")
            #expect(waits["reason"] == "no_device")
        }
    }

    @Test("a user's events name the channel that the notification came through, and the device of a push")
    func channels() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let phone = try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            _ = try await stack.startDispatcher()
            for user in ["ada", "ben"] {
                for job in ["one", "two"] {
                    try await stack.append([
                        ("user", user), ("type", "payment_received"), ("title", job), ("id", "\(user)-\(job)"),
                    ])
                }
            }
            try await eventually("all are sent") {
                try await stack.events().filter { $0["event"] == "sent" }.count == 4
            }
            for user in ["ada", "ben"] {
                let token = Stack.token(user: user)
                let list = try await gateway.call(.get, "/v1/notifications", token: token)
                let id = try #require(list.body["notifications"]?.array?.first?["id"]?.string)
                for step in ["delivered", "opened"] {
                    let answer = try await gateway.call(.post, "/v1/notifications/\(id)/\(step)", token: token)
                    #expect(answer.status == 204)
                }
                let all = try await gateway.call(.post, "/v1/notifications/read", token: token, json: #"{"all":true}"#)
                #expect(all.status == 200)
            }
            let events = try await stack.events()
            for (user, expected) in [("ada", ["push", "android", "default", phone]), ("ben", ["in_app", "", "", ""])] {
                let own = events.filter { $0["user"] == user && $0["event"] != "sent" }
                #expect(own.map { $0["event"] } == ["delivered", "opened", "read", "read"])
                for event in own {
                    #expect(["channel", "platform", "app", "device"].map { event[$0] ?? "" } == expected, "\(event)")
                }
            }
        }
    }

    @Test("the events stream can be switched off, and is bounded when it is on")
    func bound() async throws {
        try await Stack.with { stack in
            let environment = ["EVENTS_LENGTH": "1000"]
            let dispatcher = try await stack.startDispatcher(name: "dispatcher-0", environment: environment)
            let users = (0..<1_000).map { "\"u\($0)\"" }.joined(separator: ",")
            for number in 0..<3 {
                try await stack.append([("users", "[\(users)]"), ("type", "invoice_created"), ("title", "\(number)")])
            }
            try await eventually("all were written") {
                try await stack.query("SELECT count(*) FROM carillon.notifications WHERE status = 'sent'")
                    .first?.int8(0) == 3_000
            }
            try await eventually("all events were appended") {
                let reply = try await stack.connection.send("XINFO", "STREAM", "carillon:events")
                var cursor = try #require(try reply.cursor())
                for _ in 0..<(try cursor.array() ?? 0) / 2 {
                    if try cursor.string() == "entries-added" { return try cursor.integer() == 3_000 }
                    try cursor.skip()
                }
                return false
            }
            let length = try await stack.connection.send("XLEN", "carillon:events").integer()
            #expect((1_000..<1_300).contains(length))
            _ = try await dispatcher.stop()

            try await stack.connection.send("DEL", "carillon:events")
            let silent = try await stack.startDispatcher(name: "dispatcher-1", environment: ["EVENTS": "off"])
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "silent")])
            try await eventually("it is finished") { try await stack.statuses(user: "ada") == ["silent": "sent"] }
            _ = try await silent.stop()
            #expect(try await stack.connection.send("EXISTS", "carillon:events").integer() == 0)
        }
    }
}

/// Events for notifications that are deferred, replaced, summarised or cancelled.
@Suite(.timeLimit(.minutes(10)))
struct LifecycleEventTests {
    private static func with(_ body: (Stack, Gateway) async throws -> Void) async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  news: {severity: info, delivery: push, category: world}
                  comment: {severity: info, delivery: push, digest: {window: 1h}}
                """
            )
            let gateway = try await stack.startBoth(environment: environment)
            try await body(stack, gateway)
        }
    }

    /// The kinds of a user's events by job, in order; events without a job are under "".
    private static func eventsByJob(_ stack: Stack, _ user: String) async throws -> [String: [String]] {
        var kinds: [String: [String]] = [:]
        for event in try await stack.events() where event["user"] == user {
            kinds[event["job"] ?? "", default: []].append(event["event"] ?? "")
        }
        return kinds
    }

    @Test("deferred notifications are reported as deferred, then summarised, and the summary as sent")
    func deferred() async throws {
        try await Self.with { stack, gateway in
            let device = try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await gateway.set(QuietNow.settings, of: "ada")
            let jobs = (1...6).map { "n\($0)" }
            for job in jobs {
                try await stack.append([
                    ("user", "ada"), ("type", "news"), ("title", job), ("id", job), ("org", "acme"),
                ])
            }
            try await eventually("each is reported as deferred") {
                try await Self.eventsByJob(stack, "ada")
                    == Dictionary(uniqueKeysWithValues: jobs.map { ($0, ["deferred"]) })
            }
            let first = try #require(try await stack.events().first)
            #expect(first["reason"] == "quiet_hours")
            #expect(first["channel"] == "push")
            #expect(first["org"] == "acme")
            #expect(first["category"] == "world")
            try await gateway.set(QuietNow.over, of: "ada")
            try await eventually("each is reported as summarised, and the summary as sent") {
                let kinds = try await Self.eventsByJob(stack, "ada")
                return kinds[""] == ["sent"] && jobs.allSatisfy { kinds[$0] == ["deferred", "summarised"] }
            }
            let events = try await stack.events()
            let summary = try #require(events.first { $0["event"] == "sent" })
            #expect(summary["device"] == device)
            #expect(summary["org"] == "acme")
            let reasons = Set(events.filter { $0["event"] == "summarised" }.map { $0["reason"] })
            #expect(reasons == [summary["notification"]])
        }
    }

    @Test("notifications in a digest are reported as deferred, then summarised")
    func digested() async throws {
        try await Self.with { stack, _ in
            for job in ["c1", "c2"] {
                try await stack.append([
                    ("user", "ben"), ("type", "comment"), ("title", job), ("id", job), ("digest", "post"),
                ])
            }
            try await eventually("both wait") {
                try await Self.eventsByJob(stack, "ben") == ["c1": ["deferred"], "c2": ["deferred"]]
            }
            #expect(try await stack.events().allSatisfy { $0["reason"] == "digest" })
            try await stack.closeDigests()
            try await eventually("both are part of a summary, which waits in the inbox") {
                let kinds = try await Self.eventsByJob(stack, "ben")
                return kinds == ["c1": ["deferred", "summarised"], "c2": ["deferred", "summarised"], "": ["sent"]]
            }
            let events = try await stack.events()
            let summary = events.first { $0["event"] == "sent" }
            let reasons = Set(events.filter { $0["event"] == "summarised" }.map { $0["reason"] })
            #expect(reasons == [summary?["notification"]])
        }
    }

    @Test("a replaced notification is reported as replaced, with its successor")
    func replaced() async throws {
        try await Self.with { stack, _ in
            for job in ["s1", "s2"] {
                try await stack.append([
                    ("user", "cleo"), ("type", "news"), ("title", job), ("id", job), ("collapse_key", "match"),
                ])
                try await eventually("it waits in the inbox") {
                    try await Self.eventsByJob(stack, "cleo")[job]?.contains("sent") == true
                }
            }
            try await eventually("the first is replaced") {
                try await Self.eventsByJob(stack, "cleo") == ["s1": ["sent", "replaced"], "s2": ["sent"]]
            }
            let events = try await stack.events()
            let newer = events.first { $0["job"] == "s2" }
            #expect(events.first { $0["event"] == "replaced" }?["reason"] == newer?["notification"])
        }
    }

    @Test("a cancelled notification is reported as cancelled once, before or after it was stored")
    func cancelled() async throws {
        try await Self.with { stack, gateway in
            let service = Stack.token(user: "app", scope: .service)
            #expect(try await gateway.call(.delete, "/v1/jobs/early", token: service).status == 200)
            for job in ["early", "late"] {
                try await stack.append([("user", "dora"), ("type", "news"), ("title", job), ("id", job)])
            }
            try await eventually("one is cancelled, the other waits") {
                try await Self.eventsByJob(stack, "dora") == ["early": ["cancelled"], "late": ["sent"]]
            }
            for _ in 0..<2 {
                #expect(try await gateway.call(.delete, "/v1/jobs/late", token: service).status == 200)
            }
            #expect(
                try await Self.eventsByJob(stack, "dora") == ["early": ["cancelled"], "late": ["sent", "cancelled"]])

            try await stack.append([("all", "true"), ("type", "news"), ("title", "all"), ("id", "all")])
            try await eventually("the broadcast has come") {
                try await Self.eventsByJob(stack, "dora")["all"] == ["sent"]
            }
            #expect(try await gateway.call(.delete, "/v1/jobs/all", token: service).status == 200)
            try await eventually("it is withdrawn and reported as cancelled") {
                try await Self.eventsByJob(stack, "dora")["all"] == ["sent", "cancelled"]
            }
        }
    }
}
