// Carillon · SweepStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Finds notifications that no dispatcher works on, and pushes that Redis may have lost.
package struct SweepStore: Sendable {
    /// A notification without an owner.
    package struct Unowned: Sendable {
        package let notification: Notification
        /// The unread count of its inbox.
        package let unread: Int32
        fileprivate let storedAt: Timestamp
    }

    /// The rows that a sweep reads together, by the times at which they were stored.
    package struct Slice: Sendable {
        /// Its rows were stored later than this.
        let start: Timestamp
        /// Its rows were stored until this.
        package let end: Timestamp
    }

    let pool: PostgresPool

    // MARK: The sweep

    /// Returns the slice after `last`, which may be empty.
    ///
    /// - Parameters:
    ///   - last: the slice before; nil for the slice from the watermark on.
    ///   - before: the end of the last slice.
    ///   - size: the number of rows; rows that were stored at the same time are in one slice.
    package func slice(
        after last: Slice? = nil,
        before: Timestamp,
        size: Int
    ) async throws(PostgresError) -> Slice {
        let result = try await self.pool.query(
            Self.slice, .timestamp(last?.end), .timestamp(before), .int8(Int64(size)))
        guard let row = result.first else { throw PostgresError(.decoding, "the sweep has no watermark") }
        return Slice(start: try row.timestamp(0), end: try row.timestamp(1))
    }

    /// A page of notifications of a slice that have no owner, oldest first.
    ///
    /// - Parameter last: the last notification of the previous page; nil for the first page.
    package func unowned(
        in slice: Slice,
        after last: Unowned? = nil,
        limit: Int
    ) async throws(PostgresError) -> [Unowned] {
        let cursor =
            last.map { RepairCursor($0.storedAt, $0.notification.id) } ?? RepairCursor(slice.start + .microseconds(1))
        return try Self.readUnowned(
            try await self.pool.query(
                Self.unowned, .timestamp(slice.end), .int4(clamping: limit),
                .timestamp(cursor.moment), .id(cursor.id)))
    }

    /// Returns the notifications among these that are stored and have no owner, in any order.
    package func unowned(among notifications: [Notification]) async throws(PostgresError) -> [Unowned] {
        try Self.readUnowned(
            try await self.pool.query(
                Self.unownedAmong, .texts(notifications.map(\.user)), .ids(notifications.map(\.id))))
    }

    private static func readUnowned(_ result: PostgresResult) throws(PostgresError) -> [Unowned] {
        try result.map { (row) throws(PostgresError) in
            Unowned(
                notification: try NotificationColumns.all.read(row),
                unread: try row.int4(NotificationColumns.all.count),
                storedAt: try row.timestamp(NotificationColumns.all.count + 1)
            )
        }
    }

    /// Advances the sweep's watermark: owned notifications stored before `before` are not inspected
    /// again.
    ///
    /// - Returns: whether all of them are owned.
    @discardableResult
    package func advance(before: Timestamp) async throws(PostgresError) -> Bool {
        let result = try await self.pool.query(Self.advance, .timestamp(before))
        return try result.first?.bool(0) ?? false
    }

    // MARK: The repair

    /// Returns the end of the slice of the repair that begins at `start`.
    ///
    /// - Parameters:
    ///   - start: the first moment of the slice, of storing or handing on.
    ///   - until: the end of the last slice.
    ///   - size: the number of rows of either kind; rows of the same moment are in one slice.
    package func repairEnd(
        from start: Timestamp,
        until: Timestamp,
        size: Int
    ) async throws(PostgresError) -> Timestamp {
        let result = try await self.pool.query(
            Self.repairEnd, .timestamp(start), .timestamp(until), .int8(Int64(size)))
        guard let row = result.first else { throw PostgresError(.decoding, "the repair's slice returned no row") }
        return try row.timestamp(0)
    }

    /// A page of notifications that wait for a push provider and were handed to its stream between
    /// two moments, in that order.
    ///
    /// Leaves out those whose push was held back: only their mail is in a stream.
    ///
    /// - Parameter cursor: the end of the previous page; ``RepairCursor/init(_:)`` for the first
    ///   page.
    /// - Returns: the page and its end; nil if nothing was left.
    package func queued(
        handedOnSince since: Timestamp,
        until: Timestamp,
        after cursor: RepairCursor,
        limit: Int
    ) async throws(PostgresError) -> (page: [Notification], last: RepairCursor?) {
        let result = try await self.pool.query(
            Self.queued, .timestamp(since), .timestamp(until),
            .timestamp(cursor.moment), .id(cursor.id), .int4(clamping: limit)
        )
        var page: [Notification] = []
        var last: RepairCursor?
        for row in result {
            let notification = try NotificationColumns.all.read(row)
            page.append(notification)
            last = RepairCursor(try row.timestamp(NotificationColumns.all.count), notification.id)
        }
        return (page, last)
    }

    // MARK: Statements

    /// The beginning and the end of a slice of the sweep.
    ///
    /// $1: the end of the slice before, null for the watermark, $2: the end of the last slice, $3:
    /// the number of rows.
    private static let slice = """
        SELECT w.start, coalesce((
            SELECT n.stored_at FROM carillon.notifications n WHERE n.stored_at > w.start AND n.stored_at <= $2
            ORDER BY n.stored_at OFFSET $3 - 1 LIMIT 1
        ), $2)
        FROM (SELECT coalesce($1, least(swept_until, $2)) AS start FROM carillon.sweep) w
        """

    /// $1: the last time of storing, $2: limit, $3 and $4: the cursor of the page before.
    private static let unowned = """
        SELECT \(NotificationColumns.list), coalesce(b.unread, 0)::int4, n.stored_at FROM carillon.notifications n
        LEFT JOIN carillon.inboxes b USING (user_id)
        WHERE n.stored_at >= $3::timestamptz AND n.stored_at <= $1
            AND \(NotificationState.isUnowned)
            AND (n.stored_at, n.id) > ($3::timestamptz, $4::uuid)
        ORDER BY n.stored_at, n.id LIMIT $2
        """

    /// The notifications among those given that are stored and have no owner.
    ///
    /// $1, $2: users and ids. Rows: as in ``unowned``.
    private static let unownedAmong = """
        SELECT \(NotificationColumns.list), coalesce(b.unread, 0)::int4, n.stored_at
        FROM unnest($1, $2) AS k (user_id, id)
        JOIN carillon.notifications n ON \(NotificationSQL.isNamed(by: "k"))
        LEFT JOIN carillon.inboxes b ON b.user_id = n.user_id
        WHERE \(NotificationState.isUnowned)
        """

    /// Moves the sweep's watermark to just before the oldest row without an owner, at most to $1,
    /// and returns whether it got there.
    ///
    /// A watermark ahead of $1, set by a wrong clock, is reset.
    private static let advance = """
        UPDATE carillon.sweep SET swept_until = greatest(least(swept_until, $1), coalesce((
            SELECT min(n.stored_at) - interval '1 microsecond' FROM carillon.notifications n
            WHERE n.stored_at > swept_until AND n.stored_at <= $1
                AND \(NotificationState.isUnowned)
        ), $1))
        RETURNING swept_until = $1
        """

    /// The end of a slice of the repair, which has at most $3 rows by time of storing and $3 by
    /// time of handing on, plus those of the same moment.
    ///
    /// $1: its start, $2: the end of the last slice, $3: the number of rows.
    private static let repairEnd = """
        SELECT least(
            coalesce((
                SELECT s.stored_at FROM carillon.notifications s
                WHERE s.stored_at >= $1::timestamptz AND s.stored_at <= $2::timestamptz
                ORDER BY s.stored_at OFFSET $3 - 1 LIMIT 1
            ), $2::timestamptz),
            coalesce((
                SELECT h.handed_at FROM carillon.notifications h
                WHERE h.handed_at >= $1::timestamptz AND h.handed_at <= $2::timestamptz
                ORDER BY h.handed_at OFFSET $3 - 1 LIMIT 1
            ), $2::timestamptz))
        """

    /// $1 and $2: since and until when they were handed on, $3 and $4: the cursor of the page
    /// before, $5: how many.
    private static let queued = """
        SELECT \(NotificationColumns.list), n.moment
        FROM (\(Self.handedOn)) n
        WHERE \(NotificationState.isQueued) AND n.decision IS NULL
            AND (n.channels & \(Channels.push.rawValue)) <> 0
            AND n.moment >= $3::timestamptz AND (n.moment, n.id) > ($3::timestamptz, $4::uuid)
        ORDER BY n.moment, n.id LIMIT $5
        """

    /// Rows of notifications, each with the `moment` from which it may have been in a provider's
    /// stream: when it was stored, if it was handed on within ``NotificationSQL/handOver`` of that
    /// or not at all.
    ///
    /// $1 and $2: the first and the last such moment.
    static let handedOn = """
        SELECT s.*, s.stored_at AS moment FROM carillon.notifications s
        WHERE s.stored_at >= $1::timestamptz AND s.stored_at <= $2::timestamptz AND s.handed_at IS NULL
        UNION ALL
        SELECT h.*, h.handed_at AS moment FROM carillon.notifications h
        WHERE h.handed_at >= $1::timestamptz AND h.handed_at <= $2::timestamptz
        """
}

/// The end of a page, in the order in which notifications were handed to providers' streams.
package struct RepairCursor: Sendable {
    let moment: Timestamp
    let id: NotificationID

    /// The cursor before everything enqueued at a moment.
    package init(_ moment: Timestamp) {
        self.init(moment, .least)
    }

    init(_ moment: Timestamp, _ id: NotificationID) {
        self.moment = moment
        self.id = id
    }
}
