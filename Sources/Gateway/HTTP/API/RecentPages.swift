// Carillon · RecentPages.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Pages of users in the order in which they were asked for last.
struct RecentPages {
    /// A page in its place between those that were asked for after and before it.
    struct Entry {
        let user: ExactText
        let selection: InboxPageCache.Selection
        let page: InboxPageCache.Page
        var usedAt: Timestamp
        var newer: Int?
        var older: Int?

        /// Bytes that are counted for it.
        var bytes: Int { RecentPages.overhead + self.page.json.count }
    }

    /// About what an entry takes beside its page.
    private static let overhead = 320

    private var places: [ExactText: Int] = [:]
    private var entries: [Entry?] = []
    private var free: [Int] = []
    private var newestPlace: Int?
    private var oldestPlace: Int?
    private(set) var bytes = 0

    /// The one that was asked for longest ago.
    var oldest: Entry? { self.oldestPlace.flatMap { self.entries[$0] } }

    subscript(user: ExactText) -> Entry? { self.places[user].flatMap { self.entries[$0] } }

    /// Notes that a user's page was asked for.
    mutating func touch(_ user: ExactText, at moment: Timestamp) {
        guard let place = self.places[user] else { return }
        self.unlink(place)
        self.putFirst(place)
        self.entries[place]?.usedAt = moment
    }

    /// Adds the entry of a user who has none.
    mutating func insert(_ entry: Entry) {
        let place: Int
        if let free = self.free.popLast() {
            place = free
            self.entries[place] = entry
        } else {
            place = self.entries.count
            self.entries.append(entry)
        }
        self.places[entry.user] = place
        self.bytes += entry.bytes
        self.putFirst(place)
    }

    mutating func remove(_ user: ExactText) {
        guard let place = self.places.removeValue(forKey: user), let entry = self.entries[place] else { return }
        self.unlink(place)
        self.bytes -= entry.bytes
        self.entries[place] = nil
        self.free.append(place)
    }

    private mutating func putFirst(_ place: Int) {
        self.entries[place]?.newer = nil
        self.entries[place]?.older = self.newestPlace
        if let newest = self.newestPlace { self.entries[newest]?.newer = place }
        self.newestPlace = place
        if self.oldestPlace == nil { self.oldestPlace = place }
    }

    private mutating func unlink(_ place: Int) {
        guard let entry = self.entries[place] else { return }
        if let newer = entry.newer { self.entries[newer]?.older = entry.older } else { self.newestPlace = entry.older }
        if let older = entry.older { self.entries[older]?.newer = entry.newer } else { self.oldestPlace = entry.newer }
    }
}
