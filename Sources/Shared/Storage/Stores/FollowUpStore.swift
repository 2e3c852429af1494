// Carillon · FollowUpStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Postponed work, in PostgreSQL so that it survives every process and Redis.
package struct FollowUpStore: Sendable {
    /// A postponed step of a notification.
    package struct Item: Sendable, Equatable {
        package let user: String
        let notification: NotificationID
        package let kind: FollowUp

        package init(user: String, notification: NotificationID, kind: FollowUp) {
            self.user = user
            self.notification = notification
            self.kind = kind
        }
    }

    /// A due follow-up and its notification's current facts.
    package struct Due: Sendable {
        package let item: Item
        /// Whether its delivery is in the provider's stream, so that nothing is left to do; false
        /// if Redis has lost the stream since.
        package let wasHandedOn: Bool
        /// Nil if the notification is gone.
        package let facts: Facts?
    }

    /// The facts of a notification for a new decision.
    package struct Facts: Sendable {
        package let notification: Notification
        package let unread: Int32
        package let isReplaced: Bool
        /// Whether a push provider accepted it for any device.
        ///
        /// False for other kinds than ``FollowUp/attention``, because the lookup reads the attempts
        /// of all days.
        package let wasAccepted: Bool
        /// Whether its job was cancelled, even if the notification is not withdrawn yet.
        package let isCancelled: Bool
    }

    /// The advisory lock of the dispatcher that claims due follow-ups.
    private static let lock: Int64 = 0x4341_5249_0001

    let pool: PostgresPool

    /// Postpones items and replaces their previous moments; notifications that wait for a release
    /// become `deferred`.
    ///
    /// An e-mail keeps its first moment. The audit records a postponement by quiet hours, because
    /// the follow-up's row is deleted at its release.
    ///
    /// - Parameters:
    ///   - critical: the notifications that come first when they are due.
    ///   - recorded: the notifications whose postponement the audit has already.
    package func postpone(
        _ items: [(item: Item, due: Timestamp, reason: String)],
        critical: Set<NotificationID> = [],
        recorded: Set<NotificationID> = [],
        now: Timestamp
    ) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items.map(\.item))
        let urgencies = items.map { critical.contains($0.item.notification) }
        var statements = [
            PostgresStatement(
                Self.insert,
                [
                    users, ids, kinds, .timestamps(items.map(\.due)), .texts(items.map(\.reason)), .bools(urgencies),
                ])
        ]
        let releases = items.filter { $0.item.kind == .release }
        if !releases.isEmpty {
            let (users, ids, _) = Self.columns(releases.map(\.item))
            statements.append(
                PostgresStatement(Self.markDeferred, [users, ids, .texts(releases.map(\.reason))])
            )
        }
        let held = items.filter {
            ($0.item.kind == .release || $0.reason == Self.quietHours) && !recorded.contains($0.item.notification)
        }
        if !held.isEmpty {
            let (users, ids, _) = Self.columns(held.map(\.item))
            statements.append(
                PostgresStatement(
                    Self.noteDeferred,
                    [users, ids, .timestamps(held.map(\.due)), .texts(held.map(\.reason)), .timestamp(now)])
            )
        }
        try await self.pool.run(statements)
    }

    /// Returns the notifications whose last postponement by quiet hours in the audit ends at the
    /// given moment.
    ///
    /// A release counts only if its notification is `deferred`, because the audit does not tell a
    /// release from an attention call.
    package func recorded(
        _ postponements: [(item: Item, due: Timestamp)],
        now: Timestamp
    ) async throws(PostgresError) -> Set<NotificationID> {
        guard !postponements.isEmpty else { return [] }
        let (users, ids, kinds) = Self.columns(postponements.map(\.item))
        let result = try await self.pool.query(
            Self.findRecorded, users, ids, kinds, .timestamps(postponements.map(\.due)), .timestamp(now))
        return Set(try result.ids())
    }

    /// Makes items due now if they still wait for the given moment.
    package func makeDue(_ items: [(item: Item, due: Timestamp)], now: Timestamp) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items.map(\.item))
        try await self.pool.query(
            Self.advance, users, ids, kinds, .timestamps(items.map(\.due)), .timestamp(now))
    }

    /// The number of follow-ups of one user that are claimed at once.
    package static let userLimit = 512

    /// Claims due follow-ups; they are due again at `until` unless they are removed.
    ///
    /// A claim has all due follow-ups of a user, up to the oldest ``userLimit``. Only one caller at
    /// a time gets any. Users with a critical notification come first, for up to half of the limit,
    /// then the users who have waited longest.
    ///
    /// - Parameter limit: the number to claim; exceeded, up to ``userLimit``, if the first user
    ///   alone has more.
    package func claim(now: Timestamp, until: Timestamp, limit: Int) async throws(PostgresError) -> [Due] {
        let result = try await self.pool.query(
            Self.claimDue, .timestamp(now), .timestamp(until), .int4(clamping: limit)
        )
        var due: [Due] = []
        for row in result {
            guard let kind = FollowUp(rawValue: try row.text(2)) else { continue }
            let item = Item(user: try row.text(0), notification: try row.id(1), kind: kind)
            let wasHandedOn = try row.bool(6)
            guard !row.isNull(8) else {
                due.append(Due(item: item, wasHandedOn: wasHandedOn, facts: nil))
                continue
            }
            due.append(
                Due(
                    item: item,
                    wasHandedOn: wasHandedOn,
                    facts: Facts(
                        notification: try NotificationColumns.all.read(row, at: 8),
                        unread: try row.int4(3),
                        isReplaced: try row.bool(4),
                        wasAccepted: try row.bool(5),
                        isCancelled: try row.bool(7)
                    )
                )
            )
        }
        return due
    }

    /// Removes finished follow-ups unless they were postponed again.
    ///
    /// - Parameter claimedUntil: the `until` passed to ``claim(now:until:limit:)``.
    package func remove(_ items: [Item], claimedUntil: Timestamp) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items)
        try await self.pool.query(Self.delete, users, ids, kinds, .timestamp(claimedUntil))
    }

    /// How long an enqueued follow-up is remembered without news of its end.
    private static let memory: Duration = .seconds(7 * 24 * 3_600)
    /// The largest assumed difference between the clocks of dispatchers.
    private static let skew: Duration = .seconds(15)

    /// Stores mail before it is enqueued, because no notification status shows queued mail.
    ///
    /// The mail is due at `until` if its dispatcher dies before it calls
    /// ``remember(_:claimedUntil:now:)``.
    package func expect(_ items: [Item], until: Timestamp) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items)
        try await self.pool.query(Self.insertExpected, users, ids, kinds, .timestamp(until))
    }

    /// Remembers follow-ups that are in their provider's stream, until their deliveries end.
    ///
    /// Does not change follow-ups that were removed or postponed again meanwhile.
    ///
    /// - Parameter claimedUntil: the `until` passed to ``claim(now:until:limit:)`` or
    ///   ``expect(_:until:)``.
    package func remember(_ items: [Item], claimedUntil: Timestamp, now: Timestamp) async throws(PostgresError) {
        guard !items.isEmpty else { return }
        let (users, ids, kinds) = Self.columns(items)
        try await self.pool.query(
            Self.markHandedOn, users, ids, kinds, .timestamp(claimedUntil), .timestamp(now + Self.memory))
    }

    /// Makes mail due that ``expect(_:until:)`` has stored, because Redis may have lost it.
    package func recallExpected(now: Timestamp) async throws(PostgresError) {
        // Its rows are due soon, so the index on the time finds them.
        try await self.pool.query(
            """
            UPDATE carillon.follow_ups SET due_at = $1, was_due_at = NULL, reason = NULL
            WHERE reason = '\(Self.expected)' AND due_at <= $1 + interval '10 minutes'
            """,
            .timestamp(now))
    }

    /// Makes a page of unfinished follow-ups due that were enqueued between two moments, because
    /// Redis may have lost them.
    ///
    /// - Returns: the moment at which the next page begins; nil after the last page.
    package func recall(
        handedOnSince since: Timestamp,
        until: Timestamp,
        now: Timestamp,
        limit: Int32 = FollowUpStore.pageSize
    ) async throws(PostgresError) -> Timestamp? {
        let result = try await self.pool.query(
            Self.recallPage, .timestamp(since + Self.memory), .timestamp(now), .int4(limit),
            .timestamp(until + Self.memory + Self.skew))
        guard let row = result.first else { return nil }
        return try row.timestamp(0) - Self.memory
    }

    /// Makes the follow-ups that wait for the end of quiet hours due again, spread over a span; all
    /// follow-ups of a user are due at the same time.
    ///
    /// For changed time zone rules: follow-ups that are still in quiet hours are postponed to the
    /// new end. Goes through all follow-ups in pages, as there may be millions.
    ///
    /// - Parameters:
    ///   - zones: the zones with the same rules as before, whose users' follow-ups stay.
    ///   - fallback: the zone of users who have set none.
    package func reconsiderReleases(
        now: Timestamp,
        over span: Duration,
        except zones: Set<String> = [],
        fallback: String = ""
    ) async throws(PostgresError) {
        var last = (user: "", id: NotificationID.least, kind: "")
        while true {
            let result = try await self.pool.query(
                Self.reconsiderPage, .timestamp(now), .int8(span.inMicroseconds), .text(last.user),
                .id(last.id), .text(last.kind), .int4(Self.pageSize), .texts(Array(zones)), .text(fallback))
            guard let row = result.first else { return }
            last = (try row.text(0), try row.id(1), try row.text(2))
        }
    }

    /// The rows that one statement changes.
    package static let pageSize: Int32 = 5_000

    private static func columns(_ items: [Item]) -> (users: PostgresValue, ids: PostgresValue, kinds: PostgresValue) {
        (
            .texts(items.map(\.user)), .ids(items.map(\.notification)), .texts(items.map(\.kind.rawValue))
        )
    }

    /// Whether a row waits for the end of quiet hours: a postponed push or attention call.
    static let waitsForQuietEnd = "(kind = '\(FollowUp.release.rawValue)' OR reason = '\(Self.quietHours)')"
    private static let quietHours = "quiet_hours"
    /// The reason of a row whose delivery is in a provider's stream and has not ended.
    static let handedOn = "handed_on"
    /// The reason of a row whose delivery is about to be handed to that stream.
    private static let expected = "expected"
    /// Whether a provider may have a row's delivery or soon have it.
    static let isUnderWay = "(reason IN ('\(Self.handedOn)', '\(Self.expected)')) IS TRUE"

    /// $1 to $3: users, ids, kinds; $4: when they are due.
    private static let insertExpected = """
        INSERT INTO carillon.follow_ups AS f (user_id, notification_id, kind, due_at, reason)
        SELECT DISTINCT h.user_id, h.id, h.kind, $4::timestamptz, '\(Self.expected)'
        FROM unnest($1, $2, $3) AS h (user_id, id, kind)
        WHERE \(NotificationSQL.exists("h"))
        ON CONFLICT (user_id, notification_id, kind) DO UPDATE
        SET due_at = excluded.due_at, was_due_at = NULL, reason = excluded.reason
        """

    /// $1 to $3: users, ids, kinds; $4: the end of the claim; $5: how long they are
    /// remembered.
    private static let markHandedOn = """
        UPDATE carillon.follow_ups f SET due_at = $5, was_due_at = NULL, reason = '\(Self.handedOn)'
        FROM unnest($1, $2, $3) AS h (user_id, notification_id, kind)
        WHERE f.user_id = h.user_id AND f.notification_id = h.notification_id AND f.kind = h.kind
            AND f.due_at IS NOT DISTINCT FROM $4
        """

    /// Makes the rows of a page due, and returns the moment of its last row if the page is full.
    ///
    /// The changed rows drop out, so the next page may begin at that moment. Rows that are enqueued
    /// again get a later moment than $4, so no page sees them twice.
    ///
    /// $1: the first moment, $2: now, $3: limit, $4: the last moment.
    private static let recallPage = """
        WITH page AS MATERIALIZED (
            SELECT f.user_id, f.notification_id, f.kind, f.due_at FROM carillon.follow_ups f
            WHERE f.reason = '\(Self.handedOn)' AND f.due_at BETWEEN $1 AND $4 ORDER BY f.due_at LIMIT $3
        ),
        changed AS (
            UPDATE carillon.follow_ups f SET due_at = $2, was_due_at = NULL, reason = NULL
            FROM page p
            WHERE f.user_id = p.user_id AND f.notification_id = p.notification_id AND f.kind = p.kind
                AND f.reason = '\(Self.handedOn)'
        )
        SELECT max(p.due_at) FROM page p HAVING count(*) = $3
        """

    /// Deletes finished follow-ups that were enqueued.
    ///
    /// Mail ends with its delivery. An attention call ends once a provider accepted it for one
    /// device, because no other device gets it then, or once its deliveries to all devices have
    /// ended. Follow-ups that quiet hours have postponed since keep waiting.
    ///
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
                        AND \(NotificationState.endsDelivery("a")))))
        """

    /// Stores follow-ups; a notification may appear twice, for two devices of its user.
    ///
    /// $1 to $6: users, ids, kinds, moments, reasons, whether they are critical.
    private static let insert = """
        INSERT INTO carillon.follow_ups AS f (user_id, notification_id, kind, due_at, reason, critical)
        SELECT DISTINCT ON (i.user_id, i.id, i.kind) i.user_id, i.id, i.kind, i.due_at, i.reason, i.critical
        FROM unnest($1, $2, $3, $4, $5, $6) AS i (user_id, id, kind, due_at, reason, critical)
        WHERE \(NotificationSQL.exists("i"))
        ORDER BY i.user_id, i.id, i.kind, i.due_at
        ON CONFLICT (user_id, notification_id, kind) DO UPDATE
        SET due_at = CASE f.kind WHEN 'email' THEN least(f.due_at, excluded.due_at) ELSE excluded.due_at END,
            was_due_at = NULL, reason = excluded.reason, critical = excluded.critical
        """

    private static let advance = """
        UPDATE carillon.follow_ups f SET due_at = least(f.due_at, $5)
        FROM unnest($1, $2, $3, $4) AS d (user_id, notification_id, kind, due_at)
        WHERE f.user_id = d.user_id AND f.notification_id = d.notification_id AND f.kind = d.kind AND f.due_at = d.due_at
        """

    /// Returns the last row of the page; none after the last page.
    ///
    /// $1: now, $2: span in microseconds, $3 to $5: the last row of the previous page, $6: limit,
    /// $7: zones to leave out, $8: the zone of users who have set none.
    private static let reconsiderPage = """
        WITH page AS MATERIALIZED (
            SELECT f.user_id AS owner, f.notification_id AS id, f.kind AS step FROM carillon.follow_ups f
            WHERE (f.user_id, f.notification_id, f.kind) > ($3, $4, $5)
            ORDER BY f.user_id, f.notification_id, f.kind LIMIT $6
        ),
        changed AS (
            UPDATE carillon.follow_ups f
            SET due_at = least(f.due_at, $1::timestamptz
                + (hashtextextended(f.user_id, 0) & 1023) / 1024.0 * $2 * interval '1 microsecond')
            FROM page p
            WHERE f.user_id = p.owner AND f.notification_id = p.id AND f.kind = p.step
                AND \(Self.waitsForQuietEnd) AND f.was_due_at IS NULL
                AND coalesce((SELECT s.zone FROM carillon.user_settings s WHERE s.user_id = p.owner), $8) <> ALL ($7)
        )
        SELECT p.owner, p.id, p.step FROM page p ORDER BY p.owner DESC, p.id DESC, p.step DESC LIMIT 1
        """

    private static let markDeferred = """
        UPDATE carillon.notifications n SET status = 'deferred', status_reason = d.reason
        FROM unnest($1, $2, $3) AS d (user_id, id, reason)
        WHERE \(NotificationSQL.isNamed(by: "d")) AND n.status IN ('pending', 'deferred')
        """

    /// $1 to $4: users, ids, moments, reasons; $5: now.
    private static let noteDeferred = """
        INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, provider, kind, attempt, outcome, reason,
            duration_ms)
        SELECT $5::timestamptz, d.user_id, d.id, '\(AuditStep.provider)', '\(AuditStep.kind)', 0,
            '\(AuditStep.deferred.rawValue)', d.reason,
            greatest(0, least(2147483647, extract(epoch FROM d.due_at - $5::timestamptz) * 1000))::int4
        FROM unnest($1, $2, $3, $4) AS d (user_id, id, due_at, reason)
        WHERE \(NotificationSQL.exists("d"))
        """

    /// Finds the postponements that the audit has.
    ///
    /// An aggregate finds the last row, because ORDER BY with LIMIT could scan the index on the
    /// time. The audit has lengths in whole milliseconds.
    ///
    /// $1 to $4: users, ids, kinds, moments; $5: now.
    private static let findRecorded = """
        SELECT d.id FROM unnest($1, $2, $3, $4) AS d (user_id, id, kind, due_at)
        CROSS JOIN LATERAL (
            SELECT (array_agg(a.at + a.duration_ms * interval '1 millisecond' ORDER BY a.at DESC))[1] AS until
            FROM carillon.delivery_attempts a
            WHERE a.notification_id = d.id AND a.kind = '\(AuditStep.kind)'
                AND a.outcome = '\(AuditStep.deferred.rawValue)' AND a.at >= $5::timestamptz - interval '7 days'
        ) latest
        WHERE latest.until BETWEEN d.due_at - interval '1 millisecond' AND d.due_at + interval '1 millisecond'
            AND (d.kind <> '\(FollowUp.release.rawValue)' OR EXISTS (
                SELECT FROM carillon.notifications n
                WHERE \(NotificationSQL.isNamed(by: "d")) AND n.status = 'deferred'))
        """

    /// Claims due follow-ups.
    ///
    /// One caller at a time, so that no two callers deadlock or share a user. Users whose rows are
    /// not all among the first $3 wait, except the first user.
    ///
    /// $1: now, $2: end of the claim, $3: number of rows.
    private static let claimDue = """
        WITH turn AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(\(Self.lock)) AS is_mine),
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
        numbered AS MATERIALIZED (
            SELECT r.row_id, d.turn, row_number() OVER (ORDER BY d.turn, r.notification_id, r.kind) AS number
            FROM due d CROSS JOIN LATERAL (
                SELECT f.ctid AS row_id, f.notification_id, f.kind FROM carillon.follow_ups f
                WHERE f.user_id = d.user_id AND f.due_at <= $1
                ORDER BY f.notification_id, f.kind LIMIT \(Self.userLimit)
            ) r
        ),
        chosen AS MATERIALIZED (
            SELECT p.row_id FROM (SELECT p.*, max(number) OVER (PARTITION BY turn) AS last FROM numbered p) p
            WHERE p.last <= $3 OR p.turn = 1
        ),
        claimed AS (
            UPDATE carillon.follow_ups f SET due_at = $2, was_due_at = coalesce(f.was_due_at, f.due_at)
            WHERE f.ctid = ANY (ARRAY (SELECT row_id FROM chosen)) AND f.due_at <= $1
            RETURNING f.user_id, f.notification_id, f.kind, f.reason
        )
        SELECT c.user_id, c.notification_id, c.kind, coalesce(b.unread, 0)::int4, n.replaced_by IS NOT NULL,
            CASE WHEN c.kind = '\(FollowUp.attention.rawValue)' THEN EXISTS (
                SELECT FROM carillon.delivery_attempts a
                WHERE a.notification_id = c.notification_id AND a.outcome = 'accepted' AND a.provider <> 'email'
                    AND a.at >= n.stored_at - interval '1 day'
            ) ELSE false END,
            (c.reason = '\(Self.handedOn)') IS TRUE,
            EXISTS (SELECT FROM carillon.cancellations) AND \(CancellationSQL.isCancelled("n")),
            \(NotificationColumns.list)
        FROM claimed c
        LEFT JOIN carillon.notifications n ON n.user_id = c.user_id AND n.id = c.notification_id
        LEFT JOIN carillon.inboxes b ON b.user_id = c.user_id
        ORDER BY c.user_id COLLATE "C", c.notification_id
        """

    /// `IS NOT DISTINCT FROM` keeps the comparison of the moment off its index: all claimed rows
    /// have the same moment, so each would be compared with every other.
    static let delete = """
        DELETE FROM carillon.follow_ups f USING unnest($1, $2, $3) AS d (user_id, notification_id, kind)
        WHERE f.user_id = d.user_id AND f.notification_id = d.notification_id AND f.kind = d.kind
            AND f.due_at IS NOT DISTINCT FROM $4
        """

    /// Removes finished follow-ups, and fails with ``NotificationSQL/notStored`` unless the claim
    /// still has all of them.
    ///
    /// Another dispatcher may have claimed one since, or its user was erased.
    ///
    /// $1 to $4: as in ``delete``, no follow-up twice.
    static let deleteClaimed = """
        WITH finished AS (\(Self.delete) RETURNING 1)
        SELECT 1 / (count(*) = cardinality($2))::int FROM finished
        """
}
