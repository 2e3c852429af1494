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

    /// Why a held item is in no summary.
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
        package let id: DigestWindowID
        package let user: String
        package let org: String
        package let type: String
        package let lane: Lane
        /// The number of held items, without dropped ones.
        package let count: Int
        /// The texts of the first of these items.
        package let first: [Line]
        /// The channels of all items together.
        package let channels: Channels
        /// `push` if any item has it; nil without items.
        package let delivery: DeliveryClass?
        /// The highest severity of the items; nil without items.
        package let severity: Severity?
        /// When the last item expires; nil if any item does not expire.
        package let expiresAt: Timestamp?
        /// Until when the last item is kept; nil if any item has no limit.
        package let keepUntil: Timestamp?
        /// The item, if only one is left.
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
        package let window: DigestWindowID
        package let id: NotificationID
        package let job: String?
        package let category: String?
        /// Nil while it waits, and if the summary stands for it.
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

    let pool: PostgresPool

    /// Adds items to the windows of their keys, in order of user.
    ///
    /// Repeating items returns the same outcomes.
    ///
    /// If an item has a job id, this locks its user's inbox first, as storing notifications does.
    /// So no notification with the same job id is stored meanwhile.
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
        // An item without a job id has no duplicates: a concurrent call has gathered the same item,
        // such as an earlier try whose connection broke. The next call sees it, and returns its
        // outcome.
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

    /// Claims windows that have ended; they take no more items, and are due again at `until` unless
    /// they are removed.
    ///
    /// Drops the items that were cancelled, have expired, or concern an entity that the user has
    /// read. A window whose summary is stored keeps the items that it had then.
    ///
    /// - Parameter timeout: the time limit, waiting included; nil means the configuration's.
    package func claim(
        now: Timestamp,
        until: Timestamp,
        limit: Int,
        timeout: Duration? = nil
    ) async throws(PostgresError) -> [Due] {
        let moments = [PostgresValue.timestamp(now), .timestamp(until)]
        let statements = [
            CancellationSQL.beforeStoring,
            PostgresStatement(DigestSQL.claimDue, moments + [.int4(clamping: limit)]),
            PostgresStatement(DigestSQL.readClaimed, moments + [.int4(clamping: Self.mostLines)]),
        ]
        guard let result = try await self.pool.run(statements, timeout: timeout).last else {
            throw PostgresError(.decoding, "claiming digests returned no result")
        }
        return try result.map { (row) throws(PostgresError) in try Self.due(row) }
    }

    /// Puts off the window that ended first, if it is still due.
    ///
    /// - Returns: its id; nil if another dispatcher has claimed it.
    package func putOff(now: Timestamp, until: Timestamp) async throws(PostgresError) -> DigestWindowID? {
        try await self.pool.query(DigestSQL.putOff, .timestamp(now), .timestamp(until)).first?.id(0)
    }

    /// A page of held items, by window and item, without single ones.
    ///
    /// - Parameter last: the last item of the previous page; nil for the first page.
    package func held(in windows: [DigestWindowID], after last: Held?, limit: Int) async throws(PostgresError) -> [Held]
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
    ///   changes once the window takes no more items.
    static func summary(of window: DigestWindowID, newest: NotificationID, user: String) -> NotificationID {
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

    /// Removes flushed windows.
    ///
    /// - Parameter suppressed: the windows among them whose summaries were suppressed.
    package func remove(
        _ ids: [DigestWindowID],
        suppressed: [DigestWindowID] = []
    ) async throws(PostgresError) {
        guard !ids.isEmpty else { return }
        try await self.pool.run([
            PostgresStatement("DELETE FROM carillon.digests WHERE id = ANY($1) AND state <> 'open'", [.ids(ids)]),
            PostgresStatement(DigestSQL.suppress, [.ids(suppressed)]),
        ])
    }

    /// Deletes up to `limit` items gathered before a moment, with which their job ids are
    /// forgotten.
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
        let severityIndex = row.isNull(9) ? nil : Int(try row.int4(9)) - 1
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
            severity: severityIndex.flatMap { Severity.allCases.indices.contains($0) ? Severity.allCases[$0] : nil },
            expiresAt: try row.optionalTimestamp(10),
            keepUntil: try row.optionalTimestamp(11),
            alone: try row.bool(12) ? try Self.alone(row, at: 14, type: type, user: user, id: id) : nil,
            summary: Self.summary(of: id, newest: newest, user: user)
        )
    }

    /// Reads the only item of a window.
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
