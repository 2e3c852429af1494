// Carillon · InboxPlaces.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Where the notifications of a batch come to stand in their inboxes, so far as the batch alone tells it.
struct InboxPlaces {
    private struct Place {
        /// The user's index.
        let user: Int
        /// How many listed notifications of the user come after it.
        let behind: Int32
        let isListed: Bool
    }

    /// In the order of bytes, each once.
    private let users: [String]
    /// Of each user, how many listed notifications.
    private let listed: [Int32]
    private let places: [Place]

    init(_ notifications: [Notification]) {
        let order = notifications.indices.sorted {
            ExactText(notifications[$0].user) < ExactText(notifications[$1].user)
        }
        var users: [String] = []
        var listed: [Int32] = []
        var indexes = [Int](repeating: 0, count: notifications.count)
        for position in order {
            let notification = notifications[position]
            if users.last.map({ ExactText($0) }) != ExactText(notification.user) {
                users.append(notification.user)
                listed.append(0)
            }
            indexes[position] = users.count - 1
            if notification.isListed { listed[users.count - 1] += 1 }
        }
        var left = listed
        self.places = zip(notifications, indexes).map { notification, user in
            if notification.isListed { left[user] -= 1 }
            return Place(user: user, behind: left[user], isListed: notification.isListed)
        }
        self.users = users
        self.listed = listed
    }

    /// The parameters of ``StoreSQL/insertFresh`` after those of the columns.
    var parameters: [PostgresValue] {
        var behind = PostgresArray(.int4, capacity: self.places.count)
        var indexes = PostgresArray(.int4, capacity: self.places.count)
        var isListed = PostgresArray(.bool, capacity: self.places.count)
        for place in self.places {
            isListed.append(bool: place.isListed)
            behind.append(int4: place.behind)
            indexes.append(int4: Int32(place.user + 1))
        }
        var listed = PostgresArray(.int4, capacity: self.listed.count)
        for count in self.listed { listed.append(int4: count) }
        return [
            .array(isListed), .array(behind), .array(PostgresArray(texts: self.users)), .array(listed), .array(indexes),
        ]
    }

    /// What became of the batch, from a row for each user: the version and the unread count that were reached.
    func outcomes(_ rows: PostgresResult) throws(PostgresError) -> [NotificationStore.Outcome] {
        guard rows.count == self.users.count else {
            throw PostgresError(.decoding, "the number of inboxes is wrong")
        }
        var reached: [(version: Int64, unread: Int32)] = []
        reached.reserveCapacity(rows.count)
        for row in rows { reached.append((try row.int8(0), try row.int4(1))) }
        return self.places.map { place in
            let (version, unread) = reached[place.user]
            return .stored(
                version: place.isListed ? version - Int64(place.behind) : 0,
                unread: unread - place.behind
            )
        }
    }
}
