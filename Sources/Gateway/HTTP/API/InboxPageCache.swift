// Carillon · InboxPageCache.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import ServiceLifecycle
import Storage
import Synchronization

/// Caches the last inbox page of each user as JSON, with the inbox state that it shows.
///
/// A cached page is valid while the inbox has the same state: every change that a page shows
/// changes the state. The route reads the state from PostgreSQL first, which costs a fraction of
/// the rows, so no node needs to hear of a change.
///
/// When the cache is full, the least recently used page is evicted. Pages idle for ten minutes are
/// evicted too, which also removes those of erased users.
package final class InboxPageCache: Service {
    /// The query of a page: only newest pages are cached.
    struct Selection: Sendable, Hashable {
        let limit: Int
        let unreadOnly: Bool
    }

    /// A page and the inbox state that it shows.
    struct Page: Sendable {
        let state: InboxStore.State
        let json: [UInt8]
    }

    /// How long an unused page stays.
    private static let idleLimit: Duration = .seconds(600)
    private static let sweepInterval: Duration = .seconds(60)

    private let bound: Int
    private let now: @Sendable () -> Timestamp
    private let contents = Mutex(RecentPages())

    /// - Parameter bytes: the most bytes to cache; 0 disables the cache.
    init(bytes: Int, now: @escaping @Sendable () -> Timestamp) {
        self.bound = bytes
        self.now = now
    }

    /// Evicts idle pages every minute.
    package func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                // Pages become idle without an event, so sweep them at an interval.
                try? await Task.sleep(for: Self.sweepInterval)
                self.dropIdle()
            }
        }
    }

    /// The cached bytes.
    var bytes: Int { self.contents.withLock { $0.bytes } }

    /// Returns the user's cached page if it matches the selection.
    func page(of user: String, _ selection: Selection) -> Page? {
        guard self.bound > 0 else { return nil }
        return self.contents.withLock { contents -> Page? in
            let user = ExactText(user)
            guard let entry = contents[user], entry.selection == selection else { return nil }
            contents.touch(user, at: self.now())
            return entry.page
        }
    }

    /// Evicts the user's page.
    func forget(_ user: String) {
        self.contents.withLock { contents in
            contents.remove(ExactText(user))
            InboxPageMetrics.bytes.record(contents.bytes)
        }
    }

    /// Evicts pages that were not used in the last ten minutes.
    func dropIdle() {
        let end = self.now() - Self.idleLimit
        self.contents.withLock { contents in
            while let oldest = contents.oldest, oldest.usedAt < end { contents.remove(oldest.user) }
            InboxPageMetrics.bytes.record(contents.bytes)
        }
    }

    /// Caches a page in place of the user's previous one.
    func keep(_ page: Page, of user: String, _ selection: Selection) {
        guard self.bound > 0 else { return }
        // Copy to drop the writer's spare capacity.
        var json: [UInt8] = []
        json.reserveCapacity(page.json.count)
        json += page.json
        let page = Page(state: page.state, json: json)
        let entry = RecentPages.Entry(user: ExactText(user), selection: selection, page: page, usedAt: self.now())
        guard entry.bytes <= self.bound else { return }
        let dropped = self.contents.withLock { contents in
            contents.remove(entry.user)
            contents.insert(entry)
            var dropped = 0
            while contents.bytes > self.bound, let oldest = contents.oldest {
                contents.remove(oldest.user)
                dropped += 1
            }
            InboxPageMetrics.bytes.record(contents.bytes)
            return dropped
        }
        if dropped > 0 { InboxPageMetrics.dropped.increment(by: dropped) }
    }
}

/// Pages in order of last use.
struct RecentPages {
    /// A page, linked to the pages used just after and before it.
    struct Entry {
        let user: ExactText
        let selection: InboxPageCache.Selection
        let page: InboxPageCache.Page
        var usedAt: Timestamp
        var newer: Int?
        var older: Int?

        /// The bytes counted for the entry.
        var bytes: Int { RecentPages.overhead + self.page.json.count }
    }

    /// The approximate bytes of an entry without its page.
    private static let overhead = 320

    private var places: [ExactText: Int] = [:]
    private var entries: [Entry?] = []
    private var free: [Int] = []
    private var newestPlace: Int?
    private var oldestPlace: Int?
    private(set) var bytes = 0

    /// The least recently used entry.
    var oldest: Entry? { self.oldestPlace.flatMap { self.entries[$0] } }

    subscript(user: ExactText) -> Entry? { self.places[user].flatMap { self.entries[$0] } }

    /// Moves the user's page to the front.
    mutating func touch(_ user: ExactText, at moment: Timestamp) {
        guard let place = self.places[user] else { return }
        self.unlink(place)
        self.putFirst(place)
        self.entries[place]?.usedAt = moment
    }

    /// Adds an entry; the user must not have one.
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

/// Counts pages that a standby of PostgreSQL was asked for.
package enum StandbyMetrics {
    private static let counters = Dictionary(
        uniqueKeysWithValues: StandbyReads.Outcome.allCases.map { outcome in
            (outcome, Counter(label: "carillon.standby.pages", dimensions: [("outcome", outcome.rawValue)]))
        })

    @Sendable package static func note(_ outcome: StandbyReads.Outcome) { self.counters[outcome]?.increment() }
}

/// Counters of the cache, created once.
enum InboxPageMetrics {
    /// Answered from the cache.
    static let kept = Self.answered("kept")
    /// Read because the inbox had changed.
    static let changed = Self.answered("changed")
    /// Read because no page was cached.
    static let read = Self.answered("read")
    static let dropped = Counter(label: "carillon.inbox.pages.dropped")
    static let bytes = Gauge(label: "carillon.inbox.pages.bytes")

    private static func answered(_ from: String) -> Counter {
        Counter(label: "carillon.inbox.pages", dimensions: [("from", from)])
    }
}
