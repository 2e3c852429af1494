// Carillon · InboxReadsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Synchronization
import Testing

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

    /// A read that waits until the test ends it, and a count of its calls.
    private struct StalledRead: Sendable {
        private let end: AsyncStream<Void>
        private let ending: AsyncStream<Void>.Continuation
        private let calls: AsyncStream<Void>
        private let calling: AsyncStream<Void>.Continuation

        init() {
            (self.end, self.ending) = AsyncStream.makeStream(of: Void.self)
            (self.calls, self.calling) = AsyncStream.makeStream(of: Void.self)
        }

        func stall() async {
            self.calling.yield()
            for await _ in self.end {}
        }

        /// Sends a caller that takes the only turn, and others until one finds no place.
        ///
        /// - Returns: the errors of all, and the number of calls of the read.
        func outcomes(of queue: ReadQueue<Int, Int>, others: Int) async -> (errors: [PostgresError.Code?], calls: Int) {
            let errors = await withTaskGroup(of: PostgresError.Code?.self) { group in
                var calls = self.calls.makeAsyncIterator()
                for number in 0...others {
                    group.addTask {
                        do throws(PostgresError) {
                            _ = try await queue.value(number)
                            return nil
                        } catch {
                            return error.code
                        }
                    }
                    if number == 0 { _ = await calls.next() }
                }
                var errors: [PostgresError.Code?] = []
                // The one without a place answers first, so the others wait.
                if let first = await group.next() { errors.append(first) }
                self.ending.finish()
                for await error in group { errors.append(error) }
                return errors
            }
            self.calling.finish()
            // The first call was counted above.
            let more = await self.calls.reduce(0) { count, _ in count + 1 }
            return (errors, 1 + more)
        }
    }

    @Test("fails all waiting callers once PostgreSQL does not answer, and further ones at once")
    func outage() async throws {
        let stalled = StalledRead()
        let queue = ReadQueue<Int, Int>(turns: 1, mostWaiting: 3, mayJoin: { _, _, _ in false }) {
            (_: [Int]) async throws(PostgresError) -> [Int] in
            await stalled.stall()
            throw PostgresError(.unavailable)
        }
        let (errors, calls) = await stalled.outcomes(of: queue, others: 4)
        #expect(errors == [.overloaded, .unavailable, .unavailable, .unavailable, .unavailable])
        #expect(calls == 1)
    }

    @Test("fails a caller whose turn comes too late")
    func late() async throws {
        let stalled = StalledRead()
        let queue = ReadQueue<Int, Int>(turns: 1, patience: .zero, mostWaiting: 1, mayJoin: { _, _, _ in false }) {
            (keys: [Int]) async throws(PostgresError) -> [Int] in
            await stalled.stall()
            return keys
        }
        let (errors, calls) = await stalled.outcomes(of: queue, others: 2)
        #expect(errors.count == 3 && errors.contains(nil))
        #expect(errors.compactMap(\.self) == [.overloaded, .overloaded])
        #expect(calls == 1)
    }

    /// Runs a caller that takes the only turn, and three that share a statement after it.
    ///
    /// - Parameters:
    ///   - shared: the error of their statement.
    ///   - alone: the error of a further statement with one key.
    /// - Returns: the errors of the three, and the number of statements.
    private static func outcomes(
        shared: PostgresError,
        alone: PostgresError
    ) async -> (errors: [PostgresError.Code?], calls: Int) {
        let stalled = StalledRead()
        let queue = ReadQueue<Int, Int>(turns: 1, mostWaiting: 3, mayJoin: { _, _, _ in true }) {
            (keys: [Int]) async throws(PostgresError) -> [Int] in
            await stalled.stall()
            guard keys != [0] else { return keys }
            throw keys.count > 1 ? shared : alone
        }
        return await stalled.outcomes(of: queue, others: 4)
    }

    @Test("reads no keys alone after a failure of the server, and stops once it does not answer")
    func serverFailure() async {
        let refused = PostgresError(.server, sqlState: "22021")
        let down = PostgresError(.server, sqlState: "57P01")
        let closing = await Self.outcomes(shared: down, alone: PostgresError(.unavailable))
        #expect(closing.errors.filter { $0 == .server }.count == 3)
        #expect(closing.calls == 2)
        let silent = await Self.outcomes(shared: refused, alone: PostgresError(.unavailable))
        #expect(silent.errors.filter { $0 == .unavailable }.count == 3)
        #expect(silent.calls == 3)
        let rejected = await Self.outcomes(shared: refused, alone: refused)
        #expect(rejected.errors.filter { $0 == .server }.count == 3)
        #expect(rejected.calls == 5)
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
