// Carillon · JobListStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct JobListStoreTests {
    @Test("reads the text of a place, whatever its user begins with", arguments: ["ada", "a.b", "\u{301}ada", ""])
    func place(user: String) {
        let place = JobListStore.Place(
            at: Timestamp(seconds: 1_795_000_000), user: user, id: NotificationID(high: 1, low: 2))
        #expect(JobListStore.Place(place.text) == place)
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
}
