// Carillon · LargeJobTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Jobs with many users each.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct LargeJobTests {
    private static let jobs = 40
    private static let users = 1_000
    private static let catalog = """
        types:
          mass: {severity: info, delivery: in_app, lane: bulk}
          alarm: {severity: alert, delivery: in_app, lane: critical}
        """

    @Test("a critical job overtakes a batch of jobs for a thousand users each, and all are notified")
    func critical() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog)
            // All jobs are appended before a dispatcher runs, so they make one batch.
            for job in 0..<Self.jobs {
                let names = (0..<Self.users).map { #""m\#(job)-\#($0)""# }.joined(separator: ",")
                try await stack.append(
                    [("users", "[\(names)]"), ("type", "mass"), ("title", "mass")], stream: "carillon:jobs:bulk")
            }
            let count = "SELECT count(*) FROM carillon.notifications WHERE type = 'mass'"
            _ = try await stack.startDispatcher(environment: environment)
            try await eventually("the batch is begun") { try await stack.query(count).first?.int8(0) ?? 0 > 0 }
            try await stack.append(
                [("user", "urgent"), ("type", "alarm"), ("title", "fire")], stream: "carillon:jobs:critical")
            try await eventually("the alarm is stored") {
                try await !stack.query("SELECT 1 FROM carillon.notifications WHERE type = 'alarm'").isEmpty
            }
            let before = try await stack.query(count).first?.int8(0) ?? 0
            #expect(before < Self.jobs * Self.users, "the alarm waited for the whole batch")
            try await eventually("all are told", within: .seconds(120)) {
                try await stack.query(count).first?.int8(0) == Int64(Self.jobs * Self.users)
            }
            let untold = "SELECT 1 FROM carillon.notifications WHERE status = 'pending' LIMIT 1"
            try await eventually("nothing is left to do", within: .seconds(120)) {
                try await stack.query(untold).isEmpty
            }
        }
    }
}
