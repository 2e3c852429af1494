// Carillon · PendingChanges.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The user's own changes that the socket has not confirmed yet.
///
/// They are applied to a copy of an ``InboxState``. To undo a failed change, remove it; updates
/// that the socket brought meanwhile stay.
struct PendingChanges: Sendable {
    enum Change: Sendable {
        case read(Set<String>)
        case readAll(upTo: Int)
        case unread(String)
        /// A deletion, or a move into the archive.
        case removal(String)
    }

    private struct Entry: Sendable {
        let number: Int
        let change: Change
        let at: Date
        /// The inbox version that has the change; nil until the gateway answers.
        var version: Int?
    }

    private var entries: [Entry] = []
    private var lastNumber = 0
    private let most: Int

    /// - Parameter most: the most pending changes.
    init(most: Int) {
        self.most = most
    }

    /// Adds a change.
    ///
    /// - Returns: its number; nil if too many changes are pending.
    mutating func add(_ change: Change, at: Date) -> Int? {
        guard self.entries.count < self.most else { return nil }
        self.lastNumber += 1
        self.entries.append(Entry(number: self.lastNumber, change: change, at: at))
        return self.lastNumber
    }

    /// Notes that the gateway made a change, which is part of the inbox from this version on.
    mutating func confirm(_ number: Int, version: Int) {
        guard let index = self.entries.firstIndex(where: { $0.number == number }) else { return }
        self.entries[index].version = version
    }

    /// Undoes a change that failed.
    mutating func remove(_ number: Int) {
        self.entries.removeAll { $0.number == number }
    }

    /// Forgets the confirmed changes that a state of this version includes.
    mutating func removeConfirmed(upTo version: Int) {
        self.entries.removeAll { $0.version.map { $0 <= version } ?? false }
    }

    /// Returns the list and the unread count with the pending changes applied.
    func applied(to state: InboxState) -> (items: [InboxNotification], unread: Int) {
        var items = state.items
        var unread = state.unread
        for entry in self.entries {
            switch entry.change {
            case .read(let ids):
                for index in items.indices where !items[index].isRead && ids.contains(items[index].id) {
                    items[index].readAt = entry.at
                    unread -= 1
                }
            case .readAll(let version):
                for index in items.indices where !items[index].isRead && items[index].version <= version {
                    items[index].readAt = entry.at
                }
                unread = items.count { !$0.isRead }
            case .unread(let id):
                guard let index = items.firstIndex(where: { $0.id == id && $0.isRead }) else { continue }
                items[index].readAt = nil
                unread += 1
            case .removal(let id):
                guard let index = items.firstIndex(where: { $0.id == id }) else { continue }
                if !items.remove(at: index).isRead { unread -= 1 }
            }
        }
        return (items, max(0, unread))
    }
}
