// Carillon · InboxPageCache.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import ServiceLifecycle
import Storage
import Synchronization

/// The page that each user was answered last, as it was written, with the state of the inbox that it shows.
///
/// While the inbox stands as it did, the page is what would be written again: all that a page holds changes with the
/// inbox's version, but for `held_back`. That is noted without a new version once a notification is fanned out, by the
/// sweeper two minutes later if nobody did, and so no page is kept that shows a younger row. Who takes one asks
/// PostgreSQL for the state first, which costs a fraction of the rows; nothing here is ever answered on its own word, and
/// no other node needs to tell this one of a change.
///
/// At the bound, the page that was asked for longest ago goes; what nobody has asked for in ten minutes goes as well, so that
/// the memory comes back, and nothing of an erased user stays.
package final class InboxPageCache: Service {
    /// What the newest page of an inbox shows.
    package struct Selection: Sendable, Hashable {
        let limit: Int
        let unreadOnly: Bool

        package init(limit: Int, unreadOnly: Bool) {
            self.limit = limit
            self.unreadOnly = unreadOnly
        }
    }

    /// A page, and the state that it shows.
    package struct Page: Sendable {
        package let state: InboxStore.State
        package let json: [UInt8]

        package init(state: InboxStore.State, json: [UInt8]) {
            self.state = state
            self.json = json
        }
    }

    /// How old rows must be for a page of them to be kept: the sweeper's two minutes, and its time to work.
    private static let ripeAge: Duration = .seconds(180)
    /// For how long a page is kept that nobody asks for.
    private static let idleLimit: Duration = .seconds(600)
    private static let sweepInterval: Duration = .seconds(60)

    private let bound: Int
    private let now: @Sendable () -> Timestamp
    private let contents = Mutex(RecentPages())

    /// - Parameter bytes: how many are kept at most; 0 keeps nothing.
    package init(bytes: Int, now: @escaping @Sendable () -> Timestamp) {
        self.bound = bytes
        self.now = now
    }

    /// Drops, once a minute, what nobody asks for.
    package func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                // Pages become idle without an event, so sweep them at an interval.
                try? await Task.sleep(for: Self.sweepInterval)
                self.dropIdle()
            }
        }
    }

    /// How many bytes are kept.
    package var bytes: Int { self.contents.withLock { $0.bytes } }

    /// The page that was kept for a user, if it is of this selection.
    package func page(of user: String, _ selection: Selection) -> Page? {
        guard self.bound > 0 else { return nil }
        return self.contents.withLock { contents -> Page? in
            let user = ExactText(user)
            guard let entry = contents[user], entry.selection == selection else { return nil }
            contents.touch(user, at: self.now())
            return entry.page
        }
    }

    /// Forgets the page of a user.
    package func forget(_ user: String) {
        self.contents.withLock { contents in
            contents.remove(ExactText(user))
            InboxPageMetrics.bytes.record(contents.bytes)
        }
    }

    /// Drops what nobody has asked for in the last ten minutes.
    package func dropIdle() {
        let end = self.now() + (.zero - Self.idleLimit)
        self.contents.withLock { contents in
            while let oldest = contents.oldest, oldest.usedAt < end { contents.remove(oldest.user) }
            InboxPageMetrics.bytes.record(contents.bytes)
        }
    }

    /// Keeps a page in place of the one that its user had; of a row that is too young, neither.
    ///
    /// - Parameter newest: when the last of its rows was stored; nil if there are none.
    package func keep(_ page: Page, of user: String, _ selection: Selection, newest: Timestamp?) {
        guard self.bound > 0 else { return }
        if let newest, newest + Self.ripeAge > self.now() { return self.forget(user) }
        // Without the room that a writer has to spare.
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
