// Carillon · DigestClaimTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

/// Windows between a dispatcher's claim and their stored summary, and cancelled items.
@Suite("Claims of digests", .timeLimit(.minutes(10)))
struct DigestClaimTests {
    private static let now = Samples.start
    private static let until = Samples.start + .seconds(9_999)
    private static let rule = DigestRule(window: .seconds(60), maximum: .seconds(100))

    private static func item(_ number: Int, job: String?) -> DigestStore.Item {
        DigestStore.Item(notification: Samples.notification(number, user: "a", job: job), key: "k", rule: Self.rule)
    }

    /// Stores the summary of a window that was claimed until a moment.
    private static func summarise(
        _ window: DigestStore.Due,
        until: Timestamp,
        in database: Database
    ) async throws -> NotificationStore.Batch? {
        var summary = Notification(id: window.summary, user: window.user, type: window.type, createdAt: Self.now)
        summary.channels = [.inApp]
        return try await database.notifications.storeDigests([summary], windows: [window.id], claimedUntil: until)
    }

    @Test("decides about the items again when a claim ends before the summary is stored")
    func claimedAgain() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let seen = Samples.notification(100, user: "a") { $0.entityID = "task" }
            _ = try await database.notifications.store([seen], areRepeats: false)
            let items = (1...4).map { number in
                let notification = Samples.notification(number, user: "a", job: "j\(number)") {
                    if number == 2 { $0.expiresAt = Self.now + .seconds(90) }
                    if number == 3 { $0.entityID = "task" }
                }
                return DigestStore.Item(notification: notification, key: "k", rule: Self.rule)
            }
            _ = try await store.gather(items, now: Self.now)
            func claim(after seconds: Int) async throws -> (due: DigestStore.Due, fates: [DigestStore.Fate?]) {
                let now = Self.now + .seconds(seconds)
                let due = try #require(try await store.claim(now: now, until: now + .seconds(30), limit: 10).first)
                return (due, try await store.held(in: [due.id], after: nil, limit: 10).map(\.fate))
            }
            let first = try await claim(after: 60)
            #expect(first.due.count == 4 && first.fates == [nil, nil, nil, nil])
            let name = CancellationStore.Name(org: "", id: "j1")
            try await database.cancellations.record(name, at: Self.now + .seconds(70))
            #expect(try await database.cancellations.tally(name).counts == [.deferred: 1], "it may still go out")
            try await database.pool.query(
                "UPDATE carillon.notifications SET read_at = $1", .timestamp(Self.now + .seconds(80)))

            let second = try await claim(after: 90)
            #expect(second.fates == [.cancelled, .expired, .read, .alone])
            #expect(second.due.first.map(\.title) == ["n4"] && second.due.alone?.job == "j4")
            #expect(second.due.summary == first.due.summary)
            #expect(try await database.cancellations.tally(name).counts == [.cancelled: 1])

            try await database.pool.query("UPDATE carillon.notifications SET read_at = NULL")
            let third = try await claim(after: 120)
            #expect(third.fates == [.cancelled, .expired, nil, nil], "marked as unread")
            #expect(third.due.first.map(\.title) == ["n3", "n4"] && third.due.alone == nil)
        }
    }

    @Test("stores no summary after another dispatcher has claimed the window")
    func lostClaim() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            _ = try await store.gather((1...2).map { Self.item($0, job: nil) }, now: Self.now)
            let ends = (1...3).map { Self.now + .seconds(60 + 30 * $0) }
            let stalled = try #require(
                try await store.claim(now: Self.now + .seconds(60), until: ends[0], limit: 10).first)
            let current = try #require(try await store.claim(now: ends[0], until: ends[1], limit: 10).first)
            func lateStore() async throws -> NotificationStore.Batch? {
                try await Self.summarise(stalled, until: ends[0], in: database)
            }
            #expect(try await lateStore() == nil)
            #expect(try await database.pool.query("SELECT FROM carillon.notifications").isEmpty)
            let stored = try await Self.summarise(current, until: ends[1], in: database)
            #expect(stored?.outcomes == [.stored(version: 1, unread: 1)])
            #expect(try await lateStore() == nil)

            // The next dispatcher finds the summary.
            let again = try #require(try await store.claim(now: ends[1], until: ends[2], limit: 10).first)
            let known = NotificationStore.Outcome.known(version: 1, unread: 1, status: .pending, isOwned: false)
            #expect(try await Self.summarise(again, until: ends[2], in: database)?.outcomes == [known])
            try await store.remove([again.id])
            #expect(try await lateStore() == nil, "the first would report the items again")
        }
    }

    @Test(
        "stores no summary of a window that is gone, because its items were dropped or its user erased",
        arguments: [false, true])
    func gone(isErased: Bool) async throws {
        try await Samples.withStores { database in
            let store = database.digests
            _ = try await store.gather((1...2).map { Self.item($0, job: "j\($0)") }, now: Self.now)
            let ends = (1...2).map { Self.now + .seconds(60 + 30 * $0) }
            let stalled = try #require(
                try await store.claim(now: Self.now + .seconds(60), until: ends[0], limit: 10).first)
            #expect(stalled.count == 2)
            if isErased {
                _ = try await database.users.erase(user: "a")
            } else {
                for job in ["j1", "j2"] {
                    try await database.cancellations.record(.init(org: "", id: job), at: Self.now)
                }
                let empty = try #require(try await store.claim(now: ends[0], until: ends[1], limit: 10).first)
                #expect(empty.count == 0)
                let stored = try await database.notifications.storeDigests(
                    [], windows: [empty.id], claimedUntil: ends[1])
                #expect(stored != nil)
                try await store.remove([empty.id])
            }
            #expect(try await Self.summarise(stalled, until: ends[0], in: database) == nil)
            #expect(try await database.pool.query("SELECT FROM carillon.notifications").isEmpty)
            // Gathering makes an inbox. After an erasure, a late store must not make another.
            #expect(try await database.pool.query("SELECT FROM carillon.inboxes").isEmpty == isErased)
        }
    }

    @Test("the end of a window without items is final once it is stored, but not before")
    func emptyWindow() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let seen = Samples.notification(100, user: "a") { $0.entityID = "task" }
            _ = try await database.notifications.store([seen], areRepeats: false)
            let items = (1...2).map { number in
                let notification = Samples.notification(number, user: "a") { $0.entityID = "task" }
                return DigestStore.Item(notification: notification, key: "k", rule: Self.rule)
            }
            _ = try await store.gather(items, now: Self.now)
            let ends = (1...5).map { Self.now + .seconds(30 + 30 * $0) }
            func claim(_ round: Int) async throws -> DigestStore.Due {
                try #require(try await store.claim(now: ends[round], until: ends[round + 1], limit: 10).first)
            }
            func end(_ window: DigestStore.Due, _ round: Int) async throws -> Bool {
                try await database.notifications.storeDigests(
                    [], windows: [window.id], claimedUntil: ends[round + 1]) != nil
            }
            func setRead(_ moment: Timestamp?) async throws {
                try await database.pool.query("UPDATE carillon.notifications SET read_at = $1", .timestamp(moment))
            }
            try await setRead(Self.now + .seconds(10))
            let first = try await claim(0)
            #expect(first.count == 0)
            try await setRead(nil)
            #expect(try await claim(1).count == 2, "marked as unread")
            #expect(try await end(first, 0) == false)

            try await setRead(Self.now + .seconds(10))
            #expect(try await claim(2).count == 0)
            #expect(try await end(first, 2))
            try await setRead(nil)
            #expect(try await claim(3).count == 0)
            let fates = try await store.held(in: [first.id], after: nil, limit: 10).map(\.fate)
            #expect(fates == [.read, .read])
        }
    }

    @Test("a job counts its lone item as deferred until its notification is stored")
    func lone() async throws {
        try await Samples.withStores { database in
            let (store, cancellations) = (database.digests, database.cancellations)
            _ = try await store.gather([Self.item(1, job: "j")], now: Self.now)
            let window = try #require(
                try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10).first)
            let alone = try #require(window.alone)
            let name = CancellationStore.Name(org: "", id: "j")
            let entry = CancellationStore.Name(org: "", id: "1", entries: ["jobs/1"], addedAt: Samples.start)
            for name in [name, entry] {
                let tally = try await cancellations.tally(name)
                #expect(tally.counts == [.deferred: 1] && tally.open == [.deferred: 1])
            }
            #expect(try await cancellations.isHeld(entry))

            var notification = Notification(id: window.summary, user: "a", type: window.type, createdAt: Self.now)
            notification.channels = [.inApp]
            notification.jobID = alone.job
            notification.jobEntry = alone.entry
            let stored = try await database.notifications.storeDigests(
                [notification], windows: [window.id], claimedUntil: Self.until)
            #expect(stored?.outcomes == [.stored(version: 1, unread: 1)])
            #expect(try await cancellations.tally(name).counts == [.pending: 1])
            #expect(try await cancellations.isHeld(entry) == false)
        }
    }

    @Test("gives the same items again once the summary is stored, whatever happened to them meanwhile")
    func claimedAfterStoring() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let items = (1...4).map { number in
                let notification = Samples.notification(number, user: "a", job: "j\(number)") {
                    if number == 2 { $0.expiresAt = Self.now + .seconds(90) }
                    if number == 3 { $0.expiresAt = Self.now + .seconds(30) }
                }
                return DigestStore.Item(notification: notification, key: "k", rule: Self.rule)
            }
            _ = try await store.gather(items, now: Self.now)
            for round in 1...3 {
                let now = Self.now + .seconds(60 * round)
                let due = try await store.claim(now: now, until: now + .seconds(60), limit: 10)
                #expect(due.map { $0.first.map(\.title) } == [["n1", "n2", "n4"]])
                let window = try #require(due.first)
                #expect(try await Self.summarise(window, until: now + .seconds(60), in: database) != nil)
                #expect(due.map(\.count) == [3])
                let fates = try await store.held(in: due.map(\.id), after: nil, limit: 10).map(\.fate)
                #expect(fates == [nil, nil, .expired, nil])
                try await database.cancellations.record(.init(org: "", id: "j\(round)"), at: now)
            }
        }
    }

    @Test("drops cancelled items and counts those that it held as cancelled")
    func cancelled() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let cancellations = database.cancellations
            let early = CancellationStore.Name(org: "", id: "early")
            try await cancellations.record(early, at: Self.now)
            let outcomes = try await store.gather(
                zip(1..., ["early", "late", nil, "kept", "sent"]).map { Self.item($0, job: $1) },
                now: Self.now)
            #expect(outcomes == [.cancelled, .held, .held, .held, .held])
            #expect(try await cancellations.tally(early).total == 0)

            let names = [
                CancellationStore.Name(org: "", id: "late"),
                CancellationStore.Name(org: "", id: "3", entries: ["jobs/3"], addedAt: Samples.start),
            ]
            #expect(try await cancellations.isHeld(names[1]))
            for name in names {
                #expect(try await cancellations.tally(name).counts == [.deferred: 1])
                try await cancellations.record(name, at: Self.now)
                #expect(try await cancellations.tally(name).counts == [.cancelled: 1])
            }
            #expect(try await cancellations.isHeld(names[1]) == false)
            // The same job id in another organisation.
            try await cancellations.record(.init(org: "acme", id: "kept"), at: Self.now)
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [2])
            #expect(due.first?.first.map(\.title) == ["n4", "n5"])
            let fates = try await store.held(in: due.map(\.id), after: nil, limit: 10).map(\.fate)
            #expect(fates == [.cancelled, .cancelled, nil, nil])
            // Too late: the summary is stored.
            let window = try #require(due.first)
            #expect(try await Self.summarise(window, until: Self.until, in: database) != nil)
            let sent = CancellationStore.Name(org: "", id: "sent")
            try await cancellations.record(sent, at: Self.now)
            #expect(try await cancellations.tally(sent).counts == [.sent: 1])
            try await store.remove(due.map(\.id))
            #expect(try await cancellations.tally(sent).counts == [.sent: 1])
            for name in names { #expect(try await cancellations.tally(name).counts == [.cancelled: 1]) }
        }
    }

    @Test("cancels items of a window that is over but not claimed yet")
    func cancelledLate() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let first = Self.item(1, job: "first")
            _ = try await store.gather([first], now: Self.now)
            let next = Self.item(2, job: "next")
            _ = try await store.gather([next], now: Self.now + .seconds(61))
            let name = CancellationStore.Name(org: "", id: "first")
            #expect(try await database.cancellations.tally(name).counts == [.deferred: 1])
            try await database.cancellations.record(name, at: Self.now)
            #expect(try await database.cancellations.tally(name).counts == [.cancelled: 1])
            let due = try await store.claim(now: Self.now + .seconds(62), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [0])
        }
    }
}
