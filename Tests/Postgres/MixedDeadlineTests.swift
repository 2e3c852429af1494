// Carillon · MixedDeadlineTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import Postgres
import Testing

@Suite(.timeLimit(.minutes(1)))
struct MixedDeadlineTests {
    @Test("a short deadline holds behind a call with a long one, waiting or sent", arguments: [1, 16])
    func shortBehindLong(depth: Int) async throws {
        try await TestDatabase.with(
            isMigrated: false,
            {
                $0.connections = 1
                $0.pipelineDepth = depth
                $0.timeout = .seconds(20)
            },
            { database in
                let pool = database.pool
                try await pool.query("SELECT 1")
                let slow = Task { try await pool.query("SELECT pg_sleep(2)") }
                await Task.yield()
                let start = ContinuousClock.now
                let error = await #expect(throws: PostgresError.self) {
                    // Whichever of the two is sent first, this one has no answer in time.
                    try await pool.query("SELECT pg_sleep(1)", timeout: .milliseconds(300))
                }
                #expect(error?.code == .unavailable || error?.code == .timeout)
                #expect(ContinuousClock.now - start < .seconds(2))
                _ = try? await slow.value
                let after = try await pool.query("SELECT 2")
                #expect(after.count == 1)
            }
        )
    }
}
