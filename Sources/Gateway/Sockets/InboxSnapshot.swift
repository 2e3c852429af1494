// Carillon · InboxSnapshot.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// What a client needs to be up to date with an inbox.
package struct InboxSnapshot: Sendable {
    /// A notification in the shape of the dialect that asked.
    package struct Item: Sendable {
        package let id: NotificationID
        package let json: [UInt8]
        /// Whether nobody has proven its receipt yet.
        package let awaitsProof: Bool
        package let lane: Lane
        package let isRead: Bool

        package init(id: NotificationID, json: [UInt8], awaitsProof: Bool, lane: Lane, isRead: Bool) {
            self.id = id
            self.json = json
            self.awaitsProof = awaitsProof
            self.lane = lane
            self.isRead = isRead
        }
    }

    package var version: Int64
    package var unread: Int32
    package var total: Int32
    /// The newest unread; or all that changed, where changes were asked for.
    package var items: [Item]
    /// Notifications that are gone since the version that was asked for.
    package var deleted: [NotificationID]
    /// Whether the client must forget what it has.
    package var isReset: Bool
    package var hasMore: Bool

    package init(
        version: Int64,
        unread: Int32,
        total: Int32,
        items: [Item] = [],
        deleted: [NotificationID] = [],
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
}
