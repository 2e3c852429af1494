// Carillon · LabelColumns.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Postgres

/// The columns of a ``NotificationLabel``, of the alias `n`.
enum LabelColumns {
    static let list = "n.user_id, n.id, n.type, n.category, n.org_id, n.job_id"
    static let count = 6

    static func read(_ row: PostgresRow, at start: Int = 0) throws(PostgresError) -> NotificationLabel {
        NotificationLabel(
            id: NotificationID(try row.uuid(start + 1)),
            user: try row.text(start),
            type: try row.text(start + 2),
            category: try row.optionalText(start + 3),
            org: try row.text(start + 4),
            job: try row.optionalText(start + 5)
        )
    }
}
