// Carillon · InboxPageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Testing

@Suite(.timeLimit(.minutes(10)))
struct InboxPageTests {
    @Test("pages by number with exact counts and filters, empty beyond the end")
    func pages() async throws {
        try await Samples.withStores { pool in
            let inbox = InboxStore(Database(pool))
            let batch = (0..<25).map { number in
                Samples.notification(number, user: "a") {
                    if number % 5 == 0 { $0.title = "other \(number)" }
                }
            }
            _ = try await Database(pool).notifications.store(batch, areRepeats: false)
            let foreign = [Samples.notification(0, user: "b")]
            _ = try await Database(pool).notifications.store(foreign, areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [batch[24].id, batch[0].id], at: Samples.start)
            _ = try await inbox.delete(user: "a", id: batch[23].id, at: Samples.start)

            let first = try await inbox.page(user: "a", filter: .init(limit: 3), offset: 0)
            #expect(first.items.map(\.notification.id) == [batch[24].id, batch[22].id, batch[21].id])
            #expect(first.matching == 24)
            #expect(first.unread == 22)
            let last = try await inbox.page(user: "a", filter: .init(limit: 10), offset: 20)
            #expect(last.items.map(\.notification.id) == (0...3).reversed().map { batch[$0].id })
            let unread = try await inbox.page(user: "a", filter: .init(limit: 2, unreadOnly: true), offset: 0)
            #expect(unread.items.map(\.notification.id) == [batch[22].id, batch[21].id])
            #expect(unread.matching == 22)
            let beyond = try await inbox.page(user: "a", filter: .init(limit: 2), offset: 500)
            #expect(beyond.items.isEmpty)
            #expect(beyond.matching == 24)
            let nobody = try await inbox.page(user: "nobody", filter: .init(limit: 2), offset: 0)
            #expect(nobody.items.isEmpty)
            #expect(nobody.matching == 0)
        }
    }

    @Test("counts one type, unread or all")
    func types() async throws {
        try await Samples.withStores { pool in
            let inbox = InboxStore(Database(pool))
            let start = Samples.start
            var batch = (0..<6).map { Samples.notification($0, user: "a") }
            for number in 6..<9 {
                let like = Samples.notification(number, user: "a")
                var other = Notification(id: like.id, user: "a", type: "other", createdAt: start)
                other.jobEntry = like.jobEntry
                other.channels = [.inApp]
                batch.append(other)
            }
            _ = try await Database(pool).notifications.store(batch, areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [batch[8].id], at: start)
            let other = try await inbox.page(user: "a", filter: .init(limit: 2, type: "other"), offset: 0)
            #expect(other.items.map(\.notification.type) == ["other", "other"])
            #expect(other.matching == 3)
            #expect(other.unread == 8)
            let unread = try await inbox.page(
                user: "a",
                filter: .init(limit: 5, unreadOnly: true, type: "other"),
                offset: 1
            )
            #expect(unread.items.map(\.notification.id) == [batch[6].id])
            #expect(unread.matching == 2)
            let none = try await inbox.page(user: "a", filter: .init(limit: 2, type: "unknown"), offset: 0)
            #expect(none.items.isEmpty)
            #expect(none.matching == 0)
        }
    }

    @Test("names the channel of each notification on a page and hides those of other users")
    func sentVia() async throws {
        try await Samples.withStores { pool in
            let inbox = InboxStore(Database(pool))
            let batch = [Samples.notification(0, user: "a"), Samples.notification(1, user: "b")]
            let store = Database(pool).notifications
            _ = try await store.store(batch, areRepeats: false)
            try await store.markDelivered([("a", batch[0].id, Samples.start)], via: "socket")
            let page = try await inbox.page(user: "a", filter: .init(limit: 2), offset: 0)
            #expect(page.items.map(\.sentVia) == ["socket"])
            #expect(try await inbox.known(user: "a", ids: batch.map(\.id)) == [batch[0].id])
            #expect(try await inbox.known(user: "a", ids: []).isEmpty)
        }
    }
}
