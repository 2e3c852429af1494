// Carillon · OverflowTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

/// A flood of one organisation delays no other, and none of it is lost.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct OverflowTests {
    private static let environment = ["OVERFLOW_BACKLOG": "500", "OVERFLOW_SHARE": "100"]

    private static func flood(_ stack: Stack, _ count: Int) async throws {
        for start in stride(from: 0, to: count, by: 1_000) {
            var batch = RedisBatch()
            for number in start..<min(start + 1_000, count) {
                batch.append(
                    "XADD", "carillon:jobs", "*", "user", .text("u\(number % 50)"), "type", "invoice_created", "title",
                    .text("\(number)"), "org", "flood")
            }
            for reply in try await stack.connection.send(batch) { _ = try reply.checked() }
        }
    }

    private static func count(_ stack: Stack, org: String) async throws -> Int64 {
        try await stack.query("SELECT count(*) FROM carillon.notifications WHERE org_id = $1", .text(org))
            .first?.int8(0) ?? 0
    }

    @Test("jobs behind another organisation's flood do not wait for it, and a crash loses none of the flood")
    func flood() async throws {
        try await Stack.with { stack in
            let total = 20_000
            try await Self.flood(stack, total)
            for number in 0..<20 {
                try await stack.append([
                    ("user", "ada"), ("type", "invoice_created"), ("title", "\(number)"), ("org", "small"),
                ])
            }
            let first = try await stack.spawn(
                "dispatcher", ["run"], name: "dispatcher-0", environment: Self.environment)
            try await eventually("the small organisation's jobs are done") {
                try await Self.count(stack, org: "small") == 20
            }
            let done = try await Self.count(stack, org: "flood")
            #expect(done < Int64(total / 2), "\(done) of the flood were done before")
            first.send(SIGKILL)
            _ = try await stack.spawn("dispatcher", ["run"], name: "dispatcher-1", environment: Self.environment)
            try await eventually("all of the flood is done, each once", within: .seconds(120)) {
                try await Self.count(stack, org: "flood") == total
            }
            try await eventually("nothing is left anywhere", within: .seconds(60)) {
                let overflows = try await stack.connection.send(
                    "EXISTS", "carillon:jobs:{overflow}:flood", "carillon:jobs:{overflow}"
                ).integer()
                let jobs = try await stack.connection.send("XLEN", "carillon:jobs").integer()
                return overflows == 0 && jobs == 0
            }
            let titles = try await stack.query(
                "SELECT count(DISTINCT title) FROM carillon.notifications WHERE org_id = 'flood'")
            #expect(try titles.first?.int8(0) == Int64(total))
            let entries = try await stack.query(
                "SELECT count(*) FROM carillon.notifications WHERE job_entry NOT LIKE 'carillon:jobs/%'")
            #expect(try entries.first?.int8(0) == 0)
        }
    }

    @Test("a faulty job in the overflow is dead-lettered under its original stream")
    func fault() async throws {
        try await Stack.with { stack in
            try await Self.flood(stack, 1_000)
            let entry = try await stack.append([("user", "ada"), ("type", "unknown"), ("org", "flood")])
            _ = try await stack.spawn("dispatcher", ["run"], name: "dispatcher", environment: Self.environment)
            let row = try await eventualValue("it is set aside") {
                try await stack.query("SELECT stream, entry, fields::text FROM carillon.dead_letters").first
            }
            #expect(try row.text(0) == "carillon:jobs")
            #expect(try row.text(1) == entry)
            #expect(try !row.text(2).contains("carillon:origin"))
        }
    }
}
