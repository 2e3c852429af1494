// Carillon · InboxSnapshot.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a client needs to be up to date with an inbox.
package struct InboxSnapshot: Sendable {
    /// A notification in the shape of the dialect that asked.
    package struct Item: Sendable {
        package let id: NotificationID
        /// The inbox version of its latest change.
        package let version: Int64
        package let json: [UInt8]
        /// Whether nobody has proven its receipt yet.
        package let awaitsProof: Bool
        package let lane: Lane
        package let isRead: Bool

        package init(
            id: NotificationID,
            version: Int64,
            json: [UInt8],
            awaitsProof: Bool,
            lane: Lane,
            isRead: Bool
        ) {
            self.id = id
            self.version = version
            self.json = json
            self.awaitsProof = awaitsProof
            self.lane = lane
            self.isRead = isRead
        }
    }

    /// A notification that is gone.
    package struct Deletion: Sendable {
        package let id: NotificationID
        /// The inbox version of its deletion.
        package let version: Int64

        package init(id: NotificationID, version: Int64) {
            self.id = id
            self.version = version
        }
    }

    package var version: Int64
    package var unread: Int32
    package var total: Int32
    /// The newest unread; or all that changed, where changes were asked for.
    package var items: [Item]
    /// Notifications that are gone since the version that was asked for.
    package var deleted: [Deletion]
    /// Whether the client must forget what it has.
    package var isReset: Bool
    package var hasMore: Bool
    /// Whether it holds what a client that came back has missed, oldest first, and not how the
    /// inbox stands.
    package var isReturn = false

    /// The version up to which the client has seen everything as long as it has not proven that it
    /// has this.
    var seenBefore: Int64 {
        let missed = self.items.lazy.filter { self.isReturn || $0.awaitsProof }.map(\.version).min()
        return missed.map { $0 - 1 } ?? self.version
    }

    package init(
        version: Int64,
        unread: Int32,
        total: Int32,
        items: [Item] = [],
        deleted: [Deletion] = [],
        isReset: Bool = false,
        hasMore: Bool = false
    ) {
        self.version = version
        self.unread = unread
        self.total = total
        self.items = items
        self.deleted = deleted
        self.isReset = isReset
        self.hasMore = hasMore
    }

    /// What of it is news to a client that was told of all changes up to a version.
    package func news(after version: Int64) -> InboxSnapshot {
        var news = self
        news.items.removeAll { $0.version <= version }
        news.deleted.removeAll { $0.version <= version }
        return news
    }
}
