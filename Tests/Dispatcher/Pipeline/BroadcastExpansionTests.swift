// Carillon · BroadcastExpansionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Pipeline
@testable import Storage

/// The order in which broadcasts are expanded.
@Suite(.timeLimit(.minutes(10)))
struct BroadcastExpansionTests {
    @Test("a broadcast does not wait for all those that another organisation sent before")
    func organisations() async throws {
        try await TestDispatcher.with { dispatcher, database in
            try await database.pool.query("INSERT INTO carillon.users (user_id) VALUES ('ada')")
            let orgs = Array(repeating: "loud", count: 20) + ["quiet"]
            let broadcasts = orgs.enumerated().map { number, org in
                let fields = [("all", "true"), ("type", "news"), ("title", "hello"), ("org", org)]
                return Broadcast(
                    id: TestDispatcher.notification(UInt64(number)).id, org: org, jobID: nil,
                    entry: "jobs/\(number)-0", stream: "jobs",
                    fields: fields.map { (name: $0.0, value: Array($0.1.utf8)[...]) }, topic: nil, lane: .normal,
                    createdAt: TestDispatcher.now)
            }
            _ = try await dispatcher.database.broadcasts.add(broadcasts)
            try await database.pool.query("UPDATE carillon.broadcasts SET state = 'expanding', audience = 1")
            try await BroadcastExpansion(dispatcher: dispatcher, highWaterMark: 1_000).work()
            let stored = try await database.pool.query(
                "SELECT org_id FROM carillon.notifications ORDER BY version"
            ).texts()
            #expect(stored.count == orgs.count)
            // One of four turns is its own.
            let place = try #require(stored.firstIndex(of: "quiet"))
            #expect(place < 8)
        }
    }
}
