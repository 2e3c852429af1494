// Carillon · CancellationStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Jobs that were called off, and how the notifications of a job stand.
package struct CancellationStore: Sendable {
    /// How a job is named: by its own id, or by its stream entry.
    package struct Name: Sendable {
        package let org: String
        package let id: String
        /// The entries that it may mean, each with its stream; empty if it is no entry's.
        package let entries: [String]
        /// When such an entry was added.
        package let addedAt: Timestamp

        package init(org: String, id: String, entries: [String] = [], addedAt: Timestamp = Timestamp(microseconds: 0)) {
            self.org = org
            self.id = id
            self.entries = entries
            self.addedAt = addedAt
        }

        /// The ids that its notifications may have: its own, or the entries, which jobs without an id have for one that wait
        /// for their moment.
        package var ids: [String] { self.entries.contains(self.id) ? self.entries : [self.id] + self.entries }
    }

    /// A notification that was cancelled now.
    package struct Withdrawal: Sendable, Equatable {
        package let label: NotificationLabel
        /// The inbox version of its deletion, and the unread count after it; nil if it was not listed.
        package let place: Place?

        package var user: String { self.label.user }
        package var id: NotificationID { self.label.id }

        /// How an inbox stands after a withdrawal.
        package struct Place: Sendable, Equatable {
            package let version: Int64
            package let unread: Int32
        }
    }

    /// How many notifications of a job there are of each status.
    package struct Tally: Sendable, Equatable {
        package var counts: [NotificationStatus: Int64] = [:]
        /// Of those that are cancelled, how many may be with a provider.
        package var inFlight: Int64 = 0
        /// Of each status, how many have reached nobody and can still be withdrawn; empty unless they were asked for.
        package var open: [NotificationStatus: Int64] = [:]
        /// How far the notifications got; what digests hold back is none yet, and not among them.
        package var reach = Reach()

        package init() {}

        package var total: Int64 { self.counts.values.reduce(0, +) }
    }

    /// Rows of an entry are looked for where they were stored this long after it was added.
    private static let longestWait: Duration = .seconds(3_600)
    /// Clocks of Redis and PostgreSQL may differ by this.
    private static let skew: Duration = .seconds(60)
    /// How many users an entry may name.
    private static let largestEntry = JobLimits.users

    let pool: PostgresPool

    /// Records a cancellation; when this returns, whatever is not stored by now will be stored as cancelled.
    package func record(_ name: Name, at: Timestamp) async throws(PostgresError) {
        try await self.pool.query(
            CancellationSQL.record, .text(name.org), .array(PostgresArray(texts: name.ids)),
            .timestamptz(at.microseconds)
        )
        try await self.pool.run([CancellationSQL.barrier])
    }

    /// When a job was cancelled; nil if it was not.
    package func cancelledAt(_ name: Name) async throws(PostgresError) -> Timestamp? {
        let result = try await self.pool.query(
            "SELECT max(at) FROM carillon.cancellations WHERE org_id = $1 AND job_id = ANY($2)", .text(name.org),
            .array(PostgresArray(texts: name.ids))
        )
        guard let row = result.first, !row.isNull(0) else { return nil }
        return Timestamp(microseconds: try row.timestamptz(0))
    }

    /// Forgets cancellations from before a moment.
    package func forget(before: Timestamp) async throws(PostgresError) {
        try await self.pool.query(
            "DELETE FROM carillon.cancellations WHERE at < $1", .timestamptz(before.microseconds)
        )
    }

    // MARK: The notifications of a job

    /// A page of the notifications of the job with this id, by user; begins after `user`.
    package func page(
        org: String,
        job: String,
        after user: String,
        limit: Int
    ) async throws(PostgresError) -> [(user: String, id: NotificationID)] {
        try Self.keys(
            try await self.pool.query(
                CancellationSQL.page, .text(org), .text(job), .text(user), .int4(Int32(clamping: limit))
            )
        )
    }

    /// The notifications of the entry that a job is named by.
    package func ofEntry(_ name: Name) async throws(PostgresError) -> [(user: String, id: NotificationID)] {
        guard !name.entries.isEmpty else { return [] }
        return try Self.keys(
            try await self.pool.run([
                PostgresStatement(
                    CancellationSQL.ofEntry, Self.entryParameters(name) + [.int4(Int32(Self.largestEntry))]
                )
            ]).first
        )
    }

    /// Ends those that their users have read or opened before anything else had reached them; they
    /// are not cancelled.
    ///
    /// - Returns: those that have ended by it.
    package func endSeen(_ keys: [(user: String, id: NotificationID)]) async throws(PostgresError)
        -> [EndedNotification]
    {
        guard !keys.isEmpty else { return [] }
        return try EndedNotification.read(
            try await self.pool.query(
                CancellationSQL.endSeen, .array(PostgresArray(texts: keys.map(\.user))),
                .array(PostgresArray(uuids: keys.map(\.id.halves)))))
    }

    /// Cancels those that nobody has got yet, as one transaction.
    ///
    /// - Parameter keys: no user twice.
    package func cancel(
        _ keys: [(user: String, id: NotificationID)],
        at: Timestamp
    ) async throws(PostgresError) -> [Withdrawal] {
        guard !keys.isEmpty else { return [] }
        let users = PostgresArray(texts: keys.map(\.user))
        let ids = PostgresArray(uuids: keys.map(\.id.halves))
        let results = try await self.pool.run([
            PostgresStatement(StoreSQL.lockInboxes, [.array(users)]),
            PostgresStatement(CancellationSQL.cancel, [.array(users), .array(ids), .timestamptz(at.microseconds)]),
        ])
        var withdrawals: [Withdrawal] = []
        for row in results.last.map({ Array($0) }) ?? [] {
            var place: Withdrawal.Place?
            let first = LabelColumns.count
            if !row.isNull(first) {
                place = Withdrawal.Place(version: try row.int8(first), unread: try row.int4(first + 1))
            }
            withdrawals.append(Withdrawal(label: try LabelColumns.read(row), place: place))
        }
        return withdrawals
    }

    /// How the notifications of a job stand, and what digests hold back of it: `deferred` until its summary is `sent`.
    ///
    /// - Parameter tellsOpen: whether those with one of the job's ids that can still be withdrawn are counted beside.
    package func tally(_ name: Name, tellsOpen: Bool = false) async throws(PostgresError) -> Tally {
        var tally = Tally()
        let sql = tellsOpen ? CancellationSQL.tallyWithOpen : CancellationSQL.tally
        let ids = PostgresValue.array(PostgresArray(texts: name.ids))
        try tally.add(try await self.pool.query(sql, .text(name.org), ids), hasReach: true)
        try tally.add(try await self.pool.query(CancellationSQL.tallyHeld, .text(name.org), ids), hasReach: false)
        guard tally.total == 0, !name.entries.isEmpty else { return tally }
        let statement = PostgresStatement(CancellationSQL.tallyOfEntry, Self.entryParameters(name))
        if let result = try await self.pool.run([statement]).first { try tally.add(result, hasReach: true) }
        let entries = PostgresValue.array(PostgresArray(texts: name.entries))
        try tally.add(
            try await self.pool.query(CancellationSQL.tallyHeldOfEntry, .text(name.org), entries), hasReach: false)
        return tally
    }

    private static func entryParameters(_ name: Name) -> [PostgresValue] {
        let from = Timestamp(microseconds: name.addedAt.microseconds - Self.skew.inMicroseconds)
        let until = name.addedAt + Self.longestWait
        return [
            .text(name.org), .array(PostgresArray(texts: name.entries)), .timestamptz(from.microseconds),
            .timestamptz(until.microseconds),
        ]
    }

    private static func keys(_ result: PostgresResult?) throws(PostgresError) -> [(user: String, id: NotificationID)] {
        var keys: [(user: String, id: NotificationID)] = []
        guard let result else { return [] }
        for row in result { keys.append((try row.text(0), NotificationID(try row.uuid(1)))) }
        return keys
    }
}

extension CancellationStore.Tally {
    /// - Parameter hasReach: whether the rows tell how far the notifications got; the count is the
    /// first of that then.
    fileprivate mutating func add(_ result: PostgresResult, hasReach: Bool) throws(PostgresError) {
        for row in result {
            let count = try row.int8(3)
            let status = NotificationStatus(rawValue: try row.text(0)) ?? .pending
            self.counts[status, default: 0] += count
            if try row.bool(1) { self.inFlight += count }
            if try row.bool(2) { self.open[status, default: 0] += count }
            guard hasReach else { continue }
            self.reach.add(try Reach(row, at: 3))
        }
    }
}

/// The statements of ``CancellationStore``, and what those of other stores ask about cancellations.
enum CancellationSQL {
    /// Whether the job of a row was cancelled, by its id, its entry, or its entry's id alone.
    ///
    /// - Parameter row: what has `org_id`, `job_id` and `job_entry`.
    static func isCancelled(_ row: String) -> String {
        """
        (SELECT true FROM carillon.cancellations c WHERE c.org_id = \(row).org_id
            AND c.job_id = ANY (ARRAY[\(row).job_id, \(row).job_entry, split_part(\(row).job_entry, '/', 2)]) LIMIT 1)
            IS NOT NULL
        """
    }

    /// "cancel" in ASCII.
    private static let lock: Int64 = 0x6361_6E63_656C

    /// What every transaction begins with that stores notifications of jobs.
    ///
    /// A cancellation is committed first; ``barrier`` then waits for those that began without seeing it, so that what the
    /// search finds after it is all there is.
    static let beforeStoring = PostgresStatement("SELECT pg_advisory_xact_lock_shared(\(Self.lock))")

    /// Returns when every transaction has ended that holds the lock; holds back none that begin later for longer.
    static let barrier = PostgresStatement("SELECT pg_advisory_xact_lock(\(Self.lock))")

    /// A cancellation that is repeated begins its 7 days anew.
    ///
    /// $1: organisation, $2: the names, $3: when.
    static let record = """
        INSERT INTO carillon.cancellations (org_id, job_id, at) SELECT $1, n.name, $3 FROM unnest($2) AS n (name)
        ON CONFLICT (org_id, job_id) DO UPDATE SET at = EXCLUDED.at
        """

    /// $1: organisation, $2: the job's id, $3: after this user, $4: limit.
    static let page = """
        SELECT n.user_id, n.id FROM carillon.notifications n
        WHERE n.org_id = $1 AND n.job_id = $2 AND n.user_id > $3 ORDER BY n.user_id LIMIT $4
        """

    /// $1: organisation, $2: entries with their streams, $3, $4: between which moments they were stored, $5: limit.
    static let ofEntry = """
        SELECT n.user_id, n.id FROM carillon.notifications n
        WHERE n.stored_at >= $3 AND n.stored_at < $4 AND n.org_id = $1 AND n.job_entry = ANY($2) LIMIT $5
        """

    /// Whether a notification has reached nobody, so that it can be withdrawn.
    ///
    /// A notification that was read or opened has reached its user, whatever its status. What a
    /// user who was offline has unread in the inbox has reached nobody, nor has what no socket
    /// proved, unless its mail has gone out. A failed one counts if a device of it still waits for
    /// its next try.
    private static let isOpen = """
        (n.read_at IS NULL AND n.opened_at IS NULL AND (n.status IN ('pending', 'deferred')
            OR n.status = 'sent' AND n.sent_via IN ('inbox', 'socket')
                AND NOT ((n.channels & \(Channels.email.rawValue)) <> 0 AND EXISTS (
                    SELECT FROM carillon.delivery_attempts m
                    WHERE m.notification_id = n.id AND m.kind = 'email' AND m.outcome = 'accepted'))
            OR n.status = 'failed' AND EXISTS (
                SELECT FROM carillon.delivery_attempts a WHERE a.notification_id = n.id AND a.outcome = 'retry'
                    AND NOT EXISTS (
                        SELECT FROM carillon.delivery_attempts l WHERE l.notification_id = n.id
                            AND l.device_id = a.device_id AND l.at >= a.at AND l.outcome <> 'retry'))))
        """

    /// Whether a mail may be under way, which the status of what is in an inbox does not tell: there is an address, the mail's
    /// turn has come or is near, and no attempt has ended it.
    static func mayBeMailed(at moment: String) -> String {
        """
        ((n.channels & \(Channels.email.rawValue)) <> 0
            AND EXISTS (
                SELECT FROM carillon.user_settings s
                WHERE s.user_id = n.user_id AND s.email IS NOT NULL AND s.email_invalid_at IS NULL)
            AND NOT EXISTS (
                SELECT FROM carillon.follow_ups f
                WHERE f.user_id = n.user_id AND f.notification_id = n.id AND f.kind = '\(FollowUp.email.rawValue)'
                    AND f.due_at > \(moment) + interval '1 minute'
                    AND f.reason IS DISTINCT FROM '\(FollowUpStore.handedOn)')
            AND NOT EXISTS (
                SELECT FROM carillon.delivery_attempts a
                WHERE a.notification_id = n.id AND a.kind = 'email' AND a.outcome <> 'retry'))
        """
    }

    /// Ends what waits for a provider or for its release although its user has read or opened it:
    /// it has reached them.
    ///
    /// $1, $2: users and ids. Rows: the label's columns, status and reason.
    static let endSeen = """
        UPDATE carillon.notifications n
        SET status = 'sent', status_reason = CASE WHEN n.read_at IS NOT NULL THEN 'read' ELSE 'opened' END,
            sent_via = CASE WHEN (n.channels & \(Channels.inApp.rawValue)) <> 0 THEN 'inbox' ELSE n.sent_via END
        FROM unnest($1, $2) AS k (user_id, id)
        WHERE \(StoreSQL.isNamed(by: "k")) AND n.status IN ('pending', 'deferred')
            AND (n.read_at IS NOT NULL OR n.opened_at IS NOT NULL)
        RETURNING \(LabelColumns.list), n.status, n.status_reason
        """

    /// Cancels what nobody has got yet, and takes it out of the inboxes, which are locked by now.
    ///
    /// $1, $2: users and ids, no user twice; $3: when. What waits for a provider or its next try may be there already;
    /// `in_flight` says so until its deliveries settle.
    /// Rows: the label's columns, and of those that were listed version and unread count.
    static let cancel = """
        WITH target AS MATERIALIZED (
            SELECT n.user_id, n.id, n.version > 0 AND n.deleted_at IS NULL AS is_listed, n.read_at IS NULL AS was_unread,
                n.status = 'pending' AND n.status_reason = 'queued' OR n.status = 'failed' OR \(Self.mayBeMailed(at: "$3"))
                    AS may_be_sent
            FROM unnest($1, $2) AS k (user_id, id)
            JOIN carillon.notifications n ON n.user_id = k.user_id AND n.id = k.id
            WHERE \(Self.isOpen)
            FOR UPDATE OF n
        ),
        changed AS (
            UPDATE carillon.notifications n
            SET status = 'cancelled', sent_via = NULL,
                status_reason = CASE WHEN t.may_be_sent THEN 'in_flight' END,
                deleted_at = CASE WHEN t.is_listed THEN $3 ELSE n.deleted_at END,
                version = CASE WHEN t.is_listed THEN \(EpochSQL.version(of: "b")) + 1 ELSE n.version END
            FROM target t LEFT JOIN carillon.inboxes b ON b.user_id = t.user_id
            WHERE n.user_id = t.user_id AND n.id = t.id
            RETURNING \(LabelColumns.list), t.is_listed, t.was_unread
        ),
        raised AS (
            UPDATE carillon.inboxes b
            SET version = \(EpochSQL.version(of: "b")) + 1, total = greatest(b.total - 1, 0),
                unread = greatest(b.unread - c.was_unread::int, 0)
            FROM changed c WHERE c.is_listed AND b.user_id = c.user_id
            RETURNING b.user_id, b.version, b.unread
        )
        SELECT \(LabelColumns.list), r.version, r.unread
        FROM changed n LEFT JOIN raised r ON n.is_listed AND r.user_id = n.user_id
        """

    /// $1: organisation, $2: the job's ids.
    static let tally = Self.tally("n.org_id = $1 AND n.job_id = ANY($2)")

    /// The same, with what can still be withdrawn told apart.
    static let tallyWithOpen = Self.tally("n.org_id = $1 AND n.job_id = ANY($2)", isOpen: Self.isOpen)

    /// $1 to $4: as in ``ofEntry``.
    static let tallyOfEntry = Self.tally(
        "n.stored_at >= $3 AND n.stored_at < $4 AND n.org_id = $1 AND n.job_entry = ANY($2)"
    )

    /// What digests hold back.
    ///
    /// $1: organisation, $2: the job's ids.
    static let tallyHeld = Self.tallyHeld("i.org_id = $1 AND i.job_id = ANY($2)")

    /// The same, by the job's entry.
    ///
    /// $1: organisation, $2: entries with their streams.
    static let tallyHeldOfEntry = Self.tallyHeld("i.org_id = $1 AND x.job_entry = ANY($2)")

    /// Held items by the status that they count as.
    ///
    /// Whoever takes a window holds the lock that ``barrier`` waits for: what is in an open one falls out if its job was
    /// cancelled, and what was taken is with the summary. One that came alone is a notification of its own.
    private static func tallyHeld(_ condition: String) -> String {
        """
        SELECT s.status, false, s.status = 'deferred', count(*) FROM (
            SELECT CASE
                WHEN h.fate = '\(DigestStore.Fate.read.rawValue)' THEN 'suppressed'
                WHEN h.fate IS NOT NULL THEN h.fate
                WHEN d.state IS DISTINCT FROM 'open' THEN 'sent'
                WHEN \(Self.isCancelled("h")) THEN 'cancelled'
                ELSE 'deferred'
            END AS status
            FROM (
                SELECT i.org_id, i.job_id, i.digest_id, x.job_entry, x.fate FROM carillon.digest_items i
                LEFT JOIN carillon.digest_details x ON x.user_id = i.user_id AND x.notification_id = i.notification_id
                WHERE NOT i.is_single AND x.fate IS DISTINCT FROM '\(DigestStore.Fate.alone.rawValue)' AND \(condition)
            ) h
            LEFT JOIN carillon.digests d ON d.id = h.digest_id
        ) s GROUP BY 1, 3
        """
    }

    /// Rows: status, whether it may be with a provider, whether it can still be withdrawn, and how
    /// far how many got.
    private static func tally(_ condition: String, isOpen: String = "false") -> String {
        """
        SELECT n.status, (n.status = 'cancelled' AND n.status_reason = 'in_flight') IS TRUE, (\(isOpen)) IS TRUE,
            \(Reach.columns)
        FROM carillon.notifications n WHERE \(condition) GROUP BY 1, 2, 3
        """
    }
}
