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

    @Test("a read takes rows by the size of their texts, and no fields of a row over 4 MB")
    func sizes() async throws {
        try await Samples.withStores { database in
            // Past the limit of `enqueue`, which a plain INSERT does not have.
            try await database.pool.query(
                """
                INSERT INTO carillon.outbox (fields) SELECT jsonb_build_object('user', 'ada', 'body', repeat('x', size))
                FROM unnest(ARRAY[1500000, 1500000, 1500000, 1500000, 5000000, 10]) size
                """)
            var reads: [[Int?]] = []
            while try await database.outbox.move(
                limit: 100,
                { _, rows in
                    reads.append(
                        try rows.map { row in
                            try row.fields.map { try JSONParser.parse($0)["body"]?.string?.utf8.count ?? 0 }
                        })
                    return rows.map(\.id)
                }) != nil
            {}
            #expect(reads == [[1_500_000, 1_500_000, 1_500_000], [1_500_000, nil], [10]])
        }
    }

    @Test("a row whose text PostgreSQL cannot build is read alone, without its fields")
    func unreadable() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                SELECT carillon.enqueue(jsonb_build_object('user', name, 'type', 'news'))
                FROM unnest(ARRAY['a', 'b', 'c']) name
                """)
            try await database.pool.refuseOutboxReads(of: "b")
            let store = database.outbox
            await #expect(throws: OutboxStore.Unreadable.self) {
                try await store.move(limit: 2) { _, rows in rows.map(\.id) }
            }
            #expect(try await store.backlog().count == 3)
            var reads: [String?] = []
            for _ in 0..<4 {
                _ = try await store.move(limit: 1) { _, rows in
                    reads += try rows.map { row in try row.fields.flatMap { try JSONParser.parse($0)["user"]?.string } }
                    return rows.map(\.id)
                }
            }
            #expect(reads == ["a", nil, "c"])
        }
    }

    @Test("a row that PostgreSQL cannot read now is named, so that others can pass it")
    func unreadableNow() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                SELECT carillon.enqueue(jsonb_build_object('user', name, 'type', 'news'))
                FROM unnest(ARRAY['a', 'b']) name
                """)
            try await database.pool.refuseOutboxReads(of: "a", with: "53200")
            let store = database.outbox
            let error = await #expect(throws: OutboxStore.Unreadable.self) {
                try await store.move(limit: 1) { _, rows in rows.map(\.id) }
            }
            let row = try #require(error?.row)
            let moved = try await store.move(limit: 1, skipping: [row]) { _, rows in rows.map(\.id) }
            #expect(moved == 1)
            #expect(try await store.backlog().count == 1)
        }
    }
}
