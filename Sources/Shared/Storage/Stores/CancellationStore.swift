// Carillon · CancellationStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Cancelled jobs, and the status of a job's notifications.
package struct CancellationStore: Sendable {
    /// The name of a job: its own id or its stream entry.
    package struct Name: Sendable {
        package let org: String
        package let id: String
        /// The entries that it may mean, each with its stream; empty if it is not an entry.
        package let entries: [String]
        /// When the entry was added.
        let addedAt: Timestamp

        package init(org: String, id: String, entries: [String] = [], addedAt: Timestamp = Timestamp(microseconds: 0)) {
            self.org = org
            self.id = id
            self.entries = entries
            self.addedAt = addedAt
        }

        /// Returns the name of one of its entries.
        package func narrowed(to entry: String) -> Name {
            Name(org: self.org, id: entry, entries: [entry], addedAt: self.addedAt)
        }

        /// The ids that its notifications may have: its own, or its entries, as scheduled jobs
        /// without an id use theirs.
        package var ids: [String] { self.entries.contains(self.id) ? self.entries : [self.id] + self.entries }

        /// The least and the greatest id that schedules of its entries may have: such an id begins
        /// with the entry's time and number.
        var scheduleIDs: (first: NotificationID, last: NotificationID) {
            let entry = self.entries.first?.split(separator: "/").last ?? ""
            let digest = EntryDigest(stream: "", entry: String(entry), fields: [])
            let high = NotificationID(origin: digest, user: "").high
            return (NotificationID(high: high, low: .min), NotificationID(high: high, low: .max))
        }

        /// The span in which the notifications of its entries were stored.
        var span: (from: Timestamp, until: Timestamp) {
            (self.addedAt - CancellationStore.skew, self.addedAt + CancellationStore.longestWait)
        }
    }

    /// A notification that was cancelled now.
    package struct Withdrawal: Sendable, Equatable {
        package let label: NotificationLabel
        /// Its inbox after the withdrawal; nil if it was not listed.
        package let inbox: Inbox?

        package var user: String { self.label.user }
        package var id: NotificationID { self.label.id }

        /// Returns the frame that removes it from sockets; nil if it was not listed.
        package func frame(at: Timestamp) -> NodeFrame? {
            self.inbox.map {
                .change(.deleted, user: self.user, version: $0.version, unread: $0.unread, .ids([self.id]), at: at)
            }
        }

        /// The state of an inbox after a withdrawal.
        package struct Inbox: Sendable, Equatable {
            /// The version of the deletion.
            package let version: Int64
            package let unread: Int32
        }
    }

    /// The number of a job's notifications by status.
    package struct Tally: Sendable, Equatable {
        package var counts: [NotificationStatus: Int64] = [:]
        /// The number of cancelled notifications that a provider may have received.
        package var inFlight: Int64 = 0
        /// The number of notifications that can still be withdrawn, by status: items of digests,
        /// and on request all others.
        package var open: [NotificationStatus: Int64] = [:]
        /// The number of failed or expired notifications that their users have read, opened or got
        /// by mail.
        package var reached: Int64 = 0
        /// The progress of the notifications; items that digests hold do not count.
        package var reach = Reach()

        package var total: Int64 { self.counts.values.reduce(0, +) }
    }

    /// Rows of an entry are stored at most this long after it was added.
    fileprivate static let longestWait: Duration = .seconds(3_600)
    /// The largest assumed difference between the clocks of Redis and PostgreSQL.
    fileprivate static let skew: Duration = .seconds(60)
    /// The largest number of users that an entry may name.
    private static let largestEntry = JobLimits.users
    /// How long a cancellation waits for transactions that began before it.
    private static let longestStoring: Duration = .seconds(9)
    private static let pollInterval: Duration = .milliseconds(10)
    /// The time limit of a search by entry, which reads an hour of notifications.
    private static let searchTime: Duration = .seconds(60)

    let pool: PostgresPool

    /// Records a cancellation.
    ///
    /// Notifications stored after this returns are stored as cancelled.
    package func record(_ name: Name, at: Timestamp) async throws(PostgresError) {
        try await self.pool.query(
            CancellationSQL.record, .text(name.org), .texts(name.ids), .timestamp(at))
        let end = ContinuousClock.now + Self.longestStoring
        var storing = try await self.storing(among: [])
        while !storing.isEmpty {
            guard ContinuousClock.now < end else {
                throw PostgresError(.timeout, "a transaction that stores notifications does not end")
            }
            do {
                // Nothing signals their end, and a wait for their lock would hold up all storing.
                try await Task.sleep(for: Self.pollInterval)
            } catch {
                throw PostgresError(.cancelled)
            }
            storing = try await self.storing(among: storing)
        }
    }

    /// The transactions that are storing notifications.
    ///
    /// - Parameter known: the transactions to look for; empty for all.
    private func storing(among known: [String]) async throws(PostgresError) -> [String] {
        try await self.pool.query(CancellationSQL.storing, .texts(known)).texts()
    }

    /// When a job was cancelled; nil if it was not.
    package func cancelledAt(_ name: Name) async throws(PostgresError) -> Timestamp? {
        let result = try await self.pool.query(
            "SELECT max(at) FROM carillon.cancellations WHERE org_id = $1 AND job_id = ANY($2)", .text(name.org),
            .texts(name.ids)
        )
        return try result.first?.optionalTimestamp(0)
    }

    /// Returns the positions of the jobs that were cancelled, by their id or their entry.
    package func cancelled(_ jobs: [(org: String, job: String?, entry: String)]) async throws(PostgresError) -> [Int] {
        let result = try await self.pool.query(
            CancellationSQL.cancelled, .texts(jobs.map(\.org)), .optionalTexts(jobs.map(\.job)),
            .texts(jobs.map(\.entry)))
        return try result.map { (row) throws(PostgresError) in try row.position(in: jobs.count) }
    }

    // MARK: The notifications of a job

    /// A page of a job's notifications by user, starting after `user`.
    package func page(
        org: String,
        job: String,
        after user: String,
        limit: Int
    ) async throws(PostgresError) -> [NotificationKey] {
        try await self.pool.query(
            CancellationSQL.page, .text(org), .text(job), .text(user), .int4(clamping: limit)
        ).keys()
    }

    /// Returns the notifications of the entries that a name may mean, grouped by entry.
    ///
    /// One search finds all of them, because a search reads an hour of notifications.
    package func ofEntries(_ name: Name) async throws(PostgresError) -> [[NotificationKey]] {
        guard !name.entries.isEmpty else { return [] }
        let limit = PostgresValue.int4(clamping: Self.largestEntry * name.entries.count)
        let statement = PostgresStatement(CancellationSQL.ofEntries, Self.entryParameters(name) + [limit])
        var keys: [String: [NotificationKey]] = [:]
        for row in try await self.pool.query(statement, timeout: Self.searchTime) {
            keys[try row.text(2), default: []].append(try row.key())
        }
        return name.entries.compactMap { keys[$0] }
    }

    /// Returns the ids and entries of a name that exist: as job ids of notifications, or in
    /// digests, broadcasts or schedules; if there are none, the entries that have notifications.
    ///
    /// The entries of notifications have no index, so they are searched last: while a broadcast
    /// runs, the search may exceed its time limit.
    package func known(_ name: Name) async throws(PostgresError) -> [String] {
        let (first, last) = name.scheduleIDs
        let known = try await self.pool.query(
            CancellationSQL.known, .text(name.org), .texts(name.entries), .texts(name.ids), .id(first), .id(last)
        ).texts()
        guard known.isEmpty else { return known }
        let statement = PostgresStatement(CancellationSQL.knownEntries, Self.entryParameters(name))
        return try await self.pool.query(statement, timeout: Self.searchTime).texts()
    }

    /// Ends notifications that their users have read or opened before another channel delivered
    /// them; they are not cancelled.
    ///
    /// - Returns: the notifications that ended now.
    package func endSeen(_ keys: [NotificationKey]) async throws(PostgresError) -> [EndedNotification] {
        guard !keys.isEmpty else { return [] }
        return try EndedNotification.read(
            try await self.pool.query(PostgresStatement(CancellationSQL.endSeen, .keys(keys))))
    }

    /// Cancels notifications that reached no device, in one transaction.
    ///
    /// - Parameter keys: no user twice.
    package func cancel(
        _ keys: [NotificationKey],
        at: Timestamp
    ) async throws(PostgresError) -> [Withdrawal] {
        guard !keys.isEmpty else { return [] }
        return try await self.cancel(keys, at: at, CancellationSQL.cancel, [])
    }

    /// Cancels a page of a cancelled broadcast and records its progress, in one transaction.
    ///
    /// - Parameters:
    ///   - keys: the page, by user; no user twice.
    ///   - isLast: whether no page follows.
    package func cancel(
        _ keys: [NotificationKey],
        of broadcast: Broadcast,
        isLast: Bool,
        at: Timestamp
    ) async throws(PostgresError) -> [Withdrawal] {
        try await self.cancel(
            keys, at: at, CancellationSQL.cancelPage,
            [.id(broadcast.id), .text(keys.last?.user ?? broadcast.withdrawnTo), .bool(isLast)])
    }

    /// - Parameter more: the parameters of `sql` from $4.
    private func cancel(
        _ keys: [NotificationKey],
        at: Timestamp,
        _ sql: String,
        _ more: [PostgresValue]
    ) async throws(PostgresError) -> [Withdrawal] {
        let parameters: [PostgresValue] = .keys(keys)
        let results = try await self.pool.run([
            PostgresStatement(NotificationSQL.lockInboxes, [parameters[0]]),
            // Waits for settlements, whose attempts the next statement then sees.
            PostgresStatement(DeliverySQL.lock, parameters),
            PostgresStatement(sql, parameters + [.timestamp(at)] + more),
        ])
        guard let result = results.last else { throw PostgresError(.decoding, "a withdrawal returned no result") }
        return try result.map { (row) throws(PostgresError) in
            var inbox: Withdrawal.Inbox?
            let first = LabelColumns.count
            if !row.isNull(first) {
                inbox = Withdrawal.Inbox(version: try row.int8(first), unread: try row.int4(first + 1))
            }
            return Withdrawal(label: try LabelColumns.read(row), inbox: inbox)
        }
    }

    /// Counts the notifications of a job by status, with the items that digests hold: these are
    /// `deferred` until their summary is stored, then `sent`.
    ///
    /// - Parameters:
    ///   - countsOpen: whether to count separately, in ``Tally/open``, the notifications that can
    ///     still be withdrawn.
    ///   - timeout: the time limit of each statement; nil means the configuration's, and a minute
    ///     for a search by entry.
    package func tally(
        _ name: Name,
        countsOpen: Bool = false,
        timeout: Duration? = nil
    ) async throws(PostgresError) -> Tally {
        var tally = Tally()
        let sql = countsOpen ? CancellationSQL.tallyWithOpen : CancellationSQL.tally
        let ids = PostgresValue.texts(name.ids)
        try tally.add(try await self.pool.query(sql, .text(name.org), ids, timeout: timeout), hasReach: true)
        try tally.add(
            try await self.pool.query(CancellationSQL.tallyHeld, .text(name.org), ids, timeout: timeout),
            hasReach: false)
        guard tally.total == 0, !name.entries.isEmpty else { return tally }
        let statement = PostgresStatement(CancellationSQL.tallyOfEntry, Self.entryParameters(name))
        try tally.add(
            try await self.pool.query(statement, timeout: timeout ?? Self.searchTime), hasReach: true)
        let entries = PostgresValue.texts(name.entries)
        try tally.add(
            try await self.pool.query(CancellationSQL.tallyHeldOfEntry, .text(name.org), entries, timeout: timeout),
            hasReach: false)
        return tally
    }

    /// Whether a digest whose summary is not stored holds notifications of the entry that names a
    /// job.
    package func isHeld(_ name: Name) async throws(PostgresError) -> Bool {
        var tally = Tally()
        let result = try await self.pool.query(
            CancellationSQL.tallyHeldOfEntry, .text(name.org), .texts(name.entries))
        try tally.add(result, hasReach: false)
        return tally.counts[.deferred, default: 0] > 0
    }

    private static func entryParameters(_ name: Name) -> [PostgresValue] {
        let (from, until) = name.span
        return [.text(name.org), .texts(name.entries), .timestamp(from), .timestamp(until)]
    }
}

extension CancellationStore.Tally {
    /// - Parameter hasReach: whether the rows also have `isReached` and the progress, whose first
    ///   column is the count.
    fileprivate mutating func add(_ result: PostgresResult, hasReach: Bool) throws(PostgresError) {
        for row in result {
            let count = try row.int8(hasReach ? 4 : 3)
            let status = NotificationStatus(rawValue: try row.text(0)) ?? .pending
            self.counts[status, default: 0] += count
            if try row.bool(1) { self.inFlight += count }
            let isOpen = try row.bool(2)
            if isOpen { self.open[status, default: 0] += count }
            guard hasReach else { continue }
            if !isOpen, try row.bool(3) { self.reached += count }
            self.reach.add(try Reach(row, at: 4))
        }
    }
}
