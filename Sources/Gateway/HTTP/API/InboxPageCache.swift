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
/// The pages form two generations. When the recent one is full, or every five minutes, it becomes
/// the older one, and the previous older one is evicted. A request makes a page recent again. So a
/// page leaves within ten minutes of its last request, which also removes those of erased users.
package final class InboxPageCache: Service {
    /// The query of a page: only the newest pages of whole inboxes are cached.
    struct Selection: Sendable, Hashable {
        let limit: Int
        let unreadOnly: Bool
    }

    /// A page and the inbox state that it shows.
    struct Page: Sendable {
        let state: InboxStore.State
        let json: [UInt8]
    }

    private struct Entry {
        /// The approximate bytes of an entry without its page.
        private static let overhead = 320

        let selection: Selection
        let page: Page

        /// The bytes counted for the entry.
        var bytes: Int { Self.overhead + self.page.json.count }
    }

    private struct Generation {
        private(set) var entries: [ExactText: Entry] = [:]
        private(set) var bytes = 0

        /// Adds an entry; the user must not have one.
        mutating func insert(_ entry: Entry, of user: ExactText) {
            self.entries[user] = entry
            self.bytes += entry.bytes
        }

        mutating func remove(_ user: ExactText) {
            self.bytes -= self.entries.removeValue(forKey: user)?.bytes ?? 0
        }
    }

    private struct Contents {
        var recent = Generation()
        var older = Generation()

        /// Makes the recent generation the older one; returns the evicted pages.
        mutating func rotate() -> [ExactText: Entry] {
            let evicted = self.older.entries
            self.older = self.recent
            self.recent = Generation()
            return evicted
        }

        /// Adds a recent page in place of the user's previous one; returns the evicted pages.
        ///
        /// - Parameter bound: the most bytes of a generation.
        mutating func insert(_ entry: Entry, of user: ExactText, bound: Int) -> [ExactText: Entry] {
            self.remove(user)
            let evicted = self.recent.bytes + entry.bytes > bound ? self.rotate() : [:]
            self.recent.insert(entry, of: user)
            return evicted
        }

        mutating func remove(_ user: ExactText) {
            self.recent.remove(user)
            self.older.remove(user)
        }
    }

    private static let interval: Duration = .seconds(300)

    /// The most bytes of a generation.
    private let bound: Int
    private let contents = Mutex(Contents())

    /// - Parameter bytes: the most bytes to cache; 0 disables the cache.
    init(bytes: Int) {
        self.bound = bytes / 2
    }

    /// Evicts idle pages.
    package func run() async throws {
        await cancelWhenGracefulShutdown {
            // Only time makes a page idle.
            while (try? await Task.sleep(for: Self.interval)) != nil { self.rotate() }
        }
    }

    /// The cached bytes.
    var bytes: Int { self.contents.withLock { $0.recent.bytes + $0.older.bytes } }

    /// Returns the user's cached page if it matches the selection.
    func page(of user: String, _ selection: Selection) -> Page? {
        guard self.bound > 0 else { return nil }
        let user = ExactText(user)
        let (page, evicted) = self.contents.withLock { contents -> (Page?, [ExactText: Entry]) in
            let recent = contents.recent.entries[user]
            guard let entry = recent ?? contents.older.entries[user], entry.selection == selection else {
                return (nil, [:])
            }
            return (entry.page, recent == nil ? contents.insert(entry, of: user, bound: self.bound) : [:])
        }
        if !evicted.isEmpty { InboxPageMetrics.dropped.increment(by: evicted.count) }
        return page
    }

    /// Evicts the user's page.
    func evict(_ user: String) {
        self.contents.withLock { $0.remove(ExactText(user)) }
    }

    /// Evicts the pages that were not requested since the previous call.
    func rotate() {
        _ = self.contents.withLock { $0.rotate() }
    }

    /// Caches a page in place of the user's previous one.
    func keep(_ page: Page, of user: String, _ selection: Selection) {
        guard self.bound > 0 else { return }
        // Copy to drop the writer's spare capacity.
        var json: [UInt8] = []
        json.reserveCapacity(page.json.count)
        json += page.json
        let entry = Entry(selection: selection, page: Page(state: page.state, json: json))
        guard entry.bytes <= self.bound else { return }
        // Pages are freed after the lock.
        let evicted = self.contents.withLock { $0.insert(entry, of: ExactText(user), bound: self.bound) }
        if !evicted.isEmpty { InboxPageMetrics.dropped.increment(by: evicted.count) }
    }
}

/// Counts the inbox pages requested from a PostgreSQL standby, by outcome.
package enum StandbyMetrics {
    private static let counters = Dictionary(
        uniqueKeysWithValues: StandbyReads.Outcome.allCases.map { outcome in
            (outcome, Counter(label: "carillon.standby.pages", dimensions: [("outcome", outcome.rawValue)]))
        })

    @Sendable package static func record(_ outcome: StandbyReads.Outcome) { self.counters[outcome]?.increment() }
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

    private static func answered(_ from: String) -> Counter {
        Counter(label: "carillon.inbox.pages", dimensions: [("from", from)])
    }
}
