// Carillon · VersionAssignment.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Assigns inbox versions to new notifications, from their order and their inboxes' new versions.
struct VersionAssignment {
    private struct Row {
        /// The index of the user.
        let user: Int
        /// The number of the user's listed notifications that follow it.
        let behind: Int32
        let isListed: Bool
    }

    /// Each user once, in byte order.
    private let users: [String]
    /// The number of listed notifications of each user.
    private let listed: [Int32]
    private let rows: [Row]

    init(_ notifications: [Notification]) {
        // Two fields are enough; a loop over the notifications would copy each.
        let owners = notifications.map { ExactText($0.user) }
        let areListed = notifications.map(\.isListed)
        var users: [ExactText] = []
        var listed: [Int32] = []
        var indexes = [Int](repeating: 0, count: owners.count)
        for position in owners.indices.sorted(by: { owners[$0] < owners[$1] }) {
            if users.last != owners[position] {
                users.append(owners[position])
                listed.append(0)
            }
            indexes[position] = users.count - 1
            if areListed[position] { listed[users.count - 1] += 1 }
        }
        var left = listed
        self.rows = zip(areListed, indexes).map { isListed, user in
            if isListed { left[user] -= 1 }
            return Row(user: user, behind: left[user], isListed: isListed)
        }
        self.users = users.map(\.text)
        self.listed = listed
    }

    /// The parameters of ``NotificationSQL/insertFresh`` after those of the columns.
    var parameters: [PostgresValue] {
        [
            .bools(self.rows.map(\.isListed)), .int4s(clamping: self.rows.map { Int($0.behind) }),
            .texts(self.users), .int4s(clamping: self.listed.map { Int($0) }),
            .int4s(clamping: self.rows.map { $0.user + 1 }),
        ]
    }

    /// Computes the outcomes of the batch from a row per user with its new version and unread
    /// count.
    func outcomes(_ inboxes: PostgresResult) throws(PostgresError) -> [NotificationStore.Outcome] {
        guard inboxes.count == self.users.count else {
            throw PostgresError(.decoding, "expected one row for each inbox")
        }
        let reached = try (0..<inboxes.count).map { (user) throws(PostgresError) in
            (try inboxes[user].int8(0), try inboxes[user].int4(1))
        }
        return self.rows.map { row in
            let (version, unread) = reached[row.user]
            return .stored(
                version: row.isListed ? version - Int64(row.behind) : 0,
                unread: unread - row.behind
            )
        }
    }
}
