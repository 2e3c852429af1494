// Carillon · InboxSQL.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The statements of ``InboxStore`` that read pages and record receipts.
enum InboxSQL {
    /// The number of columns of a state; a page's rows begin with them.
    static let stateColumns = 6

    /// The columns of a state, of an inbox called `alias`, whose row may be missing.
    ///
    /// `greatest` ignores nulls, so a missing inbox has the base of the epoch, as its first row
    /// will.
    static func state(of alias: String) -> String {
        """
        \(EpochSQL.version(of: alias)), coalesce(\(alias).unread, 0), coalesce(\(alias).total, 0), \
        \(EpochSQL.floor(of: alias)), coalesce(\(alias).begun_at, 'epoch'), coalesce(\(alias).notes, 0)
        """
    }

    private static let noState = [String](repeating: "NULL", count: Self.stateColumns).joined(separator: ", ")

    /// $1: users.
    ///
    /// The first column is the position of the user.
    static let states = """
        SELECT (u.number - 1)::int4, \(Self.state(of: "b"))
        FROM unnest($1) WITH ORDINALITY AS u (user_id, number)
        LEFT JOIN carillon.inboxes b ON b.user_id = u.user_id
        """

    /// $1: user, $2: only ids below this, $3: limit.
    static let page = Self.page(where: "x.deleted_at IS NULL", limit: Self.limit("$3", by: .all, of: "$1"))
    static let unreadPage = Self.page(where: Self.isUnread("x"), limit: Self.limit("$3", by: .unread, of: "$1"))

    /// $1 to $3 as in ``page``, $4: type, $5: category, $6: organisation, each or null.
    static let feed = Self.page(
        where: "\(Self.isOfFeed) AND x.deleted_at IS NULL", limit: Self.limit("$3", by: .all, of: "$1"))
    static let unreadFeed = Self.page(
        where: "\(Self.isOfFeed) AND \(Self.isUnread("x"))", limit: Self.limit("$3", by: .unread, of: "$1"))
    private static let isOfFeed = """
        ($4::text IS NULL OR x.type = $4) AND ($5::text IS NULL OR x.category = $5) \
        AND ($6::text IS NULL OR x.org_id = $6)
        """

    /// $1: user, $2: organisation or null.
    static let unreadByCategory = """
        SELECT coalesce(u.category, ''), count(*)::int4
        FROM (
            SELECT x.category FROM carillon.notifications x
            WHERE x.user_id = $1 AND ($2::text IS NULL OR x.org_id = $2) AND \(Self.isUnread("x"))
            ORDER BY x.id DESC LIMIT \(Self.limit("10000", by: .unread, of: "$1"))
        ) u
        GROUP BY 1 ORDER BY 1
        """

    /// Whether `row` is in its inbox and was not read.
    static func isUnread(_ row: String) -> String {
        "\(row).read_at IS NULL AND \(row).deleted_at IS NULL AND \(row).version > 0"
    }

    /// The number of notifications that an inbox `s` counts.
    enum Count: String {
        case all = "s.total"
        case unread = "s.unread"
        case read = "greatest(s.total - s.unread, 0)"
    }

    /// A limit that ends a scan for notifications once it has found all of a user's.
    ///
    /// Otherwise a scan of an inbox with few of them reads all the user's tombstones, which share
    /// their index. Another index would add a tenth to the time of each insert, and with one of
    /// unread notifications, marking a row read would add entries to all indexes.
    static func limit(_ limit: String, by count: Count, of user: String) -> String {
        "least(\(limit), (SELECT \(count.rawValue) FROM carillon.inboxes s WHERE s.user_id = \(user)))"
    }

    private static func page(where condition: String, limit: String) -> String {
        Self.rows("x.id < $2 AND \(condition) AND x.version > 0", order: "x.id DESC", limit: limit)
    }

    /// $1: user, $2: the version after which it begins, $3: limit.
    static let changes = Self.rows(
        """
        x.version > $2 AND EXISTS (
            SELECT FROM carillon.inboxes s WHERE s.user_id = $1 AND $2 >= \(EpochSQL.floor(of: "s"))
        )
        """, order: "x.version, x.id", limit: "$3")

    /// A row of the state alone, then a row for each notification without the state: nulls cost
    /// next to nothing, and no row is sorted or copied for a join.
    ///
    /// A branch with a limit is never read in parallel, so its order holds.
    private static func rows(_ condition: String, order: String, limit: String) -> String {
        """
        SELECT \(Self.state(of: "b")), \(InboxRow.nulls)
        FROM (SELECT) AS one LEFT JOIN carillon.inboxes b ON b.user_id = $1
        UNION ALL (
            SELECT \(Self.noState), \(InboxRow.list(of: "x")) FROM carillon.notifications x
            WHERE x.user_id = $1 AND \(condition)
            ORDER BY \(order) LIMIT \(limit)
        )
        """
    }

    /// Several inboxes at once.
    ///
    /// $1 and $2: for each the user and the upper bound of ids; $3: limit. The first column is the
    /// position of the inbox.
    static let pages = Self.pages(
        where: "x.deleted_at IS NULL", limit: Self.limit("$3", by: .all, of: "u.user_id"))
    static let unreadPages = Self.pages(
        where: Self.isUnread("x"), limit: Self.limit("$3", by: .unread, of: "u.user_id"))

    private static func pages(where condition: String, limit: String) -> String {
        """
        SELECT (u.number - 1)::int4, page.*
        FROM unnest($1, $2) WITH ORDINALITY AS u (user_id, before, number)
        CROSS JOIN LATERAL (
            SELECT \(Self.state(of: "b")), \(InboxRow.nulls)
            FROM (SELECT) AS one LEFT JOIN carillon.inboxes b ON b.user_id = u.user_id
            UNION ALL (
                SELECT \(Self.noState), \(InboxRow.list(of: "x")) FROM carillon.notifications x
                WHERE x.user_id = u.user_id AND x.id < u.before AND \(condition) AND x.version > 0
                ORDER BY x.id DESC LIMIT \(limit)
            )
        ) page
        """
    }

    /// Whether the job of a notification, in a table called `alias`, was never cancelled, not even
    /// while a provider had the notification.
    static func isNotWithdrawn(of alias: String? = nil) -> String {
        let row = alias.map { "\($0)." } ?? ""
        return """
            \(row)status <> '\(NotificationStatus.cancelled.rawValue)' \
            AND \(row)status_reason IS DISTINCT FROM '\(RecordedReason.cancelledTooLate.rawValue)'
            """
    }

    /// A notification that has reached its user ($1): listed, archived, or pushed only, but not
    /// suppressed.
    static let isReceived = """
        (deleted_at IS NULL OR deleted_at > now() AND \(Self.isNotWithdrawn()) AND EXISTS (
            SELECT FROM carillon.archived a WHERE a.user_id = $1 AND a.notification_id = id
        )) AND (version > 0 OR status <> 'suppressed')
        """

    private static let received = "user_id = $1 AND id = $2 AND \(Self.isReceived)"

    /// $1: user, $2: id, $3: when.
    static let opened = """
        WITH known AS (SELECT 1 FROM carillon.notifications WHERE \(Self.received)),
        n AS (
            UPDATE carillon.notifications n SET opened_at = $3 WHERE \(Self.received) AND opened_at IS NULL
            RETURNING \(EndpointColumns.source)
        )
        SELECT \(EndpointColumns.list) FROM known k LEFT JOIN n ON true \(EndpointColumns.join)
        """

    /// $1: user, $2: id, $3: the button's id.
    static let button = """
        SELECT \(LabelColumns.list),
            (n.data -> 'actions' @> jsonb_build_array(jsonb_build_object('id', $3::text))) IS TRUE
        FROM carillon.notifications n WHERE \(Self.received)
        """

    /// $1: user, $2: id, $3: when, $4: the value of `sent_via`.
    static let delivered = """
        WITH known AS (SELECT lane FROM carillon.notifications WHERE \(Self.received)),
        n AS (
            UPDATE carillon.notifications n
            SET status = 'delivered', status_reason = NULL, delivered_at = $3, sent_via = coalesce(sent_via, $4)
            WHERE \(Self.received) AND status IN ('pending', 'sent', 'deferred', 'failed')
            RETURNING \(EndpointColumns.source)
        )
        SELECT k.lane, \(EndpointColumns.list) FROM known k LEFT JOIN n ON true \(EndpointColumns.join)
        """
}
