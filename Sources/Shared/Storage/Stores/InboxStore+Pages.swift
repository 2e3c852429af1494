// Carillon · InboxStore+Pages.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Pages by number, for clients that know no cursor.
extension InboxStore {
    /// How far into an inbox a page may begin; a cursor goes on from there.
    package static let furthestOffset = 10_000
    /// Up to where notifications of one type are counted.
    private static let countLimit: Int64 = 100_000

    /// A page of the inbox, with the counts that were true as it was read.
    package struct OffsetPage: Sendable {
        /// The newest first.
        package var items: [Item] = []
        /// How many there are on all pages: exact, for one type up to 100,000.
        package var matching: Int32 = 0
        /// Unread ones, of all types.
        package var unread: Int32 = 0

        package init() {}
    }

    /// A notification, and the way by which it went out: `socket`, `client`, `inbox` or a provider's name.
    package struct Item: Sendable {
        package let notification: Notification
        package let sentVia: String?

        package init(notification: Notification, sentVia: String?) {
            self.notification = notification
            self.sentVia = sentVia
        }
    }

    /// The notifications from `offset` on, in one statement, so that page and counts belong together.
    ///
    /// - Parameters:
    ///   - filter: its `before` holds as well.
    ///   - offset: 0 to ``furthestOffset``; what is further is taken as that.
    package func page(user: String, filter: Filter, offset: Int) async throws(PostgresError) -> OffsetPage {
        // Only fixed text is put together; every value is a parameter.
        let unread = filter.unreadOnly ? "AND x.read_at IS NULL" : ""
        let total = filter.unreadOnly ? "unread" : "total"
        let before = filter.before ?? NotificationID(high: .max, low: .max)
        let result = try await self.pool.query(
            """
            WITH tally AS MATERIALIZED (
                SELECT coalesce(b.unread, 0) AS unread, CASE
                    WHEN $3::text IS NULL THEN coalesce(b.\(total), 0)
                    ELSE (SELECT count(*) FROM (
                        SELECT FROM carillon.notifications x
                        WHERE x.user_id = $1 AND x.deleted_at IS NULL AND x.version > 0 AND x.type = $3 \(unread)
                        LIMIT $6
                    ) counted)::int4
                END AS matching
                FROM (SELECT) AS one LEFT JOIN carillon.inboxes b ON b.user_id = $1
            )
            SELECT t.unread, t.matching, n.id IS NOT NULL, n.sent_via, \(NotificationColumns.list)
            FROM tally t LEFT JOIN LATERAL (
                SELECT x.* FROM carillon.notifications x
                WHERE x.user_id = $1 AND x.id < $2 AND x.deleted_at IS NULL AND x.version > 0
                    AND ($3::text IS NULL OR x.type = $3) \(unread)
                ORDER BY x.id DESC LIMIT $4 OFFSET $5
            ) n ON true
            ORDER BY n.id DESC
            """,
            .text(user), .uuid(before.halves), .text(filter.type), .int4(Int32(clamping: filter.limit)),
            .int4(Int32(clamping: min(max(offset, 0), Self.furthestOffset))), .int8(Self.countLimit)
        )
        var page = OffsetPage()
        for row in result {
            page.unread = try row.int4(0)
            page.matching = try row.int4(1)
            guard try row.bool(2) else { continue }
            page.items.append(
                Item(notification: try NotificationColumns.all.read(row, at: 4), sentVia: try row.optionalText(3))
            )
        }
        return page
    }

    /// Those of `ids` that are in the user's inbox.
    package func known(user: String, ids: [NotificationID]) async throws(PostgresError) -> Set<NotificationID> {
        let result = try await self.pool.query(
            """
            SELECT n.id FROM carillon.notifications n
            WHERE n.user_id = $1 AND n.id = ANY($2) AND n.deleted_at IS NULL AND n.version > 0
            """,
            .text(user), .array(PostgresArray(uuids: ids.map(\.halves)))
        )
        var known: Set<NotificationID> = []
        for row in result { known.insert(NotificationID(try row.uuid(0))) }
        return known
    }
}
