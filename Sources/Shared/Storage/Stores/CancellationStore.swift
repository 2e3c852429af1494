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
