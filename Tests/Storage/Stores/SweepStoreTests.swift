// Carillon · SweepStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct SweepStoreTests {
    @Test("finds ownerless rows until they have an owner, and advances the watermark")
    func sweeping() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let batch = (0..<3).map { Samples.notification($0, user: "u\($0)") }
            _ = try await store.store(batch, areRepeats: false)
            let later = Timestamp(seconds: 4_000_000_000)
            #expect(try await Self.unowned(database, before: later) == ["n0", "n1", "n2"])
            #expect(try await Self.unowned(database, before: Timestamp(seconds: 1)).isEmpty)
            let slice = try await database.sweep.slice(before: later, size: 10)
            let first = try await database.sweep.unowned(in: slice, limit: 2)
            let rest = try await database.sweep.unowned(in: slice, after: first.last, limit: 2)
            #expect(rest.map(\.notification.title) == ["n2"])
            try await store.markDelivered([(batch[0].key, later)], via: "socket")
            try await store.mark([(batch[1].key, .pending, "queued", nil)])
            #expect(try await Self.unowned(database, before: later) == ["n2"])
            #expect(try await !database.sweep.advance(before: later))
            #expect(try await Self.unowned(database, before: later) == ["n2"])
            try await store.mark([(batch[2].key, .sent, "offline", "inbox")])
            #expect(try await database.sweep.advance(before: later))
            #expect(try await Self.unowned(database, before: later).isEmpty)
        }
    }

    /// Returns the titles of ownerless rows from the watermark on.
    private static func unowned(_ database: Database, before: Timestamp) async throws -> [String] {
        let slice = try await database.sweep.slice(before: before, size: 10)
        return try await database.sweep.unowned(in: slice, limit: 10).map(\.notification.title)
    }

    @Test("reads rows in slices, and the watermark follows up to the first ownerless row")
    func sweepSlices() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let batch = (0..<5).map { Samples.notification($0, user: "u") }
            for notification in batch { _ = try await store.store([notification], areRepeats: false) }
            for notification in batch.prefix(2) {
                try await store.mark([(notification.key, .sent, "offline", "inbox")])
            }
            let later = Timestamp(seconds: 4_000_000_000)
            var slice = try await database.sweep.slice(before: later, size: 2)
            let start = slice.start
            var found: [[String]] = []
            var areClear: [Bool] = []
            while true {
                found.append(try await database.sweep.unowned(in: slice, limit: 10).map(\.notification.title))
                areClear.append(try await database.sweep.advance(before: slice.end))
                guard slice.end < later else { break }
                slice = try await database.sweep.slice(after: slice, before: later, size: 2)
            }
            #expect(found == [[], ["n2", "n3"], ["n4"]])
            #expect(areClear == [true, false, false])
            #expect(try await database.sweep.slice(before: later, size: 2).start > start)
            #expect(try await Self.unowned(database, before: later) == ["n2", "n3", "n4"])
        }
    }

    @Test("bounds a slice of the repair by the rows stored and by those handed on", arguments: ["stored", "handed"])
    func repairSlices(column: String) async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            _ = try await store.store((0..<5).map { Samples.notification($0, user: "u") }, areRepeats: false)
            let start = PostgresValue.timestamptz(Samples.start.microseconds)
            try await database.pool.query(
                "UPDATE carillon.notifications SET stored_at = $1::timestamptz - interval '1 day'", start)
            try await database.pool.query(
                """
                UPDATE carillon.notifications
                SET \(column)_at = $1::timestamptz + right(title, 1)::int * interval '1 second'
                """, start)
            let last = Samples.start + .seconds(10)
            func end(from second: Int64, size: Int) async throws -> Timestamp {
                try await database.sweep.repairEnd(from: Samples.start + .seconds(second), until: last, size: size)
            }
            #expect(try await end(from: 0, size: 2) == Samples.start + .seconds(1))
            #expect(try await end(from: 2, size: 2) == Samples.start + .seconds(3))
            #expect(try await end(from: 4, size: 2) == last)
            #expect(try await end(from: 0, size: 6) == last)
        }
    }

    @Test("resets a watermark ahead of the clock and finds later rows")
    func markAhead() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let now = try await database.clock()
            try await database.sweep.advance(before: now + .seconds(3_600))
            _ = try await store.store([Samples.notification(1, user: "a")], areRepeats: false)
            #expect(try await Self.unowned(database, before: now).isEmpty)
            try await database.sweep.advance(before: now)
            let later = try await database.clock()
            #expect(try await Self.unowned(database, before: later) == ["n1"])
        }
    }
}
