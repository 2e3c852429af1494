// Carillon · InboxState.swift
// SPDX-License-Identifier: Apache-2.0

/// A user's newest notifications, the unread count and the inbox version.
///
/// Frames of the socket and pages of REST change it.
struct InboxState: Sendable {
    /// A read or a deletion, kept so that an older page cannot undo it.
    private struct Change: Sendable {
        let version: Int
        let content: InboxUpdate.Content
    }

    /// The ids of notifications that were in the list, so that restored ones do not arrive again.
    ///
    /// A `sync` does not say which notifications the user marked unread or restored. Ids cannot
    /// tell: lanes, broadcasts and replays may store an older id after a newer one.
    private struct SeenIDs: Sendable {
        private static let most = 10_000

        private var newer: Set<String> = []
        private var older: Set<String> = []

        func contains(_ id: String) -> Bool { self.newer.contains(id) || self.older.contains(id) }

        mutating func insert(_ id: String) {
            self.newer.insert(id)
            guard self.newer.count >= Self.most else { return }
            self.older = self.newer
            self.newer = []
        }
    }

    private static let mostChanges = 256

    /// The notifications, newest first.
    ///
    /// Ids begin with a timestamp, so they sort by age.
    private(set) var items: [InboxNotification] = []
    private(set) var unread = 0
    /// The version to resume from; nil for the whole inbox.
    private(set) var version: Int?
    /// The most ``items``; the oldest above it leave the list, not the inbox.
    let mostItems: Int
    /// The newest reads and deletions, oldest first.
    private var changes: [Change] = []
    /// The version before which changes may be forgotten.
    private var floor = 0
    private var seen = SeenIDs()

    init(resume version: Int? = nil, mostItems: Int) {
        self.version = version
        self.mostItems = mostItems
    }

    var isFull: Bool { self.items.count >= self.mostItems }

    subscript(_ id: String) -> InboxNotification? {
        self.index(of: id).map { self.items[$0] }
    }

    /// Applies a frame.
    ///
    /// - Returns: the new notifications, oldest first, and whether the list was replaced. The first
    ///   `sync` has no new ones.
    mutating func apply(_ update: InboxUpdate) -> (arrivals: [InboxNotification], isReset: Bool) {
        var arrivals: [InboxNotification] = []
        var isReset = false
        switch update.content {
        case .sync(let notifications, let deleted, let isOutdated):
            isReset = isOutdated || self.version == nil
            arrivals = self.synchronize(notifications, deleted, isReset: isReset, to: update.version)
        case .notification(let notification):
            // A notification that the user marked unread or restored is not new.
            if !self.isKnown(notification.id), notification.again != true { arrivals = [notification] }
            self.insert(notification)
        case .read, .deleted:
            self.items = self.items.compactMap { Self.changed($0, by: update.content) }
            self.remember(Change(version: update.version, content: update.content))
        }
        self.dropOldest()
        // After a reset, versions may start over.
        self.version = isReset ? update.version : max(self.version ?? 0, update.version)
        self.unread = update.unread
        return (arrivals, isReset)
    }

    /// Adds a page of the inbox that was read over REST.
    ///
    /// Skips unread notifications that are newer than this state, because the socket brings them.
    ///
    /// - Returns: false if the page is so old that later changes are forgotten. Load it again then.
    mutating func merge(_ page: InboxPage) -> Bool {
        guard page.version >= self.floor else { return false }
        let later = self.changes.drop { $0.version <= page.version }
        for notification in page.notifications
        where notification.isRead || notification.version <= self.version ?? .max {
            if let known = self[notification.id], known.version >= notification.version { continue }
            let current = later.reduce(Optional(notification)) { item, change in
                item.flatMap { Self.changed($0, by: change.content) }
            }
            if let current { self.insert(current) }
        }
        self.dropOldest()
        return true
    }

    /// Removes a notification that is no longer in the user's inbox; a frame will say so too.
    mutating func remove(_ id: String) {
        guard let index = self.index(of: id) else { return }
        if !self.items.remove(at: index).isRead { self.unread -= 1 }
    }

    private mutating func synchronize(
        _ notifications: [InboxNotification], _ deleted: [String], isReset: Bool, to version: Int
    ) -> [InboxNotification] {
        let before = self.version
        let unseen = notifications.filter { !self.isKnown($0.id) }
        if isReset {
            self.items = []
            self.changes = []
            self.floor = version
        } else if !deleted.isEmpty {
            let content = InboxUpdate.Content.deleted(.ids(Set(deleted)))
            self.items = self.items.compactMap { Self.changed($0, by: content) }
            self.remember(Change(version: version, content: content))
        }
        for notification in notifications { self.insert(notification) }
        guard let before else { return [] }
        // A reset also lists notifications from before the gap that this list never held.
        let last = version < before ? 0 : before
        return unseen.filter { !$0.isRead && ($0.version > last || !isReset) }.sorted { $0.version < $1.version }
    }

    /// Whether the notification is or was in the list.
    private func isKnown(_ id: String) -> Bool { self.index(of: id) != nil || self.seen.contains(id) }

    /// Returns the notification after a read or a deletion; nil if it was deleted.
    private static func changed(
        _ notification: InboxNotification, by content: InboxUpdate.Content
    ) -> InboxNotification? {
        switch content {
        case .read(let subject, let at):
            guard !notification.isRead, subject.includes(notification) else { return notification }
            var read = notification
            read.readAt = at
            return read
        case .deleted(.ids(let ids)):
            return ids.contains(notification.id) ? nil : notification
        case .deleted(let subject):
            return notification.isRead && subject.includes(notification) ? nil : notification
        case .sync, .notification:
            return notification
        }
    }

    private mutating func remember(_ change: Change) {
        self.changes.append(change)
        guard self.changes.count > Self.mostChanges else { return }
        self.floor = max(self.floor, self.changes.removeFirst().version)
    }

    private mutating func dropOldest() {
        if self.items.count > self.mostItems { self.items.removeLast(self.items.count - self.mostItems) }
    }

    // MARK: The sorted list

    private mutating func insert(_ notification: InboxNotification) {
        self.seen.insert(notification.id)
        let place = self.place(of: notification.id)
        if place < self.items.count, self.items[place].id == notification.id {
            self.items[place] = notification
        } else {
            self.items.insert(notification, at: place)
        }
    }

    private func index(of id: String) -> Int? {
        let place = self.place(of: id)
        return place < self.items.count && self.items[place].id == id ? place : nil
    }

    /// The index of the first item that is not newer than the id.
    private func place(of id: String) -> Int {
        var (low, high) = (0, self.items.count)
        while low < high {
            let middle = (low + high) / 2
            if self.items[middle].id > id { low = middle + 1 } else { high = middle }
        }
        return low
    }
}

extension InboxUpdate.Subject {
    func includes(_ notification: InboxNotification) -> Bool {
        switch self {
        case .ids(let ids): ids.contains(notification.id)
        case .upTo(let version): notification.version <= version
        }
    }
}
