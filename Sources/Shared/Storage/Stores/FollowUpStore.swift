// Carillon · FollowUpStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// What is put off, in PostgreSQL, so that it outlives any process and any Redis.
package struct FollowUpStore: Sendable {
    /// Something that is put off.
    package struct Item: Sendable, Equatable {
        package let user: String
        package let notification: NotificationID
        package let kind: FollowUp

        package init(user: String, notification: NotificationID, kind: FollowUp) {
            self.user = user
            self.notification = notification
            self.kind = kind
        }
    }

    /// Something whose time has come, with how its notification stands.
    package struct Due: Sendable {
        package let item: Item
        /// Whether its delivery was handed to its provider's stream, which has not been lost since: nothing is left to do.
        package let wasHandedOn: Bool
        /// Nil if the notification is gone.
        package let facts: Facts?
    }

    /// How a notification stands when it is looked at again.
    package struct Facts: Sendable {
        package let notification: Notification
        package let unread: Int32
        package let isReplaced: Bool
        /// Whether a provider has accepted it for any device; mail is none.
        ///
        /// Looked up for ``FollowUp/attention`` alone: it takes the attempts of all days.
        package let wasAccepted: Bool
    }

    let pool: PostgresPool

    /// Puts things off, in place of an earlier moment for the same; what waits for a release is `deferred` meanwhile.
    ///
    /// An e-mail keeps its first moment, however often its notification is looked at again. What quiet hours put off becomes a
    /// row of the audit, as nothing else remembers it when it has been released.
    ///
    /// - Parameter critical: which of the notifications come before the rest when they are due.
    package func put(
        _ items: [(item: Item, due: Timestamp, reason: String)],
        critical: Set<NotificationID> = [],
        now: Timestamp
    ) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items.map(\.item))
        var moments = PostgresArray(.timestamptz, capacity: items.count)
        for item in items { moments.append(timestamptz: item.due.microseconds) }
        let reasons = PostgresArray(texts: items.map(\.reason))
        var urgencies = PostgresArray(.bool, capacity: items.count)
        for item in items { urgencies.append(bool: critical.contains(item.item.notification)) }
        var statements = [
            PostgresStatement(
                Self.insert, [users, ids, kinds, .array(moments), .array(reasons), .array(urgencies)])
        ]
        let releases = items.filter { $0.item.kind == .release }
        if !releases.isEmpty {
            let (users, ids, _) = Self.columns(releases.map(\.item))
            statements.append(
                PostgresStatement(
                    Self.markDeferred, [users, ids, .array(PostgresArray(texts: releases.map(\.reason)))])
            )
        }
        let held = items.filter { $0.item.kind == .release || $0.reason == Self.quietHours }
        if !held.isEmpty {
            let (users, ids, _) = Self.columns(held.map(\.item))
            var moments = PostgresArray(.timestamptz, capacity: held.count)
            for item in held { moments.append(timestamptz: item.due.microseconds) }
            let reasons = PostgresArray(texts: held.map(\.reason))
            statements.append(
                PostgresStatement(
                    Self.noteDeferred,
                    [users, ids, .array(moments), .array(reasons), .timestamptz(now.microseconds)])
            )
        }
        try await self.pool.run(statements)
    }

    /// Has things looked at by now, if they still wait for the moment given.
    package func hasten(_ items: [(item: Item, due: Timestamp)], now: Timestamp) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items.map(\.item))
        var moments = PostgresArray(.timestamptz, capacity: items.count)
        for item in items { moments.append(timestamptz: item.due.microseconds) }
        try await self.pool.query(
            Self.advance, users, ids, kinds, .array(moments), .timestamptz(now.microseconds))
    }

    /// How much of one user is taken at once; the rest waits for the next time.
    package static let userLimit = 512

    /// Takes what is due; it comes up again at `until` unless it is removed.
    ///
    /// Of a user, all that is due comes at once, the oldest ``userLimit`` of it, and to one caller: whoever finds another one
    /// taking gets nothing. Users of whom something critical is due come first, by half of the limit, and then those who have
    /// waited longest.
    ///
    /// - Parameter limit: how many; more, up to ``userLimit``, if the first user alone has more.
    package func take(now: Timestamp, until: Timestamp, limit: Int) async throws(PostgresError) -> [Due] {
        let result = try await self.pool.query(
            Self.takeDue, .timestamptz(now.microseconds), .timestamptz(until.microseconds),
            .int4(Int32(clamping: limit))
        )
        var due: [Due] = []
        for row in result {
            guard let kind = FollowUp(rawValue: try row.text(2)) else { continue }
            let item = Item(user: try row.text(0), notification: NotificationID(try row.uuid(1)), kind: kind)
            let wasHandedOn = try row.bool(6)
            guard !row.isNull(7) else {
                due.append(Due(item: item, wasHandedOn: wasHandedOn, facts: nil))
                continue
            }
            due.append(
                Due(
                    item: item,
                    wasHandedOn: wasHandedOn,
                    facts: Facts(
                        notification: try NotificationColumns.all.read(row, at: 7),
                        unread: try row.int4(3),
                        isReplaced: try row.bool(4),
                        wasAccepted: try row.bool(5)
                    )
                )
            )
        }
        return due
    }

    /// Removes what is done, unless it was put off again meanwhile.
    ///
    /// - Parameter takenUntil: what ``take(now:until:limit:)`` was given.
    package func remove(_ items: [Item], takenUntil: Timestamp) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items)
        try await self.pool.query(Self.delete, users, ids, kinds, .timestamptz(takenUntil.microseconds))
    }

    /// How long what was handed on is remembered, if nobody says how it ended.
    private static let memory: Duration = .seconds(7 * 24 * 3_600)

    /// Remembers mail that is about to be handed to its provider's stream and that no notification's status tells of, until
    /// its delivery has ended.
    package func remember(_ items: [Item], now: Timestamp) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items)
        try await self.pool.query(
            Self.insertHandedOn, users, ids, kinds, .timestamptz((now + Self.memory).microseconds))
    }

    /// Remembers what was taken and is in its provider's stream by now, until its delivery has ended.
    ///
    /// What has ended already is gone, and what was put off again stays so.
    ///
    /// - Parameter takenUntil: what ``take(now:until:limit:)`` was given.
    package func remember(_ items: [Item], takenUntil: Timestamp, now: Timestamp) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items)
        try await self.pool.query(
            Self.markHandedOn, users, ids, kinds, .timestamptz(takenUntil.microseconds),
            .timestamptz((now + Self.memory).microseconds))
    }

    /// Makes due what was handed to a provider's stream since a moment and has not ended, as the
    /// stream may have lost it.
    package func recall(handedOnSince since: Timestamp, now: Timestamp) async throws(PostgresError) {
        try await self.pool.query(
            """
            UPDATE carillon.follow_ups SET due_at = $2, held = false, reason = NULL
            WHERE reason = '\(Self.handedOn)' AND due_at >= $1
            """,
            .timestamptz((since + Self.memory).microseconds), .timestamptz(now.microseconds)
        )
    }

    /// Has everything that waits for the end of quiet hours looked at anew, spread over a span of time.
    ///
    /// For when the rules of zones have changed: what is still in quiet hours is put off to their new end.
    package func reconsiderReleases(now: Timestamp, over span: Duration) async throws(PostgresError) {
        try await self.pool.query(
            """
            UPDATE carillon.follow_ups
            SET due_at = least(due_at, $1::timestamptz + random() * $2 * interval '1 microsecond')
            WHERE \(Self.waitsForQuietEnd) AND NOT held
            """,
            .timestamptz(now.microseconds), .int8(span.inMicroseconds)
        )
    }

    private static func columns(_ items: [Item]) -> (users: PostgresValue, ids: PostgresValue, kinds: PostgresValue) {
        (
            .array(PostgresArray(texts: items.map(\.user))),
            .array(PostgresArray(uuids: items.map(\.notification.halves))),
            .array(PostgresArray(texts: items.map(\.kind.rawValue)))
        )
    }

    /// Whether a row waits for the end of quiet hours: a push that they held back, or one that calls for attention.
    ///
    /// A release by an older program has no reason.
    static let waitsForQuietEnd = "(kind = '\(FollowUp.release.rawValue)' OR reason = '\(Self.quietHours)')"
    private static let quietHours = "quiet_hours"
    /// The reason of a row that waits for nothing: a provider's stream has its delivery, which has not ended.
    static let handedOn = "handed_on"

    /// $1 to $3: users, ids, kinds; $4: how long they are remembered.
    private static let insertHandedOn = """
        INSERT INTO carillon.follow_ups AS f (user_id, notification_id, kind, due_at, reason)
        SELECT DISTINCT h.user_id, h.id, h.kind, $4::timestamptz, '\(Self.handedOn)'
        FROM unnest($1, $2, $3) AS h (user_id, id, kind)
        ON CONFLICT (user_id, notification_id, kind) DO UPDATE
        SET due_at = excluded.due_at, held = false, reason = excluded.reason
        """

    /// $1 to $3: users, ids, kinds; $4: until when they were taken; $5: how long they are remembered.
    private static let markHandedOn = """
        UPDATE carillon.follow_ups f SET due_at = $5, held = false, reason = '\(Self.handedOn)'
        FROM unnest($1, $2, $3) AS h (user_id, notification_id, kind)
        WHERE f.user_id = h.user_id AND f.notification_id = h.notification_id AND f.kind = h.kind
            AND f.due_at IS NOT DISTINCT FROM $4
        """

    /// Forgets what was handed on and has ended: mail with its delivery, a push that calls for attention when a device has it,
    /// as nothing more is sent for attention's sake then, or when it has ended for all of them.
    ///
    /// What quiet hours have put off meanwhile goes on waiting for their end.
    /// $1 to $4: users, ids, kinds, whether a provider accepted it.
    static let end = """
        DELETE FROM carillon.follow_ups q
        USING unnest($1, $2, $3, $4) AS e (user_id, id, kind, is_accepted)
        WHERE q.user_id = e.user_id AND q.notification_id = e.id AND q.kind = e.kind
            AND q.reason IS DISTINCT FROM '\(Self.quietHours)'
            AND (e.kind = '\(FollowUp.email.rawValue)' OR e.is_accepted OR NOT EXISTS (
                SELECT FROM carillon.devices d
                WHERE d.user_id = e.user_id AND d.active AND NOT d.silenced AND NOT EXISTS (
                    SELECT FROM carillon.delivery_attempts a
                    WHERE a.notification_id = e.id AND a.device_id = d.id AND a.kind = 'push'
                        AND \(DeliverySQL.isEnd("a")))))
        """

    /// One notification may come twice, for two of its user's devices.
    ///
    /// $1 to $6: users, ids, kinds, moments, reasons, whether they are critical.
    private static let insert = """
        INSERT INTO carillon.follow_ups AS f (user_id, notification_id, kind, due_at, reason, critical)
        SELECT DISTINCT ON (i.user_id, i.id, i.kind) i.user_id, i.id, i.kind, i.due_at, i.reason, i.critical
        FROM unnest($1, $2, $3, $4, $5, $6) AS i (user_id, id, kind, due_at, reason, critical)
        ORDER BY i.user_id, i.id, i.kind, i.due_at
        ON CONFLICT (user_id, notification_id, kind) DO UPDATE
        SET due_at = CASE f.kind WHEN 'email' THEN least(f.due_at, excluded.due_at) ELSE excluded.due_at END, held = false,
            reason = excluded.reason, critical = excluded.critical
        """

    private static let advance = """
        UPDATE carillon.follow_ups f SET due_at = least(f.due_at, $5)
        FROM unnest($1, $2, $3, $4) AS d (user_id, notification_id, kind, due_at)
        WHERE f.user_id = d.user_id AND f.notification_id = d.notification_id AND f.kind = d.kind AND f.due_at = d.due_at
        """

    private static let markDeferred = """
        UPDATE carillon.notifications n SET status = 'deferred', status_reason = d.reason
        FROM unnest($1, $2, $3) AS d (user_id, id, reason)
        WHERE \(StoreSQL.isNamed(by: "d")) AND n.status IN ('pending', 'deferred')
        """

    /// $1 to $4: users, ids, moments, reasons; $5: now.
    private static let noteDeferred = """
        INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, provider, kind, attempt, outcome, reason,
            duration_ms)
        SELECT $5::timestamptz, d.user_id, d.id, '\(AuditStep.provider)', '\(AuditStep.kind)', 0,
            '\(AuditStep.deferred.rawValue)', d.reason,
            greatest(0, least(2147483647, extract(epoch FROM d.due_at - $5::timestamptz) * 1000))::int4
        FROM unnest($1, $2, $3, $4) AS d (user_id, id, due_at, reason)
        """

    /// $1: now, $2: when it comes up again, $3: how many rows.
    ///
    /// One takes at a time, so that no two wait for each other's rows crosswise, or share a user. Users whose rows are not
    /// all among the first $3 wait for the next time, but for the first one.
    private static let takeDue = """
        WITH turn AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(\(AdvisoryLock.followUps)) AS is_mine),
        due AS MATERIALIZED (
            SELECT d.user_id, row_number() OVER (ORDER BY min(d.rank), min(d.due_at), d.user_id) AS turn
            FROM (
                (
                    SELECT f.user_id, f.due_at, 0 AS rank FROM carillon.follow_ups f
                    WHERE f.critical AND f.due_at <= $1 AND (SELECT is_mine FROM turn)
                    ORDER BY f.due_at LIMIT ($3 + 1) / 2
                )
                UNION ALL
                (
                    SELECT f.user_id, f.due_at, 1 AS rank FROM carillon.follow_ups f
                    WHERE f.due_at <= $1 AND (SELECT is_mine FROM turn) ORDER BY f.due_at LIMIT $3
                )
            ) d
            GROUP BY d.user_id
        ),
        placed AS MATERIALIZED (
            SELECT r.place_on_disk, d.turn, row_number() OVER (ORDER BY d.turn, r.notification_id, r.kind) AS place
            FROM due d CROSS JOIN LATERAL (
                SELECT f.ctid AS place_on_disk, f.notification_id, f.kind FROM carillon.follow_ups f
                WHERE f.user_id = d.user_id AND f.due_at <= $1
                ORDER BY f.notification_id, f.kind LIMIT \(Self.userLimit)
            ) r
        ),
        chosen AS MATERIALIZED (
            SELECT p.place_on_disk FROM (SELECT p.*, max(place) OVER (PARTITION BY turn) AS last FROM placed p) p
            WHERE p.last <= $3 OR p.turn = 1
        ),
        taken AS (
            UPDATE carillon.follow_ups f SET due_at = $2, held = true
            WHERE f.ctid = ANY (ARRAY (SELECT place_on_disk FROM chosen)) AND f.due_at <= $1
            RETURNING f.user_id, f.notification_id, f.kind, f.reason
        )
        SELECT t.user_id, t.notification_id, t.kind, coalesce(b.unread, 0)::int4, n.replaced_by IS NOT NULL,
            CASE WHEN t.kind = '\(FollowUp.attention.rawValue)' THEN EXISTS (
                SELECT FROM carillon.delivery_attempts a
                WHERE a.notification_id = t.notification_id AND a.outcome = 'accepted' AND a.provider <> 'email'
            ) ELSE false END,
            (t.reason = '\(Self.handedOn)') IS TRUE,
            \(NotificationColumns.list)
        FROM taken t
        LEFT JOIN carillon.notifications n ON n.user_id = t.user_id AND n.id = t.notification_id
        LEFT JOIN carillon.inboxes b ON b.user_id = t.user_id
        ORDER BY t.user_id COLLATE "C", t.notification_id
        """

    /// The moment is compared such that no index serves for it: all that was taken has the same, and each would be compared
    /// with each.
    package static let delete = """
        DELETE FROM carillon.follow_ups f USING unnest($1, $2, $3) AS d (user_id, notification_id, kind)
        WHERE f.user_id = d.user_id AND f.notification_id = d.notification_id AND f.kind = d.kind
            AND f.due_at IS NOT DISTINCT FROM $4
        """
}
