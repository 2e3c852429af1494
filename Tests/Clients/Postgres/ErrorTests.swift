// Carillon · ErrorTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct ErrorTests {
    private static let schema = """
        CREATE TABLE people (
            id int8 CONSTRAINT people_pk PRIMARY KEY,
            name text NOT NULL CONSTRAINT people_name_short CHECK (length(name) < 10));
        CREATE TABLE friends (person int8 CONSTRAINT friends_person REFERENCES people);
        """

    private static let insert = "INSERT INTO people VALUES ($1, $2)"

    @Test(
        "a failure is transient unless the data, the statement or a row is at fault",
        arguments: [
            (.unavailable, nil, true), (.timeout, nil, true), (.connectionLost, nil, true), (.overloaded, nil, true),
            (.server, "40P01", true), (.server, "53300", true), (.server, "57014", true), (.server, "25006", true),
            (.server, "23505", false), (.server, "42P01", false), (.server, nil, false), (.decoding, nil, false),
        ] as [(PostgresError.Code, String?, Bool)]
    )
    func transient(code: PostgresError.Code, state: String?, expected: Bool) {
        #expect(PostgresError(code, sqlState: state).isTransient == expected)
    }

    @Test("parameters of 1 GB are refused before they are sent")
    func tooLarge() async throws {
        try await TestDatabase.with(isMigrated: false) { database async throws in
            // The copies share their memory.
            let part = PostgresValue.text(String(repeating: "x", count: 1 << 27))
            let refusal = PostgresError(.server, "the parameters have 1 GB or more", sqlState: "54000")
            await #expect(throws: refusal) {
                try await database.pool.run([PostgresStatement("SELECT 1", Array(repeating: part, count: 8))])
            }
            #expect(try await database.pool.query("SELECT 1").count == 1)
        }
    }

    @Test("a violation names the constraint and the table but no value")
    func violation() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let pool = database.pool
            try await pool.withScriptConnection { try $0.execute(Self.schema) }
            try await pool.query(Self.insert, .int8(424_242), .text("Ada"))

            let unique = try #require(await pool.failure(of: Self.insert, .int8(424_242), .text("Bob")))
            #expect(unique.code == .server)
            #expect(unique.sqlState == "23505")
            #expect(unique.constraint == "people_pk")
            #expect(unique.table == "people")
            #expect(unique.isRefusal)
            #expect(!unique.description.contains("424242"))

            let check = try #require(await pool.failure(of: Self.insert, .int8(2), .text("secret-and-long")))
            #expect(check.sqlState == "23514")
            #expect(check.constraint == "people_name_short")
            #expect(!check.description.contains("secret"))

            let missing = try #require(await pool.failure(of: Self.insert, .int8(3), .null(.text)))
            #expect(missing.sqlState == "23502")
            #expect(missing.column == "name")

            let reference = await pool.failure(of: "INSERT INTO friends VALUES ($1)", .int8(9_999))
            #expect(reference?.sqlState == "23503")
            #expect(reference?.constraint == "friends_person")
        }
    }

    @Test(
        "a faulty value is a refusal, and a table, column or right that is missing is none",
        arguments: [
            ("SELEC 1", "42601", false),
            ("SELECT * FROM secret_table_name", "42P01", false),
            ("SELECT secret_column FROM pg_class", "42703", false),
            ("SELECT 'secret-text'::int8", "22P02", true),
            ("SELECT 1 / 0", "22012", true),
        ])
    func refusal(_ sql: String, _ state: String, isRefusal: Bool) async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let error = try #require(await database.pool.failure(of: sql))
            #expect(error.sqlState == state)
            #expect(error.isRefusal == isRefusal)
            #expect(!error.description.contains("secret"))
            // The connection still works.
            #expect(try await database.pool.number("SELECT 1::int8") == 1)
        }
    }

    @Test("an error of class 08, as of a pooler that has lost its server, is a lost connection and no refusal")
    func lostBehindPooler() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let raise = "DO $$ BEGIN RAISE EXCEPTION 'server conn crashed' USING ERRCODE = '08P01'; END $$"
            let error = try #require(await database.pool.failure(of: raise))
            #expect(error.code == .connectionLost)
            #expect(error.sqlState == "08P01")
            #expect(error.isTransient && !error.isRefusal)
        }
    }

    @Test("a value that the server cannot store is a refusal")
    func unstorable() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            for (sql, value) in [
                ("SELECT $1::text", PostgresValue.text("a\u{0}b")),
                ("SELECT $1::jsonb", .jsonb(Array(#"{"a":"\u0000"}"#.utf8))),
                ("SELECT $1::jsonb", .jsonb(Array("{".utf8))),
            ] {
                let error = await database.pool.failure(of: sql, value)
                #expect(error?.isRefusal == true, "\(sql)")
            }
        }
    }

    @Test("a statement is prepared again after its table changed")
    func changedTable() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let pool = database.pool
            try await pool.query("CREATE TABLE shapes (n int8)")
            try await pool.query("INSERT INTO shapes VALUES (1)")
            #expect(try await pool.query("SELECT * FROM shapes")[0].int8(0) == 1)
            try await pool.withScriptConnection {
                try $0.execute("ALTER TABLE shapes ADD COLUMN more text DEFAULT 'x'")
            }
            try await eventually("the new column is read") {
                // The first call fails because of the old plan.
                let row = try? await pool.query("SELECT * FROM shapes").first
                return try row?.text(1) == "x"
            }
        }
    }
}
