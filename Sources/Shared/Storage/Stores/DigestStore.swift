// Carillon · DigestStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Items held for digests, in PostgreSQL.
package struct DigestStore: Sendable {
    /// An item to gather.
    package struct Item: Sendable {
        package let notification: Notification
        let key: String
        let rule: DigestRule

        package init(notification: Notification, key: String, rule: DigestRule) {
            self.notification = notification
            self.key = key
            self.rule = rule
        }
    }

    /// The outcome of gathering an item.
    package enum Outcome: String, Sendable, CaseIterable {
        /// It becomes a notification of its own.
        case single
        /// It waits for the summary.
        case held
        /// Its user already has its job id, held or as a notification.
        case duplicate
        /// A duplicate with different content.
        case conflict
        /// Its job was cancelled before; the item is not stored.
        case cancelled
    }

    /// The fate of an item that no summary brings to its user.
    package enum Fate: String, Sendable, CaseIterable {
        /// Its job was cancelled while it waited.
        case cancelled
        case expired
        /// The user has since read or deleted a notification about the same entity, of the same
        /// organisation.
        case read
        /// It is the only item left, so it becomes a notification as it is.
        case alone
        /// Its summary was suppressed.
        case suppressed
    }

    /// A window that has ended.
    package struct Due: Sendable {
        package let id: NotificationID
        package let user: String
        package let org: String
        package let type: String
        package let lane: Lane
        /// The number of held items, without dropped ones.
        package let count: Int
        /// The first of them.
        package let first: [Line]
        /// The channels of all items together.
        package let channels: Channels
        /// `push` if any item has it; nil if there is none.
        package let delivery: DeliveryClass?
        /// The highest severity of the items; nil if there is none.
        package let severity: Severity?
        /// When the last item expires; nil if one does not expire.
        package let expiresAt: Timestamp?
        /// Until when the last item is kept; nil if one has no limit.
        package let keepUntil: Timestamp?
        /// The item if it is the only one.
        package let alone: Alone?
        /// The id of its summary, or of the notification that the only item becomes.
        package let summary: NotificationID
    }

    /// The only item of a window.
    package struct Alone: Sendable {
        package let content: JobContent
        package let job: String?
        /// The stream and entry that it came from.
        package let entry: String
    }

    /// An item that a window held.
    package struct Held: Sendable {
        package let window: NotificationID
        package let id: NotificationID
        package let job: String?
        package let category: String?
        /// Nil if the summary stands for it.
        package let fate: Fate?
    }

    /// The text of one item in a summary.
    package struct Line: Sendable {
        package let id: NotificationID
        package let title: String
        package let body: String
        package let data: [UInt8]?

        package init(id: NotificationID, title: String, body: String, data: [UInt8]?) {
            self.id = id
            self.title = title
            self.body = body
            self.data = data
        }
    }

    /// The number of items that a summary lists.
    static let mostLines = 10
    /// The newest notifications of a user that are compared with the items of a window.
    fileprivate static let mostNotifications = 10_000

    let pool: PostgresPool

    /// Adds items to the windows of their keys, in order of user.
    ///
    /// Repeating items returns the same outcomes.
    ///
    /// If an item has a job id, its user's inbox is locked first, as when storing notifications, so
    /// that none with the same id is stored meanwhile.
    ///
    /// - Returns: an outcome for each item, in order.
    package func gather(_ items: [Item], now: Timestamp) async throws(PostgresError) -> [Outcome] {
        guard !items.isEmpty else { return [] }
        guard let result = try await self.pool.runDurably(Self.statements(for: items, now: now)).last else {
            throw PostgresError(.decoding, "gathering items returned no result")
        }
        var outcomes = [Outcome](repeating: .held, count: items.count)
        for row in result {
            guard let outcome = Outcome(rawValue: try row.text(1)) else {
                throw PostgresError(.decoding, "an item has an invalid outcome")
            }
            outcomes[try row.position(in: outcomes.count)] = outcome
        }
        // Only a job id has duplicates. This item was gathered by a call that committed meanwhile,
        // such as one whose connection broke; the next call sees it, and returns its outcome.
        if zip(items, outcomes).contains(where: { $0.notification.jobID == nil && $1 == .duplicate }) {
            return try await self.gather(items, now: now)
        }
        return outcomes
    }

    /// The statements of ``gather(_:now:)``, in order, for one transaction.
    static func statements(for items: [Item], now: Timestamp) -> [PostgresStatement] {
        var statements = [CancellationSQL.beforeStoring]
        let named = items.map(\.notification).filter { $0.jobID != nil }
        if !named.isEmpty {
            let users = ExactText.distinct(named.map(\.user))
            statements.append(PostgresStatement(NotificationSQL.makeInboxes, [.texts(users)]))
        }
        let parameters = Self.parameters(items) + [.timestamp(now)]
        statements.append(PostgresStatement(DigestSQL.gatherItems, parameters))
        return statements
    }

    /// Whether any item of a notification's job was gathered, for any user.
    func hasItems(ofJobOf notification: Notification?) async throws(PostgresError) -> Bool {
        guard let notification, let job = notification.jobID else { return false }
        let result = try await self.pool.query(DigestSQL.hasItems, .text(notification.org), .text(job))
        return try result.first?.bool(0) ?? false
    }

    /// Takes windows that have ended.
    ///
    /// They accept no more items and are due again at `until` unless they are removed.
    ///
    /// Items that were cancelled, have expired, or concern an entity that the user has read are
    /// dropped.
    package func take(now: Timestamp, until: Timestamp, limit: Int) async throws(PostgresError) -> [Due] {
        let moments = [PostgresValue.timestamp(now), .timestamp(until)]
        let statements = [
            CancellationSQL.beforeStoring,
            PostgresStatement(DigestSQL.closeDue, moments + [.int4(clamping: limit)]),
            PostgresStatement(DigestSQL.readClosed, moments + [.int4(clamping: Self.mostLines)]),
        ]
        guard let result = try await self.pool.run(statements).last else {
            throw PostgresError(.decoding, "taking digests returned no result")
        }
        return try result.map { (row) throws(PostgresError) in try Self.due(row) }
    }

    /// Puts off the window that ended first, if it is still due.
    ///
    /// - Returns: its id; nil if another dispatcher has taken it.
    package func putOff(now: Timestamp, until: Timestamp) async throws(PostgresError) -> NotificationID? {
        try await self.pool.query(DigestSQL.putOff, .timestamp(now), .timestamp(until)).first?.id(0)
    }

    /// Gives back windows that were taken for the first time and not sent; their items are judged
    /// again then.
    package func giveBack(_ ids: [NotificationID]) async throws(PostgresError) {
        guard !ids.isEmpty else { return }
        try await self.pool.query(DigestSQL.giveBack, .ids(ids))
    }

    /// A page of held items, by window and item, without single ones.
    ///
    /// - Parameter last: the last item of the previous page; nil for the first page.
    package func held(in windows: [NotificationID], after last: Held?, limit: Int) async throws(PostgresError) -> [Held]
    {
        guard !windows.isEmpty else { return [] }
        let result = try await self.pool.query(
            DigestSQL.heldItems, .ids(windows),
            .id(last?.window ?? .least), .id(last?.id ?? .least), .int4(clamping: limit)
        )
        return try result.map { (row) throws(PostgresError) in
            Held(
                window: try row.id(0),
                id: try row.id(1),
                job: try row.optionalText(2),
                category: try row.optionalText(3),
                fate: try row.optionalText(4).flatMap { Fate(rawValue: $0) }
            )
        }
    }

    /// The id of a window's summary, the same in every dispatcher.
    ///
    /// It sorts behind its items, because it is as new as the newest of them.
    ///
    /// - Parameter newest: the newest item that the window held, even a dropped one: it no longer
    ///   changes once the window is closed.
    static func summary(of window: NotificationID, newest: NotificationID, user: String) -> NotificationID {
        let origin = EntryDigest(
            stream: "digest",
            entry: "\(newest.milliseconds)-\(0xFFF)",
            fields: [("id", Array(window.description.utf8)[...])]
        )
        return NotificationID(origin: origin, user: user)
    }

    /// The open window of a key: its end, its latest end if it slides, and its number of items; nil
    /// if there is none.
    package func window(
        user: String,
        org: String,
        type: String,
        key: String
    ) async throws(PostgresError) -> (due: Timestamp, last: Timestamp, count: Int)? {
        let result = try await self.pool.query(
            """
            SELECT due_at, last_at, count FROM carillon.digests
            WHERE user_id = $1 AND org_id = $2 AND type = $3 AND key = $4 AND state = 'open'
            """,
            .text(user), .text(org), .text(type), .text(key)
        )
        guard let row = result.first else { return nil }
        return (try row.timestamp(0), try row.timestamp(1), Int(try row.int4(2)))
    }

    /// Removes windows whose summaries are in flight.
    ///
    /// - Parameter suppressed: the windows among them whose summaries were suppressed.
    package func remove(
        _ ids: [NotificationID],
        suppressed: [NotificationID] = []
    ) async throws(PostgresError) {
        guard !ids.isEmpty else { return }
        try await self.pool.run([
            PostgresStatement("DELETE FROM carillon.digests WHERE id = ANY($1) AND state <> 'open'", [.ids(ids)]),
            PostgresStatement(DigestSQL.suppress, [.ids(suppressed)]),
        ])
    }

    /// Deletes up to `limit` items gathered before a moment.
    ///
    /// Their job ids are known until then.
    ///
    /// - Returns: the number of items deleted.
    package func forget(before: Timestamp, limit: Int) async throws(PostgresError) -> Int {
        let result = try await self.pool.query(
            """
            DELETE FROM carillon.digest_items WHERE ctid = ANY (ARRAY (
                SELECT i.ctid FROM carillon.digest_items i
                WHERE i.gathered_at < $1 AND NOT EXISTS (SELECT FROM carillon.digests d WHERE d.id = i.digest_id)
                ORDER BY i.gathered_at LIMIT $2
            ))
            """,
            .timestamp(before), .int4(clamping: limit)
        )
        return result.affectedRows
    }

    private static func due(_ row: PostgresRow) throws(PostgresError) -> Due {
        let type = try row.text(3)
        let gravest = row.isNull(9) ? nil : Int(try row.int4(9)) - 1
        let id = try row.id(0)
        let user = try row.text(1)
        let newest = try row.optionalID(13) ?? id
        return Due(
            id: id,
            user: user,
            org: try row.text(2),
            type: type,
            lane: Lane(rawValue: try row.text(4)) ?? .normal,
            count: Int(try row.int4(5)),
            first: Self.lines(try row.optionalJSON(6)),
            channels: row.isNull(7) ? .all : Channels(rawValue: UInt8(truncatingIfNeeded: try row.int4(7))),
            delivery: try row.optionalText(8).flatMap { DeliveryClass(rawValue: $0) },
            severity: gravest.flatMap { Severity.allCases.indices.contains($0) ? Severity.allCases[$0] : nil },
            expiresAt: try row.optionalTimestamp(10),
            keepUntil: try row.optionalTimestamp(11),
            alone: try row.bool(12) ? try Self.alone(row, at: 14, type: type, user: user, id: id) : nil,
            summary: Self.summary(of: id, newest: newest, user: user)
        )
    }

    /// Reads the item of a window with one item.
    private static func alone(
        _ row: PostgresRow,
        at first: Int,
        type: String,
        user: String,
        id: NotificationID
    ) throws(PostgresError) -> Alone {
        var item = Notification(id: id, user: user, type: type, createdAt: Timestamp(microseconds: 0))
        try NotificationColumns.item.read(row, at: first, into: &item)
        var content = JobContent(type: type)
        content.title = item.title
        content.body = item.body
        content.data = item.data
        content.extras = item.extras
        content.entityType = item.entityType
        content.entityID = item.entityID
        content.category = item.category
        content.collapseKey = item.collapseKey
        return Alone(content: content, job: item.jobID, entry: item.jobEntry)
    }

    private static func lines(_ json: [UInt8]?) -> [Line] {
        guard let json, let lines = (try? JSONParser.parse(stored: json))?.array else { return [] }
        return lines.compactMap { line in
            guard let id = line["id"]?.string.flatMap({ NotificationID($0) }) else { return nil }
            let data = line["data"].flatMap { $0.object == nil ? nil : JSONWriter.bytes(of: $0) }
            return Line(id: id, title: line["title"]?.string ?? "", body: line["body"]?.string ?? "", data: data)
        }
    }

    /// The parameters of ``DigestSQL/gatherItems`` except the last.
    private static func parameters(_ items: [Item]) -> [PostgresValue] {
        let rules = items.map(\.rule)
        let windows: [PostgresValue] = [
            .texts(items.map(\.key)), .int8s(rules.map(\.window.inMicroseconds)),
            .int8s(rules.map(\.maximum.inMicroseconds)), .bools(rules.map(\.isSliding)),
            .int4s(clamping: rules.map(\.singles)),
        ]
        return DigestSQL.gathered.arrays(items.map(\.notification)) + windows
    }
}

/// The statements of ``DigestStore`` that gather items and take windows.
enum DigestSQL {
    /// The columns of items, as parameters of ``gatherItems``.
    static let gathered = NotificationColumns.gathered

    private static func parameter(_ offset: Int) -> String { "$\(Self.gathered.count + offset)" }

    /// Gathers items.
    ///
    /// A new item whose user has a notification of the same job is not gathered: it is a duplicate,
    /// or that notification itself, which needs no summary. An item without a job id is always the
    /// notification itself, stored by a dispatcher whose catalog had no digest.
    ///
    /// Parameters after those of the columns: for each item key, span and longest span in
    /// microseconds, whether the window slides, and the number of single items; then now.
    static let gatherItems = """
        SELECT (k.n - 1)::int4, coalesce(
            (
                SELECT CASE
                    WHEN o.id = k.id THEN '\(DigestStore.Outcome.single.rawValue)'
                    WHEN (o.type, o.title, o.body, o.data) IS DISTINCT FROM (k.type, k.title, k.body, k.data)
                        THEN '\(DigestStore.Outcome.conflict.rawValue)'
                    ELSE '\(DigestStore.Outcome.duplicate.rawValue)' END
                FROM (
                    SELECT x.id, x.type, x.title, x.body, x.data FROM carillon.notifications x
                    WHERE x.user_id = k.user_id AND x.id = k.id
                    UNION ALL
                    SELECT x.id, x.type, x.title, x.body, x.data FROM carillon.notifications x
                    WHERE k.job_id IS NOT NULL AND x.user_id = k.user_id AND x.org_id = k.org_id AND x.job_id = k.job_id
                ) o
                WHERE NOT EXISTS (
                    SELECT FROM carillon.digest_items g WHERE g.user_id = k.user_id AND g.notification_id = k.id
                )
                LIMIT 1
            ),
            carillon.gather(
                ROW(k.user_id, k.id, k.id, false, \(Self.parameter(6)), NULL, \(NotificationColumns.item.list(of: "k"))
                    )::carillon.digest_items,
                k.key, k.lane, k.span * interval '1 microsecond', k.maximum * interval '1 microsecond', k.sliding,
                k.singles))
        FROM (
            SELECT * FROM unnest(\(Self.gathered.parameters), \(Self.parameter(1)), \(Self.parameter(2)),
                \(Self.parameter(3)), \(Self.parameter(4)), \(Self.parameter(5))) WITH ORDINALITY
                AS i (\(Self.gathered.names), key, span, maximum, sliding, singles, n)
            ORDER BY i.user_id COLLATE "C", i.org_id COLLATE "C", i.type COLLATE "C", i.key COLLATE "C", i.n
        ) k
        """

    /// Whether any item of a job was gathered.
    ///
    /// $1: organisation, $2: job id.
    static let hasItems = """
        SELECT EXISTS (SELECT FROM carillon.digest_items WHERE org_id = $1 AND job_id = $2)
        """

    /// $1: windows, $2 and $3: last window and item, $4: limit.
    static let heldItems = """
        SELECT i.digest_id, i.notification_id, i.job_id, i.category, i.fate FROM carillon.digest_items i
        WHERE i.digest_id = ANY ($1) AND NOT i.is_single AND (i.digest_id, i.notification_id) > ($2, $3)
        ORDER BY i.digest_id, i.notification_id LIMIT $4
        """

    /// Records that the summaries of windows were suppressed.
    ///
    /// A lone item has a notification of its own.
    static let suppress = """
        UPDATE carillon.digest_items SET fate = '\(DigestStore.Fate.suppressed.rawValue)'
        WHERE digest_id = ANY ($1) AND NOT is_single AND fate IS NULL
        """

    /// The severities, highest first.
    private static let severities = Severity.allCases.map { "'\($0.rawValue)'" }.joined(separator: ", ")

    /// The columns of a lone item.
    private static let alone = NotificationColumns.item.columns.map { column in
        "(array_agg(i.\(column.name)) FILTER (WHERE i.kept = 1))[1] AS alone_\(column.name)"
    }.joined(separator: ", ")
    private static let aloneNames = NotificationColumns.item.columns.map { "s.alone_\($0.name)" }
        .joined(separator: ", ")

    /// Whether a window still waits for a dispatcher, even if it accepts no more items.
    static func isWaiting(_ row: String) -> String { "\(row).state NOT IN ('taken', 'retaken')" }

    /// When the window `d` ended, which its next due time hides.
    private static let end = "least(d.last_at, d.due_at)"

    /// Closes windows that have ended, so that they take no more items.
    ///
    /// A window that an earlier call took, but whose dispatcher has not removed it, is `retaken`.
    ///
    /// $1: now, $2: next due time, $3: limit.
    static let closeDue = """
        UPDATE carillon.digests d
        SET state = CASE WHEN d.state IN ('taken', 'retaken') THEN 'retaken' ELSE 'taken' END, due_at = $2,
            last_at = \(Self.end)
        WHERE d.id IN (
            SELECT x.id FROM carillon.digests x WHERE x.due_at <= $1 ORDER BY x.due_at LIMIT $3
            FOR UPDATE SKIP LOCKED
        )
        """

    /// Gives back windows that were taken once.
    ///
    /// The summary of one that was taken again may be stored, so it stays.
    static let giveBack = """
        WITH back AS (
            UPDATE carillon.digests SET state = 'closing' WHERE id = ANY ($1) AND state = 'taken' RETURNING id
        )
        UPDATE carillon.digest_items i SET fate = NULL
        FROM back b WHERE i.digest_id = ANY (ARRAY[b.id]) AND NOT i.is_single AND i.fate IS NOT NULL
        """

    /// Puts off the window that ended first; its time is over, so it accepts no more items.
    ///
    /// $1: now, $2: next due time.
    static let putOff = """
        UPDATE carillon.digests d
        SET state = CASE d.state WHEN 'open' THEN 'closing' ELSE d.state END, due_at = $2, last_at = \(Self.end)
        WHERE d.id = (SELECT x.id FROM carillon.digests x WHERE x.due_at <= $1 ORDER BY x.due_at LIMIT 1)
            AND d.due_at <= $1
        RETURNING d.id
        """

    /// Whether a user deleted the notification `n` by $1.
    ///
    /// Cancellations, replacements and retention delete without the user.
    private static let isDeletedByUser = """
        n.deleted_at <= $1 AND n.replaced_by IS NULL AND n.status <> 'cancelled'
            AND n.status_reason IS DISTINCT FROM 'cancelled_too_late'
            AND (n.keep_until IS NULL OR n.deleted_at < n.keep_until)
            AND n.stored_at >= (SELECT s.retained_from FROM carillon.sweep s)
        """

    /// Reads the windows that ``closeDue`` closed in the same transaction.
    ///
    /// A separate statement, because it must see the items that were committed before their windows
    /// were locked.
    ///
    /// Stores the fates of items when their window is first taken, and only reads them when it is
    /// taken again: its summary may be stored already. Items of a window are ordered by id. The
    /// newest notifications of each user are read once and compared with the items by sorting,
    /// because a lookup for each item would be quadratic. `IS TRUE` keeps a set of entities from
    /// becoming a join, which would be quadratic too.
    ///
    /// A snooze deletes a notification, but its user has not finished with it: a schedule brings it
    /// back, or already has, as a notification whose job id names it.
    ///
    /// $1: now, $2: next due time, $3: number of lines.
    static let readClosed = """
        WITH taken AS MATERIALIZED (
            SELECT d.* FROM carillon.digests d
            WHERE d.due_at = $2 AND d.state <> 'open' AND d.xmin = pg_current_xact_id()::xid
        ),
        held AS MATERIALIZED (
            SELECT h.digest_id, h.user_id, h.notification_id, h.gathered_at, t.state = 'retaken' AS is_judged,
                \(NotificationColumns.item.list(of: "h")), nullif(h.fate, '\(DigestStore.Fate.alone.rawValue)') AS known_fate
            FROM taken t JOIN carillon.digest_items h ON h.digest_id = ANY (ARRAY[t.id]) AND NOT h.is_single
        ),
        newest AS MATERIALIZED (
            SELECT DISTINCT ON (h.digest_id) h.digest_id, h.notification_id FROM held h
            ORDER BY h.digest_id, h.notification_id DESC
        ),
        about AS MATERIALIZED (
            SELECT n.user_id, n.id, n.job_id, n.org_id, n.entity_type, n.entity_id,
                greatest(n.read_at, (
                    SELECT a.archived_at FROM carillon.archived a
                    WHERE a.user_id = n.user_id AND a.notification_id = n.id
                )) AS read_at,
                CASE WHEN \(Self.isDeletedByUser) THEN n.deleted_at END AS deleted_at
            FROM (SELECT DISTINCT h.user_id FROM held h WHERE h.entity_id IS NOT NULL) u
            CROSS JOIN LATERAL (
                SELECT x.* FROM carillon.notifications x WHERE x.user_id = u.user_id
                ORDER BY x.id DESC LIMIT \(DigestStore.mostNotifications)
            ) n
            WHERE n.entity_id IS NOT NULL
                AND ((n.user_id, n.org_id, n.entity_id)
                    IN (SELECT h.user_id, h.org_id, h.entity_id FROM held h)) IS TRUE
        ),
        snoozed AS MATERIALIZED (
            SELECT j.user_id, split_part(j.job_id, ':', 2) AS id FROM (
                SELECT s.user_id, s.job_id
                FROM (SELECT DISTINCT a.user_id FROM about a WHERE a.deleted_at IS NOT NULL) u
                JOIN carillon.schedules s ON s.user_id = ANY (ARRAY[u.user_id])
                UNION ALL
                SELECT a.user_id, a.job_id FROM about a
            ) j
            WHERE starts_with(j.job_id, 'snooze:')
        ),
        touched AS MATERIALIZED (
            SELECT a.user_id, a.org_id, a.entity_type, a.entity_id,
                greatest(max(a.read_at), max(a.deleted_at) FILTER (
                    WHERE (a.user_id, a.id::text) NOT IN (SELECT z.user_id, z.id FROM snoozed z)
                )) AS at
            FROM about a GROUP BY a.user_id, a.org_id, a.entity_type, a.entity_id
        ),
        seen AS MATERIALIZED (
            SELECT w.user_id, w.notification_id FROM (
                SELECT x.*, max(x.at) OVER (PARTITION BY x.user_id, x.org_id, x.entity_type, x.entity_id) AS last
                FROM (
                    SELECT h.user_id, h.org_id, h.entity_type, h.entity_id, h.notification_id, h.gathered_at,
                        NULL::timestamptz AS at
                    FROM held h WHERE h.entity_id IS NOT NULL
                    UNION ALL
                    SELECT t.user_id, t.org_id, t.entity_type, t.entity_id, NULL, NULL, t.at FROM touched t
                ) x
            ) w
            WHERE w.last >= w.gathered_at
        ),
        judged AS MATERIALIZED (
            SELECT h.*, coalesce(h.known_fate, CASE
                WHEN h.is_judged THEN NULL
                WHEN EXISTS (SELECT FROM carillon.cancellations) AND \(CancellationSQL.isCancelled("h"))
                    THEN '\(DigestStore.Fate.cancelled.rawValue)'
                WHEN h.expires_at <= $1 OR h.keep_until <= $1 THEN '\(DigestStore.Fate.expired.rawValue)'
                WHEN (h.user_id, h.notification_id) IN (SELECT s.user_id, s.notification_id FROM seen s)
                    THEN '\(DigestStore.Fate.read.rawValue)'
            END) AS fate
            FROM held h
        ),
        counted AS MATERIALIZED (
            SELECT j.*, count(*) FILTER (WHERE j.fate IS NULL) OVER (PARTITION BY j.digest_id) AS kept,
                row_number() OVER (PARTITION BY j.digest_id, j.fate IS NULL ORDER BY j.notification_id) AS place
            FROM judged j
        ),
        noted AS (
            UPDATE carillon.digest_items x SET fate = coalesce(c.fate, '\(DigestStore.Fate.alone.rawValue)')
            FROM counted c
            WHERE x.user_id = c.user_id AND x.notification_id = c.notification_id
                AND (c.fate IS NOT NULL OR c.kept = 1)
        ),
        summed AS MATERIALIZED (
            SELECT i.digest_id, count(*)::int4 AS count,
                jsonb_agg(jsonb_build_object('id', i.notification_id, 'title', i.title, 'body', i.body, 'data', i.data)
                    ORDER BY i.place) FILTER (WHERE i.place <= $3) AS lines,
                bit_or(i.channels)::int4 AS channels, max(i.delivery COLLATE "C") AS delivery,
                min(array_position(ARRAY[\(Self.severities)], i.severity)) AS severity,
                CASE WHEN count(i.expires_at) = count(*) THEN max(i.expires_at) END AS expires_at,
                CASE WHEN count(i.keep_until) = count(*) THEN max(i.keep_until) END AS keep_until,
                \(Self.alone)
            FROM counted i WHERE i.fate IS NULL GROUP BY i.digest_id
        )
        SELECT t.id, t.user_id, t.org_id, t.type, t.lane, coalesce(s.count, 0), s.lines, s.channels, s.delivery,
            s.severity, s.expires_at, s.keep_until, coalesce(s.count = 1, false), w.notification_id, \(Self.aloneNames)
        FROM taken t LEFT JOIN newest w ON w.digest_id = t.id LEFT JOIN summed s ON s.digest_id = t.id
        """
}
