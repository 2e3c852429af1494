// Carillon · OutboxStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Storage

@Suite("Outbox", .timeLimit(.minutes(10)))
struct OutboxStoreTests {
    @Test("another relay moves the rows of one that stalls while it holds the lock")
    func stalled() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                #"SELECT carillon.enqueue('{"user": "ada", "type": "news", "title": "x"}')"#)
            let stalled = OutboxStore(pool: database.pool, idleLimit: .milliseconds(200))
            let other = database.outbox
            await #expect(throws: PostgresError.self) {
                try await stalled.move(limit: 10) { _, rows in
                    try await eventually("the other moves the row") {
                        try await other.move(limit: 10) { _, rows in rows.map(\.id) } == 1
                    }
                    return rows.map(\.id)
                }
            }
            #expect(try await other.backlog().count == 0)
        }
    }
}
