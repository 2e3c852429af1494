// Carillon · LifecycleEventTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// Events for notifications that are deferred, replaced, summarised or cancelled.
@Suite(.serialized, .timeLimit(.minutes(10)))
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
            let gateway = try await stack.startGateway(environment: environment)
            _ = try await stack.startDispatcher(environment: environment)
            try await body(stack, gateway)
        }
    }

    /// The kinds of a user's events by job, in order; events without a job are under "".
    private static func told(_ stack: Stack, _ user: String) async throws -> [String: [String]] {
        var told: [String: [String]] = [:]
        for event in try await stack.events() where event["user"] == user {
            told[event["job"] ?? "", default: []].append(event["event"] ?? "")
        }
        return told
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
                try await Self.told(stack, "ada") == Dictionary(uniqueKeysWithValues: jobs.map { ($0, ["deferred"]) })
            }
            let first = try #require(try await stack.events().first)
            #expect(first["reason"] == "quiet_hours")
            #expect(first["channel"] == "push")
            #expect(first["org"] == "acme")
            #expect(first["category"] == "world")
            try await gateway.set(QuietNow.over, of: "ada")
            try await eventually("each is reported as summarised, and the summary as sent") {
                let told = try await Self.told(stack, "ada")
                return told[""] == ["sent"] && jobs.allSatisfy { told[$0] == ["deferred", "summarised"] }
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
    func gathered() async throws {
        try await Self.with { stack, _ in
            for job in ["c1", "c2"] {
                try await stack.append([
                    ("user", "ben"), ("type", "comment"), ("title", job), ("id", job), ("digest", "post"),
                ])
            }
            try await eventually("both wait") {
                try await Self.told(stack, "ben") == ["c1": ["deferred"], "c2": ["deferred"]]
            }
            #expect(try await stack.events().allSatisfy { $0["reason"] == "digest" })
            try await stack.closeDigests()
            try await eventually("both are part of a summary, which waits in the inbox") {
                let told = try await Self.told(stack, "ben")
                return told == ["c1": ["deferred", "summarised"], "c2": ["deferred", "summarised"], "": ["sent"]]
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
                    try await Self.told(stack, "cleo")[job]?.contains("sent") == true
                }
            }
            try await eventually("the first is replaced") {
                try await Self.told(stack, "cleo") == ["s1": ["sent", "replaced"], "s2": ["sent"]]
            }
            let events = try await stack.events()
            let newer = events.first { $0["job"] == "s2" }
            #expect(events.first { $0["event"] == "replaced" }?["reason"] == newer?["notification"])
        }
    }

    @Test("a cancelled notification is reported as cancelled once, before or after it was stored")
    func cancelled() async throws {
        try await Self.with { stack, gateway in
            let service = try await Stack.token(user: "app", scope: .service)
            #expect(try await gateway.call(.delete, "/v1/jobs/early", token: service).status == 200)
            for job in ["early", "late"] {
                try await stack.append([("user", "dora"), ("type", "news"), ("title", job), ("id", job)])
            }
            try await eventually("one is cancelled, the other waits") {
                try await Self.told(stack, "dora") == ["early": ["cancelled"], "late": ["sent"]]
            }
            for _ in 0..<2 {
                #expect(try await gateway.call(.delete, "/v1/jobs/late", token: service).status == 200)
            }
            #expect(try await Self.told(stack, "dora") == ["early": ["cancelled"], "late": ["sent", "cancelled"]])

            try await stack.append([("all", "true"), ("type", "news"), ("title", "all"), ("id", "all")])
            try await eventually("the broadcast has come") {
                try await Self.told(stack, "dora")["all"] == ["sent"]
            }
            #expect(try await gateway.call(.delete, "/v1/jobs/all", token: service).status == 200)
            try await eventually("it is withdrawn, and told so") {
                try await Self.told(stack, "dora")["all"] == ["sent", "cancelled"]
            }
        }
    }
}
