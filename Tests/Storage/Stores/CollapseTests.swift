// Carillon · CollapseTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Testing

@Suite("Collapsing of notifications", .timeLimit(.minutes(10)))
struct CollapseTests {
    private static func notification(_ number: Int, user: String = "a", key: String? = "k") -> Notification {
        Samples.notification(number, user: user) { $0.collapseKey = key }
    }

    @Test("removes the older notification with a version of its own and keeps the unread count")
    func replaces() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).notifications
            let old = Self.notification(1)
            let new = Self.notification(2)
            let other = Self.notification(3, key: "other")
            _ = try await store.store([old, other], areRepeats: false)
            let batch = try await store.storeBatch([new], areRepeats: false)
            #expect(batch.outcomes == [.stored(version: 3, unread: 3)])
            #expect(batch.replacements.map(\.label) == [old.label])
            #expect(batch.replacements.map(\.newest) == [new.id])
            #expect(batch.replacements.map(\.version) == [4])
            #expect(batch.replacements.map(\.unread) == [2])
            let state = try await InboxStore(Database(pool)).states(["a"]).first
            #expect(state?.version == 4)
            #expect(state?.unread == 2)
            #expect(state?.total == 2)
            // A repeat, as after a crash, changes nothing.
            let again = try await store.storeBatch([new], areRepeats: true)
            #expect(again.outcomes == [.known(version: 3, unread: 2, status: .pending, isOwned: false)])
            #expect(again.replacements.isEmpty)
        }
    }

    @Test("keeps the newest of a batch and does not count a read one as unread")
    func batch() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).notifications
            let inbox = InboxStore(Database(pool))
            let first = Self.notification(1)
            _ = try await store.store([first], areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [first.id], at: Samples.start)
            let batch = try await store.storeBatch(
                [Self.notification(2), Self.notification(3), Self.notification(4, user: "b")], areRepeats: false)
            #expect(batch.outcomes.first == .replaced(by: Self.notification(3).id))
            #expect(Set(batch.replacements.map(\.id)) == [first.id, Self.notification(2).id])
            let state = try await inbox.states(["a"]).first
            #expect(state?.unread == 1)
            #expect(state?.total == 1)
        }
    }

    @Test("lets a notification replace others unless it had expired on arrival")
    func expired() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).notifications
            let old = Self.notification(1)
            _ = try await store.store([old], areRepeats: false)
            var late = Self.notification(3)
            late.status = .expired
            late.statusReason = "expired"
            late.channels = []
            let batch = try await store.storeBatch([late], areRepeats: false)
            #expect(batch.outcomes == [.stored(version: 0, unread: 1)])
            #expect(batch.replacements.isEmpty)
            #expect(try await InboxStore(Database(pool)).states(["a"]).first?.unread == 1)
            // A notification newer than the old one and older than the expired one stays.
            let new = Self.notification(2)
            #expect(try await store.storeBatch([new], areRepeats: false).replacements.map(\.id) == [old.id])
            let states = try await store.load([("a", new.id), ("a", late.id)])
            #expect(states.first { $0.id == new.id }?.deletedAt == nil)
            #expect(states.first { $0.id == late.id }?.status == .expired)
            // Expiry ends its delivery, not its place in the inbox.
            try await store.mark([(user: "a", id: new.id, status: .expired, reason: "expired", via: nil)])
            let newest = Self.notification(4)
            #expect(try await store.storeBatch([newest], areRepeats: false).replacements.map(\.id) == [new.id])
        }
    }

    @Test("stores an older job that arrives late as replaced")
    func late() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).notifications
            let new = Self.notification(2)
            _ = try await store.store([new], areRepeats: false)
            let old = Self.notification(1)
            #expect(try await store.store([old], areRepeats: false) == [.replaced(by: new.id)])
            let loaded = try await store.load([("a", old.id), ("a", new.id)])
            #expect(loaded.first { $0.id == old.id }?.statusReason == "replaced")
            #expect(loaded.first { $0.id == new.id }?.status == .pending)
            #expect(try await InboxStore(Database(pool)).states(["a"]).first?.unread == 1)
        }
    }
}
