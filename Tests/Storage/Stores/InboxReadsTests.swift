// Carillon · InboxReadsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Synchronization
import Testing

@testable import Clients
@testable import Storage

/// Reads of inboxes that share a round trip.
@Suite(.timeLimit(.minutes(10)))
struct InboxReadsTests {
    private static let users = (0..<40).map { "user-\($0)" } + ["nobody", "Zoë"]

    /// Stores inboxes of several sizes, with read and deleted notifications and two types.
    private static func fill(_ database: Database) async throws {
        let inbox = InboxStore(database)
        var number = 0
        for (index, user) in Self.users.enumerated() where user != "nobody" {
            var batch: [Notification] = []
            for place in 0..<index % 9 + 1 {
                number += 1
                let sample = Samples.notification(number, user: user)
                var notification = Notification(
                    id: sample.id, user: user, type: place % 3 == 0 ? "other" : sample.type, createdAt: Samples.start)
                notification.jobEntry = sample.jobEntry
                notification.title = "\(user) \(place)"
                batch.append(notification)
            }
            _ = try await database.notifications.store(batch, areRepeats: false)
            if index % 2 == 0 { _ = try await inbox.markRead(user: user, ids: [batch[0].id], at: Samples.start) }
            if index % 5 == 0 { _ = try await inbox.delete(user: user, id: batch[0].id, at: Samples.start) }
        }
    }

    private static func text(_ page: InboxStore.Page) throws -> String {
        var writer = JSONWriter()
        writer.beginArray()
        for notification in page.notifications { try CanonicalShape.write(notification, to: &writer) }
        writer.endArray()
        return "\(page.state) \(String(decoding: writer.bytes, as: UTF8.self))"
    }

    private struct Question: Sendable {
        let user: String
        let filter: InboxStore.Filter
        let known: InboxStore.State?
    }

    @Test("reads that may look at a whole inbox take one connection for each user, and leave half to others")
    func scans() async throws {
        try await TestDatabase.with(isMigrated: true, { $0.sessionSettings = StoreSession.settings }) { test in
            let database = Database(test.pool)
            try await Self.fill(database)
            let pool = try PostgresPool(test.configuration(applicationName: "inboxes"), logger: TestLog.logger)
            defer { pool.close() }
            // The session settings are the last statement before a connection is ready.
            func connections(_ condition: String) async throws -> Int {
                try await database.pool.query(
                    """
                    SELECT FROM pg_stat_activity
                    WHERE application_name = 'inboxes' AND datname = current_database() AND \(condition)
                    """
                ).count
            }
            let isReady = "state = 'idle' AND query <> ''"
            try await pool.query("SELECT 1")
            try await eventually("the pool has a further connection") { try await connections(isReady) == 2 }
            let inbox = InboxStore(Database(pool))
            @Sendable func count(_ user: String) async throws -> [Int32] {
                try await inbox.unreadByCategory(user: user).map(\.count)
            }
            let counts = try await database.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                var counts = (0..<8).map { _ in Task { try await count(Self.users[8]) } }
                try await eventually("one waits for the table") { try await Samples.areWaiting(1, database) }
                counts += (0..<8).map { _ in Task { try await count(Self.users[7]) } }
                try await eventually("two wait for the table, and a connection is idle") {
                    guard try await Samples.areWaiting(2, database) else { return false }
                    return try await connections(isReady) == 1
                }
                #expect(try await inbox.state(of: Self.users[1]).unread == 2)
                #expect(try await Samples.areWaiting(2, database), "no other scan runs")
                return counts
            }
            for count in counts { #expect(try await count.value == [8]) }
        }
    }

    @Test("unread pages of a large inbox keep no page of another user waiting")
    func largeUnread() async throws {
        try await TestDatabase.with(isMigrated: true, { $0.sessionSettings = StoreSession.settings }) { test in
            let database = Database(test.pool)
            try await Self.fill(database)
            let large = Self.users[8]
            try await database.pool.query("UPDATE carillon.inboxes SET total = 1001 WHERE user_id = $1", .text(large))
            var configuration = test.configuration()
            configuration.sessionSettings = StoreSession.settings
            configuration.pipelineDepth = 1
            let pool = try PostgresPool(configuration, logger: TestLog.logger)
            defer { pool.close() }
            let inbox = InboxStore(Database(pool))
            @Sendable func count(_ user: String, limit: Int) async throws -> Int {
                try await inbox.page(user: user, filter: .init(limit: limit, unreadOnly: true)).notifications.count
            }
            let pages = try await database.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                var pages = (1...8).map { limit in Task { try await count(large, limit: limit) } }
                try await eventually("one waits for the table") { try await Samples.areWaiting(1, database) }
                pages += (1...2).map { limit in Task { try await count(Self.users[7], limit: limit) } }
                try await eventually("the other user's pages wait too") { try await Samples.areWaiting(3, database) }
                return pages
            }
            // On a machine that stalls, a page of the large inbox may have waited too long.
            for page in pages.prefix(8) { _ = try? await page.value }
            for (page, count) in zip(pages.suffix(2), [1, 2]) { #expect(try await page.value == count) }
        }
    }

    @Test("a page that takes a standby too long does not keep the next ones from it")
    func slowPage() async throws {
        try await TestDatabase.with(isMigrated: true, { $0.sessionSettings = StoreSession.settings }) { test in
            let database = Database(test.pool)
            try await Self.fill(database)
            let user = Self.users[8]
            let state = try await database.inboxes.state(of: user)
            let request = InboxReads.PageRequest(user: user, filter: .init(limit: 5))
            _ = try await valueInTime("the server cancels a page, then answers one") { limit -> Bool? in
                var configuration = test.configuration()
                configuration.timeout = limit
                let pool = try PostgresPool(configuration, logger: TestLog.logger)
                defer { pool.close() }
                guard (try? await pool.query("SELECT 1")) != nil else { return nil }
                let standby = StandbyReads(pool) { _ in }
                try await database.pool.transaction { transaction in
                    try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                    #expect(await standby.page(request, of: state) == nil)
                }
                return await standby.page(request, of: state) == nil ? nil : true
            }
        }
    }

    @Test("a slow standby keeps at most 1,000 pages waiting, for a second")
    func slowStandby() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            try await Self.fill(database)
            let user = Self.users[8]
            let state = try await database.inboxes.state(of: user)
            let outcomes = Mutex<[StandbyReads.Outcome]>([])
            let standby = StandbyReads(second.pool) { outcome in outcomes.withLock { $0.append(outcome) } }
            let clock = ContinuousClock()
            let pages = try await database.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                // Two are read, and one is too many.
                let pages = (0..<1_003).map { _ in
                    Task { await standby.page(.init(user: user, filter: .init(limit: 5)), of: state) != nil }
                }
                try await eventually("one fails") { outcomes.withLock { $0 } == [.failed] }
                let start = clock.now
                try await eventually("a second passes") { clock.now - start >= .seconds(1) }
                return pages
            }
            var served = 0
            for page in pages {
                if await page.value { served += 1 }
            }
            #expect(served == 2)
            #expect(outcomes.withLock { $0.count { $0 == .failed } } == 1_001)
        }
    }

    @Test("a read of changes looks at no notification if there are none since the version, or too many")
    func unchanged() async throws {
        try await Samples.withStores { database in
            try await Self.fill(database)
            let inbox = InboxStore(database)
            let user = Self.users[8]
            let state = try await inbox.state(of: user)
            @Sendable func changes(since version: Int64) async throws -> InboxStore.Page {
                try await inbox.changes(user: user, since: version, limit: 20, unless: nil)
            }
            try await database.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                for version in [state.version, state.version + 1, state.floor - 1] {
                    let page = try await changes(since: version)
                    #expect(page.state == state && page.notifications.isEmpty)
                }
            }
            let last = try await changes(since: state.version - 1)
            #expect(last.state == state && last.notifications.count == 1)
        }
    }

    @Test("reads pages together as it would read each alone")
    func pages() async throws {
        try await Samples.withStores { database in
            try await Self.fill(database)
            let alone = InboxStore(database)
            var questions: [Question] = []
            for (index, user) in Self.users.enumerated() {
                let state = try await alone.state(of: user)
                var stale = state
                stale.unread += 1
                let newest = try await alone.page(user: user, filter: .init(limit: 1)).notifications.first?.id
                questions += [
                    Question(user: user, filter: .init(limit: 5), known: nil),
                    Question(user: user, filter: .init(limit: 5), known: state),
                    Question(user: user, filter: .init(limit: 5), known: stale),
                    Question(user: user, filter: .init(limit: 5, before: newest), known: nil),
                    Question(user: user, filter: .init(limit: 5, type: "other"), known: nil),
                    Question(
                        user: user, filter: .init(limit: 5, unreadOnly: true), known: index % 2 == 0 ? state : nil),
                    Question(user: user, filter: .init(limit: 101), known: nil),
                ]
            }
            var expected: [String] = []
            for question in questions {
                let page = try await alone.page(user: question.user, filter: question.filter, unless: question.known)
                expected.append(try Self.text(page))
            }
            #expect(Set(expected).count > Self.users.count * 3)
            let together = InboxStore(database)
            let found = try await withThrowingTaskGroup { group in
                for (index, question) in questions.enumerated() {
                    group.addTask {
                        let page = try await together.page(
                            user: question.user, filter: question.filter, unless: question.known)
                        return (index, try Self.text(page))
                    }
                }
                return try await group.reduce(into: [Int: String]()) { $0[$1.0] = $1.1 }
            }
            for index in questions.indices { #expect(found[index] == expected[index]) }
        }
    }

    @Test("reads a page of one type from the primary, apart from pages of whole inboxes")
    func pageOfType() async throws {
        try await Samples.withStores { database in
            try await Self.fill(database)
            let outcomes = Mutex<[StandbyReads.Outcome]>([])
            let standby = StandbyReads(database.pool) { outcome in outcomes.withLock { $0.append(outcome) } }
            let inbox = InboxStore(Database(database.pool, standby: standby))
            for unreadOnly in [false, true] {
                let filter = InboxStore.Filter(limit: 5, unreadOnly: unreadOnly, type: "other")
                let page = try await inbox.page(user: "user-8", filter: filter)
                #expect(page.notifications.count == (unreadOnly ? 2 : 3))
            }
            #expect(outcomes.withLock { $0 }.isEmpty)
            let page = try await inbox.page(user: "user-8", filter: .init(limit: 5))
            #expect(page.notifications.count == 5)
            #expect(outcomes.withLock { $0 } == [.served])
        }
    }

    @Test("reads states together as it would read each alone, after earlier commits")
    func states() async throws {
        try await Samples.withStores { database in
            try await Self.fill(database)
            let inbox = InboxStore(database)
            let expected = try await inbox.states(Self.users)
            try await withThrowingTaskGroup { group in
                for _ in 0..<5 {
                    for (user, state) in zip(Self.users, expected) {
                        group.addTask {
                            let found = try await inbox.state(of: user)
                            #expect(found == state)
                        }
                    }
                }
                try await group.waitForAll()
            }
            try await withThrowingTaskGroup { group in
                for user in Self.users where user != "nobody" {
                    group.addTask {
                        for _ in 0..<3 {
                            let before = try await inbox.state(of: user)
                            let change = try await inbox.markRead(user: user, ids: nil, at: Samples.start)
                            let after = try await inbox.state(of: user)
                            #expect(after.version == before.version + (change.isEmpty ? 0 : 1))
                            #expect(after.unread == 0)
                        }
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    @Test("fails only the request that PostgreSQL rejects")
    func refusal() async throws {
        try await Samples.withStores { database in
            try await Self.fill(database)
            let inbox = InboxStore(database)
            let outcomes = await withTaskGroup { group in
                for index in 0..<60 {
                    group.addTask {
                        // PostgreSQL's text cannot hold U+0000.
                        let user = index % 10 == 7 ? "user-8\u{0}" : "user-8"
                        do throws(PostgresError) {
                            let page = try await inbox.page(user: user, filter: .init(limit: 3))
                            return (index, page.notifications.count)
                        } catch {
                            return (index, error.code == .server ? -1 : -2)
                        }
                    }
                }
                return await group.reduce(into: [Int: Int]()) { $0[$1.0] = $1.1 }
            }
            for index in 0..<60 { #expect(outcomes[index] == (index % 10 == 7 ? -1 : 3)) }
        }
    }
}
