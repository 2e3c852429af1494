// Carillon · EpochTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Synchronization
import Testing

/// Inbox versions after a restore of the database.
@Suite(.timeLimit(.minutes(10)))
struct EpochTests {
    private static func pool(_ url: String, _ watch: EpochWatch = EpochWatch()) throws -> PostgresPool {
        var configuration = TestDatabase.patientConfiguration(url: url)
        configuration.sessionSettings = StoreSession.settings
        watch.watch(&configuration)
        return try PostgresPool(configuration, logger: TestLog.logger)
    }

    private static func store(_ numbers: [Int], _ pool: PostgresPool, areRepeats: Bool = false) async throws {
        let batch = numbers.map { Samples.notification($0, user: "ada") }
        _ = try await Database(pool).notifications.store(batch, areRepeats: areRepeats)
    }

    @Test("makes every client start over after a dump is loaded")
    func dump() async throws {
        let server = try await PostgresServer.start()
        try await TestDatabase.with { database in
            let first = try Self.pool(database.url)
            defer { first.close() }
            try await Self.store([1], first)
            try await server.dump(database.url, as: "earlier")
            try await Self.store([2], first)
            let seen = try await InboxStore(Database(first)).state(of: "ada")
            #expect(seen.version == 2 && seen.floor == 0)

            try await server.load(dump: "earlier")
            let second = try Self.pool(server.url)
            let restored = InboxStore(Database(second))
            let base = try await restored.state(of: "ada").version
            #expect(base >= 1 << 32 && base < 1 << 53)
            for since in [1, 2, seen.version + 100] {
                let changes = try await restored.changes(user: "ada", since: since, limit: 10, unless: nil)
                #expect(since < changes.state.floor && changes.notifications.isEmpty)
            }
            try await Self.store([3], second)
            let page = try await restored.page(user: "ada", filter: .init(limit: 10), unless: seen)
            #expect(page.state.version == base + 1)
            #expect(try page.titles() == ["n3", "n1"])
            // Clients of this epoch still get changes.
            #expect(
                try await restored.changes(user: "ada", since: base, limit: 10, unless: nil).titles() == ["n3"])
            second.close()

            // The same backup again must not repeat versions of the epoch in between.
            try await server.load(dump: "earlier")
            let third = try Self.pool(server.url)
            #expect(try await InboxStore(Database(third)).state(of: "ada").version > base + 1)
            third.close()
        }
    }

    @Test("raises inbox versions from the base of the epoch, on every path")
    func raises() async throws {
        try await TestDatabase.with { database in
            let pool = try Self.pool(database.url)
            defer { pool.close() }
            let inbox = InboxStore(Database(pool))
            try await Self.store([1, 2, 3, 4], pool)
            func begin() async throws -> Int64 {
                let row = try #require(try await pool.query("SELECT carillon.begin_epoch()").first)
                return try row.int8(0)
            }
            var base = try await begin()
            #expect(try await inbox.markRead(user: "ada", ids: nil, at: Samples.start).version == base + 1)
            #expect(try await inbox.markRead(user: "ada", ids: nil, at: Samples.start).version == base + 1)
            base = try await begin()
            #expect(try await inbox.markRead(user: "ada", ids: nil, at: Samples.start).version == base)
            let one = Samples.notification(1, user: "ada").id
            #expect(try await inbox.delete(user: "ada", id: one, at: Samples.start).version == base + 1)
            base = try await begin()
            try await Self.store([5], pool, areRepeats: true)
            #expect(try await inbox.state(of: "ada").version == base + 1)
            base = try await begin()
            let step = try await Database(pool).retention.expireInboxes(
                storedBefore: Timestamp(seconds: 4_000_000_000), now: Samples.start, limit: 10)
            #expect(step.removals.map(\.version) == [base + 1])
            let keyed = Samples.notification(6, user: "ada") { $0.collapseKey = "k" }
            let newer = Samples.notification(7, user: "ada") { $0.collapseKey = "k" }
            _ = try await Database(pool).notifications.store([keyed], areRepeats: false)
            base = try await begin()
            let batch = try await Database(pool).notifications.store([newer], areRepeats: false)
            #expect(try await inbox.find(user: "ada", id: newer.id)?.version == base + 1)
            #expect(batch.replacements.map(\.version) == [base + 2])
            base = try await begin()
            // A socket that was open before continues with the first notification.
            let missing = try await inbox.state(of: "eve")
            #expect(missing.version == base && missing.floor == base && missing.total == 0)
            let pages = [
                try await inbox.page(user: "eve", filter: .init(limit: 10)),
                try await inbox.changes(user: "eve", since: base, limit: 10, unless: nil),
            ]
            #expect(pages.allSatisfy { $0.state == missing && $0.notifications.isEmpty })
            let fresh = Samples.notification(8, user: "eve")
            let stored = try await Database(pool).notifications.store([fresh], areRepeats: false).outcomes
            #expect(stored == [.stored(version: base + 1, unread: 1)])
            let late = Samples.notification(9, user: "bob")
            let checked = try await Database(pool).notifications.store([late], areRepeats: true).outcomes
            #expect(checked == [.stored(version: base + 1, unread: 1)])
            // Gateways read revocations after the version that they know.
            let revocation = try await Database(pool).revocations.revoke(user: "ada", before: Samples.start)
            #expect(revocation.version == base + 1)
        }
    }

    @Test("begins an epoch once for all connections and notifies gateways of the old one")
    func once() async throws {
        try await TestDatabase.with { database in
            let changes = Mutex(0)
            let watch = EpochWatch()
            watch.onChange { changes.withLock { $0 += 1 } }
            let before = try Self.pool(database.url, watch)
            #expect(try await InboxStore(Database(before)).state(of: "ada").version == 0)
            before.close()
            #expect(changes.withLock { $0 } == 0)
            // The state that a restore leaves.
            try await database.pool.query("UPDATE carillon.epoch SET server = 'another'")
            let pools = try (0..<4).map { _ in try Self.pool(database.url, watch) }
            for pool in pools { try await pool.query("SELECT 1") }
            let rows = try await database.pool.query(
                "SELECT base, server = carillon.server_identity() FROM carillon.epoch")
            let row = try #require(rows.first)
            let base = try row.int8(0)
            #expect(try row.bool(1))
            #expect(changes.withLock { $0 } == 1)
            let again = try Self.pool(database.url)
            try await again.query("SELECT 1")
            let last = try await database.pool.query("SELECT base FROM carillon.epoch")
            #expect(try last.first?.int8(0) == base)
            for pool in pools + [again] { pool.close() }
        }
    }

    @Test("connects to a database without migrations")
    func unmigrated() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let pool = try Self.pool(database.url)
            try await Migrations.apply(to: pool, logger: TestLog.logger)
            #expect(try await InboxStore(Database(pool)).state(of: "ada").version == 0)
            pool.close()
        }
    }
}
