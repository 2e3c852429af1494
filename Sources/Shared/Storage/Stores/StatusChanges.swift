// Carillon · StatusChanges.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A batch of status changes as a statement.
struct StatusChanges {
    let statement: PostgresStatement

    init(_ changes: [(user: String, id: NotificationID, status: NotificationStatus, reason: String?, via: String?)]) {
        var users = PostgresArray(.text, capacity: changes.count)
        var ids = PostgresArray(.uuid, capacity: changes.count)
        var statuses = PostgresArray(.text, capacity: changes.count)
        var reasons = PostgresArray(.text, capacity: changes.count)
        var ways = PostgresArray(.text, capacity: changes.count)
        for change in changes {
            users.append(change.user)
            ids.append(uuid: change.id.halves)
            statuses.append(change.status.rawValue)
            reasons.append(change.reason)
            ways.append(change.via)
        }
        self.statement = PostgresStatement(
            StoreSQL.mark,
            [.array(users), .array(ids), .array(statuses), .array(reasons), .array(ways)]
        )
    }
}
