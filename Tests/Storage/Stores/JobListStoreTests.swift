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
}
