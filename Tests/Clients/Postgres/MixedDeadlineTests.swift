// Carillon · MixedDeadlineTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@Suite(.timeLimit(.minutes(10)))
struct MixedDeadlineTests {
    @Test(
        "a short deadline holds behind a call with a long one, waiting or sent",
        arguments: [(1, .unavailable), (16, .timeout)] as [(Int, PostgresError.Code)]
    )
    func shortBehindLong(depth: Int, expected: PostgresError.Code) async throws {
        try await TestDatabase.with(
            isMigrated: false,
            {
                $0.connections = 1
                $0.pipelineDepth = depth
                $0.timeout = .seconds(40)
            },
            { database in
                let pool = database.pool
                let session = try await pool.number("SELECT pg_backend_pid()::int8")
                let watcher = try PostgresPool(
                    database.configuration(applicationName: "watcher"), logger: TestLog.logger)
                defer { watcher.close() }
                let slow = try await watcher.transaction { transaction in
                    try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                    let slow = Task { await pool.failure(of: "SELECT pg_advisory_xact_lock(1)") }
                    try await eventually("the long call holds the connection") {
                        try await watcher.number(
                            "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1::int8",
                            .int8(session ?? 0)) == 1
                    }
                    let clock = ContinuousClock()
                    let start = clock.now
                    let error = await pool.failure(of: "SELECT 1", timeout: .milliseconds(300))
                    #expect(error?.code == expected)
                    #expect(clock.now - start < .seconds(10))
                    return slow
                }
                #expect(await slow.value == nil)
                #expect(try await pool.number("SELECT pg_backend_pid()::int8") == session)
            }
        )
    }
}
