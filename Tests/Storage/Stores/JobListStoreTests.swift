// Carillon · JobListStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct JobListStoreTests {
    @Test("reads the text of a cursor, whatever its user begins with", arguments: ["ada", "a.b", "\u{301}ada", ""])
    func cursor(user: String) {
        let cursor = JobListStore.Cursor(
            at: Timestamp(seconds: 1_795_000_000), user: user, id: NotificationID(high: 1, low: 2))
        #expect(JobListStore.Cursor(cursor.text) == cursor)
    }

    @Test("ids or organisations in one scalar and in two belong to different jobs")
    func twins() async throws {
        try await Samples.withStores { database in
            let notifications = [
                Samples.notification(0, user: "ada", job: "\u{e9}"),
                Samples.notification(1, user: "ben", job: "e\u{301}"),
                Samples.notification(2, user: "cleo", job: "j") { $0.org = "\u{e9}" },
                Samples.notification(3, user: "dora", job: "j") { $0.org = "e\u{301}" },
            ]
            _ = try await database.notifications.store(notifications, areRepeats: false)
            let page = try await database.jobs.list(JobListStore.Filter())
            #expect(Set(page.jobs.map(\.title)) == ["n0", "n1", "n2", "n3"])
        }
    }

    @Test(
        "a page inspects a bounded number of a job's notifications, and the next one follows, however few match",
        arguments: ["j", "jobs/7"])
    func rare(id: String) async throws {
        try await Samples.withStores { database in
            let users = ["ada", "ben", "cleo", "dora", "emil", "finn", "gus"]
            let notifications = users.enumerated().map { number, user in
                Samples.notification(number, user: user, job: id == "j" ? id : nil) { $0.jobEntry = "jobs/7" }
            }
            _ = try await database.notifications.store(notifications, areRepeats: false)
            try await database.pool.query(
                "UPDATE carillon.notifications SET status = 'failed' WHERE user_id IN ('dora', 'finn', 'gus')")
            let stored = try await database.pool.query("SELECT min(stored_at) FROM carillon.notifications").first
            let name = CancellationStore.Name(
                org: "", id: id, entries: id == "j" ? [] : [id], addedAt: try #require(stored).timestamp(0))
            let store = JobListStore(pool: database.pool, mostLooked: 2)
            func pages(_ status: NotificationStatus, limit: Int) async throws -> [[String]] {
                var pages: [[String]] = []
                var next: String? = ""
                while let last = next, pages.count < users.count {
                    let page = try await store.notifications(of: name, status: status, after: last, limit: limit)
                    pages.append(page.items.map(\.notification.user))
                    next = page.next
                }
                return pages
            }
            var found = try await pages(.failed, limit: 2)
            #expect(found == [[], ["dora"], ["finn"], ["gus"]])
            found = try await pages(.failed, limit: 1)
            #expect(found == [[], ["dora"], ["finn"], ["gus"]])
            found = try await pages(.expired, limit: 2)
            #expect(found == [[], [], [], []])
            let first = try await store.notifications(of: name, status: nil, after: "", limit: 1)
            #expect(first.items.map(\.notification.user) == ["ada"] && first.next == "ada")
            let all = try await database.jobs.notifications(of: name, status: .failed, after: "", limit: 3)
            #expect(all.items.map(\.notification.user) == ["dora", "finn", "gus"] && all.next == nil)
        }
    }
}
