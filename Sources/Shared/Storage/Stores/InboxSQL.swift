// Carillon · InboxSQL.swift
// SPDX-License-Identifier: Apache-2.0

/// The statements of ``InboxStore`` that read pages and record receipts.
///
/// $1: user. Of the pages, $2 to $4: version, unread and total that the caller has seen, or nulls; where the inbox still
/// stands like that, a one-time filter spares the reading of its rows.
enum InboxSQL {
    /// How many columns of a page's rows tell the state; the notification's follow.
    static let stateColumns = 5

    /// The columns of a state, of a table called `alias`.
    static func state(of alias: String) -> String {
        """
        \(EpochSQL.version(of: alias)), \(alias).unread, \(alias).total, \(EpochSQL.floor(of: alias)), \(alias).begun_at
        """
    }

    private static let noState = [String](repeating: "NULL", count: Self.stateColumns).joined(separator: ", ")

    /// For each ``InboxPart``, as are the next two.
    static let page = Self.page(where: "x.deleted_at IS NULL")
    static let unreadPage = Self.page(where: "x.deleted_at IS NULL AND x.read_at IS NULL")

    /// $5: only older than this id, $6: type or null, $7: limit.
    private static func page(where condition: String) -> [String] {
        InboxPart.tables.map { table in
            Self.rows(
                """
                x.id < $5 AND \(condition) AND ($6::text IS NULL OR x.type = $6) AND x.version > 0
                    AND ($2::int8 IS NULL OR NOT EXISTS (
                        SELECT FROM carillon.inboxes s WHERE s.user_id = $1 AND \(Self.isAsSeen)
                    ))
                """,
                of: table,
                order: "x.id DESC",
                limit: "$7"
            )
        }
    }

    /// $5: the version after which it begins, $6: limit.
    static let changes = InboxPart.tables.map { table in
        Self.rows(
            """
            x.version > $5 AND EXISTS (
                SELECT FROM carillon.inboxes s WHERE s.user_id = $1
                    AND $5 BETWEEN \(EpochSQL.floor(of: "s")) AND \(EpochSQL.version(of: "s"))
                    AND ($2::int8 IS NULL OR NOT (\(Self.isAsSeen)))
            )
            """,
            of: table,
            order: "x.version, x.id",
            limit: "$6"
        )
    }

    /// For several inboxes at once.
    ///
    /// $1 to $6: of each the user, the version, unread and total that the caller has seen, or
    /// below zero, then the end, and the type or null; $7: limit. The first column numbers the inboxes from 1.
    static let pages = Self.pages(where: "x.deleted_at IS NULL")
    static let unreadPages = Self.pages(where: "x.deleted_at IS NULL AND x.read_at IS NULL")

    /// As it is read part by part for each inbox, the server sets up all parts, but only once.
    private static func pages(where condition: String) -> String {
        """
        SELECT u.number, page.*
        FROM unnest($1, $2, $3, $4, $5, $6) WITH ORDINALITY
            AS u (user_id, version, unread, total, before, type, number)
        CROSS JOIN LATERAL (
            SELECT \(Self.state(of: "b")), \(InboxRow.nulls)
            FROM carillon.inboxes b WHERE b.user_id = u.user_id
            UNION ALL (
                SELECT \(Self.noState), \(InboxRow.list(of: "x")) FROM carillon.notifications x
                WHERE x.user_id = u.user_id AND x.id < u.before AND \(condition) AND x.version > 0
                    AND (u.type IS NULL OR x.type = u.type)
                    AND (u.version < 0 OR NOT EXISTS (
                        SELECT FROM carillon.inboxes s WHERE s.user_id = u.user_id
                            AND \(EpochSQL.version(of: "s")) = u.version AND s.unread = u.unread
                            AND s.total = u.total
                    ))
                ORDER BY x.id DESC LIMIT $7
            )
        ) page
        """
    }

    private static let isAsSeen = """
        \(EpochSQL.version(of: "s")) = $2::int8 AND s.unread = $3::int4 AND s.total = $4::int4
        """

    /// A row of the state alone, if there is an inbox, then rows of a notification each, without the state: what is null
    /// costs the server next to nothing, and no row is sorted or copied for a join.
    ///
    /// The rows come in the order of their branch, as a branch with a limit is never read in parallel.
    private static func rows(_ condition: String, of table: String, order: String, limit: String) -> String {
        """
        SELECT \(Self.state(of: "b")), \(InboxRow.nulls) FROM carillon.inboxes b WHERE b.user_id = $1
        UNION ALL (
            SELECT \(Self.noState), \(InboxRow.list(of: "x")) FROM \(table) x
            WHERE x.user_id = $1 AND \(condition)
            ORDER BY \(order) LIMIT \(limit)
        )
        """
    }

    /// A notification that its user has got in some way: listed, or a push alone, but not one that was suppressed.
    private static let received = """
        user_id = $1 AND id = $2 AND deleted_at IS NULL AND (version > 0 OR status <> 'suppressed')
        """

    /// $2: id, $3: when.
    static let opened = """
        WITH n AS (
            UPDATE carillon.notifications n SET opened_at = coalesce(opened_at, $3) WHERE \(Self.received)
            RETURNING \(WayColumns.source), n.opened_at = $3 AS is_first
        )
        SELECT \(WayColumns.list), n.is_first FROM n \(WayColumns.join)
        """

    /// $2: id, $3: when, $4: by which way.
    static let delivered = """
        WITH known AS (SELECT lane FROM carillon.notifications WHERE \(Self.received)),
        n AS (
            UPDATE carillon.notifications n
            SET status = 'delivered', status_reason = NULL, delivered_at = $3, sent_via = coalesce(sent_via, $4)
            WHERE \(Self.received) AND status IN ('pending', 'sent')
            RETURNING \(WayColumns.source)
        )
        SELECT k.lane, \(WayColumns.list) FROM known k LEFT JOIN n ON true \(WayColumns.join)
        """
}
