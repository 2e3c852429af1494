// Carillon · ClientReportStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

@Suite(.timeLimit(.minutes(10)))
struct ClientReportStoreTests {
    @Test("stores a repeat among simultaneous reports once, and no more than the limit", arguments: [true, false])
    func simultaneous(isRepeat: Bool) async throws {
        try await Samples.withConcurrentStores { database in
            let most = ClientReportStore.mostPerHour
            let known = isRepeat ? 0 : most - 1
            try await database.pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome, reason)
                SELECT now(), 'ada', 'fcm', 'registration', 0, 'failed', 'known ' || n FROM generate_series(1, $1) n
                """,
                .int4(Int32(known)))
            // Holds a report between its count and its commit.
            try await Samples.holdInserts(into: "delivery_attempts", database)
            let store = database.clientReports
            let calls = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                let calls = ["one", isRepeat ? "one" : "two"].map { reason in
                    let report = ClientReportStore.Report(
                        at: Samples.start, user: "ada", kind: .registration, outcome: .failed, provider: .fcm,
                        reason: reason)
                    return Task { try await store.add(report) }
                }
                try await eventually("both reports wait") { try await Samples.areWaiting(2, database) }
                return calls
            }
            var taken = 0
            for call in calls where try await call.value { taken += 1 }
            #expect(taken == (isRepeat ? 2 : 1))
            let stored = try await database.pool.query("SELECT FROM carillon.delivery_attempts")
            #expect(stored.count == (isRepeat ? 1 : most))
        }
    }
}
