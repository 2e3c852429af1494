// Carillon · OutboxStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
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
            let other = database.outbox
            _ = try await valueInTime("a relay reads the row before it loses the lock") { limit -> Void? in
                let stalled = OutboxStore(pool: database.pool, idleLimit: limit)
                await #expect(throws: PostgresError.self) {
                    try await stalled.move(limit: 10) { _, rows in
                        try await eventually("the other moves the row") {
                            try await other.move(limit: 10) { _, rows in rows.map(\.id) } == 1
                        }
                        return rows.map(\.id)
                    }
                }
                return try await other.backlog().count == 0 ? () : nil
            }
        }
    }

    @Test("a read takes rows by the size of their texts")
    func sizes() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.outbox (fields) SELECT jsonb_build_object('user', 'ada', 'body', repeat('x', size))
                FROM unnest(ARRAY[1500000, 1500000, 1500000, 2000000, 2000000, 2000000, 10]) size
                """)
            var reads: [[Int]] = []
            while try await database.outbox.move(
                limit: 100,
                { _, rows in
                    reads.append(try rows.map { try JSONParser.parse($0.fields)["body"]?.string?.utf8.count ?? 0 })
                    return rows.map(\.id)
                }) != nil
            {}
            #expect(reads == [[1_500_000, 1_500_000, 1_500_000], [2_000_000, 2_000_000, 2_000_000], [10]])
        }
    }

    @Test("in a database that is not UTF-8, a row without a form in UTF-8 is refused when it is inserted")
    func encoding() async throws {
        try await TestDatabase.with(isMigrated: false, encoding: "SQL_ASCII") { database in
            let pool = database.pool
            try await pool.withScriptConnection { try $0.execute(Migrations.outboxScript) }
            func enqueue(title: String) async throws {
                try await pool.query(
                    "SELECT carillon.enqueue(jsonb_build_object('user', 'ada', 'type', 'news', 'title', \(title)))")
            }
            // "é" in Latin-1, then in UTF-8.
            let error = await #expect(throws: PostgresError.self) { try await enqueue(title: "chr(233)") }
            #expect(error?.sqlState == "22021")
            try await enqueue(title: "chr(195) || chr(169)")
            let moved = try await Database(pool).outbox.move(limit: 10) { _, rows in rows.map(\.id) }
            #expect(moved == 1)
        }
    }
}
