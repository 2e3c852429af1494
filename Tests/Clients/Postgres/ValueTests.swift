// Carillon · ValueTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct ValueTests {
    @Test("every type comes back as it was sent")
    func types() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let moment: Int64 = 1_795_000_000_123_456
            let result = try await database.pool.query(
                "SELECT $1::bool, $2::int4, $3::int8, $4::float8::text, $5::text, $6::uuid, $7::timestamptz, $8::jsonb",
                .bool(true), .int4(.min), .int8(.max), .float8(-0.125), .text("Zoë 🔔"),
                .uuid((0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210)), .timestamptz(moment),
                .jsonb(Array(#"{"a": [1, "é"]}"#.utf8)))
            let row = try #require(result.first)
            #expect(try row.bool(0))
            #expect(try row.int4(1) == .min)
            #expect(try row.int8(2) == .max)
            #expect(try row.text(3) == "-0.125")
            #expect(try row.text(4) == "Zoë 🔔")
            #expect(try row.uuid(5) == (0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210))
            #expect(try row.timestamptz(6) == moment)
            #expect(try row.optionalJSON(7) == Array(#"{"a": [1, "é"]}"#.utf8))
        }
    }

    @Test("timestamps and UUIDs mean the same to the server")
    func meaning() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let result = try await database.pool.query(
                "SELECT $1::timestamptz = '1970-01-01T00:00:01.5Z', $2::uuid::text",
                .timestamptz(1_500_000), .uuid((0x0000_0000_0000_0001, 0x8000_0000_0000_00AB)))
            #expect(try result[0].bool(0))
            #expect(try result[0].text(1) == "00000000-0000-0001-8000-0000000000ab")
        }
    }

    @Test("timestamps beyond the range of the other side are clamped")
    func clamped() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let result = try await database.pool.query(
                """
                SELECT 'infinity'::timestamptz, '294276-12-31 00:00:00Z'::timestamptz, '-infinity'::timestamptz,
                    $1::timestamptz = '-infinity', $2::timestamptz > '290000-01-01 00:00:00Z'
                """,
                .timestamptz(.min), .timestamptz(.max))
            let row = try #require(result.first)
            #expect(try row.timestamptz(0) == .max)
            #expect(try row.timestamptz(1) == .max)
            #expect(try row.timestamptz(2) < 0)
            #expect(try row.bool(3))
            #expect(try row.bool(4))
        }
    }

    @Test(
        "nulls keep their type",
        arguments: [PostgresType.bool, .int4, .int8, .float8, .text, .uuid, .timestamptz, .jsonb])
    func nulls(_ type: PostgresType) async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let result = try await database.pool.query("SELECT $1::\(type)", .null(type))
            #expect(result[0].isNull(0))
            #expect(throws: PostgresError.self) { try result[0].int8(0) }
            #expect(throws: PostgresError.self) { try result[0].text(0) }
        }
    }

    @Test("empty values are not null")
    func empty() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let result = try await database.pool.query(
                "SELECT $1::text, $2::text IS NULL", .text(""), .text(""))
            #expect(try result[0].optionalText(0)?.isEmpty == true)
            #expect(try result[0].bool(1) == false)
        }
    }

    @Test("columns of a batch pass through unnest")
    func batch() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            var texts = PostgresArray(.text)
            var numbers = PostgresArray(.int8)
            var moments = PostgresArray(.timestamptz)
            var documents = PostgresArray(.jsonb)
            var flags = PostgresArray(.bool)
            var ids = PostgresArray(.uuid)
            for number in 0..<1_000 {
                ids.append(uuid: (UInt64(number), ~UInt64(number)))
                texts.append(number.isMultiple(of: 7) ? nil : "text \(number)")
                numbers.append(int8: Int64(number) - 500)
                moments.append(timestamptz: number.isMultiple(of: 5) ? nil : Int64(number) * 1_000_000)
                documents.append(json: number.isMultiple(of: 3) ? nil : Array("[\(number)]".utf8))
                flags.append(bool: number.isMultiple(of: 2))
            }
            let result = try await database.pool.query(
                """
                SELECT t, n, m, d, f, i FROM unnest($1::text[], $2::int8[], $3::timestamptz[], $4::jsonb[], $5::bool[],
                    $6::uuid[]) WITH ORDINALITY AS rows (t, n, m, d, f, i, place) ORDER BY place
                """,
                .array(texts), .array(numbers), .array(moments), .array(documents), .array(flags), .array(ids))
            #expect(result.count == 1_000)
            for (number, row) in result.enumerated() {
                #expect(try row.optionalText(0) == (number.isMultiple(of: 7) ? nil : "text \(number)"))
                #expect(try row.int8(1) == Int64(number) - 500)
                let moment = number.isMultiple(of: 5) ? nil : Int64(number) * 1_000_000
                #expect(try row.isNull(2) ? moment == nil : row.timestamptz(2) == moment)
                let document = number.isMultiple(of: 3) ? nil : Array("[\(number)]".utf8)
                #expect(try row.optionalJSON(3) == document)
                #expect(try row.bool(4) == number.isMultiple(of: 2))
                #expect(try row.uuid(5) == (UInt64(number), ~UInt64(number)))
            }
        }
    }

    @Test("an empty array has no rows")
    func emptyArray() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let result = try await database.pool.query(
                "SELECT 1 FROM unnest($1::text[])", .array(PostgresArray(.text)))
            #expect(result.isEmpty)
        }
    }

    @Test("changed rows are counted")
    func affectedRows() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            try await database.pool.query("CREATE TABLE things (n int8)")
            let inserted = try await database.pool.query("INSERT INTO things SELECT generate_series(1, 5)")
            #expect(inserted.affectedRows == 5)
            let deleted = try await database.pool.query("DELETE FROM things WHERE n > $1", .int8(3))
            #expect(deleted.affectedRows == 2)
        }
    }
}
