// Carillon · InboxPartTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Storage

/// The partition of an inbox.
@Suite(.timeLimit(.minutes(10)))
struct InboxPartTests {
    @Test("computes the same partition as PostgreSQL")
    func number() async throws {
        try await Samples.withStores { pool in
            var random = SeededGenerator(seed: 7)
            let alphabet = Array("abcxyz0189-_.@|:+/ äß€你🙂\u{301}")
            // Lengths around the 12 bytes that are hashed at once.
            let users = (0..<2_000).map { number in
                String((0..<number % 67).map { _ in alphabet.randomElement(using: &random) ?? "a" })
            }
            var parts = PostgresArray(.int4, capacity: users.count)
            for user in users { parts.append(int4: Int32(InboxPart.number(of: user))) }
            let misplaced = try await pool.query(
                """
                SELECT u.user_id FROM unnest($1, $2) AS u (user_id, part)
                WHERE NOT satisfies_hash_partition('carillon.notifications'::regclass, 16, u.part, u.user_id)
                """,
                .array(PostgresArray(texts: users)), .array(parts)
            )
            #expect(try misplaced.map { try $0.text(0) } == [])
            #expect(Set(users.map { InboxPart.number(of: $0) }).count == InboxPart.count)
            let tables = try await pool.query(
                """
                SELECT n.nspname || '.' || c.relname
                FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE i.inhparent = 'carillon.notifications'::regclass
                ORDER BY substring(pg_get_expr(c.relpartbound, c.oid) FROM 'remainder (\\d+)')::int
                """
            )
            let names = try tables.map { try $0.text(0) }
            #expect(names == InboxPart.tables)
        }
    }
}
