// Carillon · PostgresModelTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct PostgresModelTests {
    @Test("refuses a row whose position is outside its batch", arguments: [-1, 2, .max] as [Int32])
    func position(_ position: Int32) async throws {
        try await Samples.withStores { database in
            for (number, fits) in [(0, true), (1, true), (position, false)] {
                let row = try #require(try await database.pool.query("SELECT $1", .int4(number)).first)
                #expect((try? row.position(in: 2)) == (fits ? Int(number) : nil))
            }
        }
    }
}
