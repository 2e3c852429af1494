// Carillon · NotificationStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Stores notifications in batches, with their inbox versions.
package struct NotificationStore: Sendable {
    /// The outcome of one notification of a batch.
    package enum Outcome: Sendable, Equatable {
        /// Stored now. `version` is 0 if it is not listed; `unread` is the count including it.
        case stored(version: Int64, unread: Int32)
        /// The same entry was stored before; this is its current state.
        case known(version: Int64, unread: Int32, status: NotificationStatus, isOwned: Bool)
        /// Another entry with the same job id was stored before, or a digest holds it.
        case duplicate(of: NotificationID)
        /// A duplicate with different content.
        case conflict(with: NotificationID)
        /// Stored now, but replaced by a newer one with the same collapse key.
        case replaced(by: NotificationID)
        /// Stored now as cancelled, as its job was cancelled before.
        case cancelled

        /// Whether it was stored before and has no owner.
        package var isUnowned: Bool {
            guard case .known(_, _, .pending, let isOwned) = self else { return false }
            return !isOwned
        }
    }

    /// A notification replaced by a newer one with the same collapse key.
    package struct Replacement: Sendable, Equatable {
        package let label: NotificationLabel
        package let newest: NotificationID
        /// The inbox version of its deletion; 0 if it was not listed.
        package let version: Int64
        /// The unread count after the deletion.
        package let unread: Int32

        package var user: String { self.label.user }
        package var id: NotificationID { self.label.id }
    }

    /// The outcome of a batch.
    package struct Batch: Sendable {
        /// One outcome for each notification, in order.
        package var outcomes: [Outcome] = []
        /// Older notifications that the batch replaced.
        package var replacements: [Replacement] = []
    }

    /// A change of a notification's status.
    package typealias Mark = (key: NotificationKey, status: NotificationStatus, reason: String?, via: String?)

    let pool: PostgresPool

    /// Stores notifications in order, as one transaction in one round trip.
    ///
    /// - Parameters:
    ///   - notifications: no two with the same user and id, or the same user, organisation and job
    ///     id.
    ///   - areRepeats: whether some may have been stored before. Otherwise the first try assumes
    ///     that all are new, and a second one looks up those that are not.
    package func store(
        _ notifications: [Notification],
        areRepeats: Bool
    ) async throws(PostgresError) -> Batch {
        guard !notifications.isEmpty else { return Batch() }
        do throws(PostgresError) {
            return try await self.attempt(notifications, areRepeats: areRepeats)
        } catch  where error.sqlState == "23505" && !areRepeats {
            return try await self.attempt(notifications, areRepeats: true)
        }
    }

    /// Stores summaries and ends the notifications that they stand for, as one transaction, so that
    /// no notification is pushed as well.
    ///
    /// - Parameters:
    ///   - items: the notifications, and the summary of each.
    ///   - moment: the time of the audit rows; each item gets at most one an hour.
    /// - Returns: an outcome for each summary, in order.
    package func storeSummaries(
        _ summaries: [Notification],
        endingItems items: [(key: NotificationKey, summary: NotificationID)],
        at moment: Timestamp
    ) async throws(PostgresError) -> [Outcome] {
        let marks: [Mark] = items.map { ($0.key, .sent, RecordedReason.summarised.rawValue, SentVia.summary.rawValue) }
        let audit = PostgresStatement(
            DeliverySQL.summarised,
            .keys(items.map(\.key), .ids(items.map(\.summary)), .timestamp(moment)))
        return try await self.attempt(
            summaries, areRepeats: true,
            companions: Companions(ifLookedUp: [Self.marking(marks, areReleases: false), audit])
        ).outcomes
    }

    /// Stores summaries of digests and marks their windows as stored, which makes the fates of the
    /// items final, in one transaction.
    ///
    /// - Parameters:
    ///   - windows: the windows, as a dispatcher claimed them, with those that have no items left.
    ///   - until: the end of this claim.
    /// - Returns: nil if another dispatcher has claimed or removed one of the windows since, or its
    ///   user was erased; then nothing is stored.
    package func storeDigests(
        _ summaries: [Notification],
        windows: [DigestWindowID],
        claimedUntil until: Timestamp
    ) async throws(PostgresError) -> Batch? {
        let claim: [PostgresValue] = [.ids(windows), .timestamp(until)]
        let statements = [
            PostgresStatement(DigestSQL.markStored, claim), PostgresStatement(DigestSQL.requireClaim, claim),
        ]
        do throws(PostgresError) {
            return try await self.attempt(summaries, areRepeats: true, companions: Companions(ifLookedUp: statements))
        } catch  where error.sqlState == NotificationSQL.notStored {
            return nil
        }
    }

    /// Stores a page of a broadcast.
    ///
    /// All notifications are of one job, which the users are assumed not to have yet.
    ///
    /// - Parameters:
    ///   - page: statements that run first, in the same transaction.
    ///   - recount: runs last, in the same transaction, if some users already had one of this job.
    package func storeBroadcastPage(
        _ notifications: [Notification],
        page: [PostgresStatement],
        recount: PostgresStatement
    ) async throws(PostgresError) -> Batch {
        let check = notifications.first.map {
            PostgresStatement(NotificationSQL.requireStored, [.text($0.user), .id($0.id)])
        }
        let companions = Companions(
            assumesNew: true, before: page, ifLookedUp: [recount], ifAssumedNew: check.map { [$0] } ?? [])
        // No unique key covers the items of digests. If a digest holds an item of the job, look up
        // each notification.
        let database = Database(self.pool)
        var areRepeats = try await database.digests.hasItems(ofJobOf: notifications.first)
        if let first = notifications.first, let job = first.jobID {
            let name = CancellationStore.Name(org: first.org, id: job)
            if try await database.cancellations.cancelledAt(name) != nil { areRepeats = true }
        }
        do throws(PostgresError) {
            return try await self.attempt(notifications, areRepeats: areRepeats, companions: companions)
        } catch
            where error.sqlState == "23505" && error.table != BroadcastStore.pagesTable
            || error.sqlState == NotificationSQL.notStored
        {
            return try await self.attempt(notifications, areRepeats: true, companions: companions)
        }
    }

    /// Statements that run in the same transaction.
    private struct Companions {
        /// Whether the notifications are assumed new although their jobs have ids.
        var assumesNew = false
        var before: [PostgresStatement] = []
        /// Run last if known notifications were looked up.
        var ifLookedUp: [PostgresStatement] = []
        /// Run last if all notifications were assumed new; fail if nothing was stored, so that
        /// ``before`` is not committed alone.
        var ifAssumedNew: [PostgresStatement] = []
    }

    private func attempt(
        _ notifications: [Notification],
        areRepeats: Bool,
        companions: Companions = Companions()
    ) async throws(PostgresError) -> Batch {
        let plan = Self.plan(
            for: notifications,
            areRepeats: areRepeats || !companions.assumesNew && notifications.contains { $0.jobID != nil }
        )
        let last = plan.versions == nil ? companions.ifLookedUp : companions.ifAssumedNew
        var results = try await self.pool.run(companions.before + plan.statements + last)
        results.removeLast(last.count)
        let replaced = plan.collapses ? results.popLast() : nil
        guard let rows = results.last else { throw PostgresError(.decoding, "storing returned no outcomes") }
        guard let versions = plan.versions else {
            return try Self.batch(Self.checkedOutcomes(rows, notifications), notifications, replaced: replaced)
        }
        guard rows.count == 0 else { return Batch(outcomes: try versions.outcomes(rows)) }
        // A job was cancelled before; the next attempt finds out which.
        return try await self.attempt(notifications, areRepeats: true)
    }

    /// Reads the replacements, and marks notifications of this batch that a newer one replaced at
    /// once.
    private static func batch(
        _ outcomes: [Outcome],
        _ notifications: [Notification],
        replaced: PostgresResult?
    ) throws(PostgresError) -> Batch {
        var batch = Batch(outcomes: outcomes)
        guard let replaced, replaced.count > 0 else { return batch }
        var newest: [NotificationID: NotificationID] = [:]
        for row in replaced {
            let replacement = Replacement(
                label: try LabelColumns.read(row),
                newest: try row.id(LabelColumns.count),
                version: try row.int8(LabelColumns.count + 1),
                unread: try row.int4(LabelColumns.count + 2)
            )
            newest[replacement.id] = replacement.newest
            batch.replacements.append(replacement)
        }
        for (index, notification) in notifications.enumerated() {
            guard case .stored = outcomes[index], let newer = newest[notification.id] else { continue }
            batch.outcomes[index] = .replaced(by: newer)
        }
        return batch
    }

    private static func checkedOutcomes(
        _ rows: PostgresResult,
        _ notifications: [Notification]
    ) throws(PostgresError) -> [Outcome] {
        guard rows.count == notifications.count else {
            throw PostgresError(.decoding, "expected one outcome for each notification")
        }
        var outcomes = [Outcome](repeating: .stored(version: 0, unread: 0), count: notifications.count)
        for row in rows {
            let position = try row.position(in: outcomes.count)
            outcomes[position] = try Self.outcome(row, id: notifications[position].id)
        }
        return outcomes
    }

    /// The statements of ``store(_:areRepeats:)``, in order, for one transaction.
    package static func statements(
        for notifications: [Notification],
        areRepeats: Bool
    ) -> [PostgresStatement] {
        self.plan(
            for: notifications,
            areRepeats: areRepeats || notifications.contains { $0.jobID != nil }
        ).statements
    }

    /// The plan for storing a batch.
    private struct Plan {
        var statements: [PostgresStatement]
        /// Assigns the versions; nil if the result contains them.
        var versions: VersionAssignment?
        /// Whether the last statement replaces older notifications.
        var collapses = false
    }

    /// Plans the statements for a batch.
    ///
    /// If no row can be a repeat and none has a collapse key, uses one statement and computes the
    /// versions here.
    private static func plan(
        for notifications: [Notification],
        areRepeats: Bool
    ) -> Plan {
        let columns = NotificationColumns.inserted.arrays(notifications)
        guard areRepeats || notifications.contains(where: { $0.collapseKey != nil }) else {
            let versions = VersionAssignment(notifications)
            let insert = PostgresStatement(NotificationSQL.insertFresh, columns + versions.parameters)
            return Plan(statements: [CancellationSQL.beforeStoring, insert], versions: versions)
        }
        let users = ExactText.distinct(notifications.map(\.user))
        var plan = Plan(statements: [
            CancellationSQL.beforeStoring,
            PostgresStatement(NotificationSQL.makeInboxes, [.texts(users)]),
            PostgresStatement(NotificationSQL.insertChecked, columns + [.bools(notifications.map(\.isListed))]),
        ])
        let collapsing = notifications.filter { $0.collapseKey != nil }
        if !collapsing.isEmpty {
            plan.collapses = true
            plan.statements.append(
                PostgresStatement(
                    CollapseSQL.replaceOlder,
                    [
                        .texts(collapsing.map(\.user)), .texts(collapsing.map(\.org)),
                        .texts(collapsing.compactMap(\.collapseKey)), .ids(collapsing.map(\.id)),
                    ]
                )
            )
        }
        return plan
    }

    private static func outcome(_ row: PostgresRow, id: NotificationID) throws(PostgresError) -> Outcome {
        let version = try row.int8(1)
        let unread = try row.int4(2)
        guard let existing = try row.optionalID(3) else {
            return row.isNull(4) ? .stored(version: version, unread: unread) : .cancelled
        }
        guard existing == id else {
            return try row.bool(6) ? .conflict(with: existing) : .duplicate(of: existing)
        }
        let status = NotificationStatus(rawValue: try row.text(4)) ?? .pending
        return .known(version: version, unread: unread, status: status, isOwned: !row.isNull(5))
    }

    /// Records confirmations of receipt; a final status other than `failed` stays.
    ///
    /// - Returns: the notifications that are delivered now, in any order.
    @discardableResult
    package func markDelivered(
        _ proofs: [(key: NotificationKey, at: Timestamp)],
        via: String
    ) async throws(PostgresError) -> [(label: NotificationLabel, at: Timestamp)] {
        guard !proofs.isEmpty else { return [] }
        let proofs = NotificationSQL.lockOrder(proofs, by: { $0.key })
        let result = try await self.pool.query(
            PostgresStatement(
                NotificationSQL.markDelivered,
                .keys(proofs.map(\.key), .timestamps(proofs.map(\.at)), .text(via))))
        return try result.map { (row) throws(PostgresError) in
            (try LabelColumns.read(row), try row.timestamp(LabelColumns.count))
        }
    }

    /// Sets the status of notifications that were handed on, and records why less was done than
    /// requested.
    ///
    /// A final status stays, and a deferred notification becomes pending only by a release.
    package func mark(
        _ changes: [Mark],
        notes: [(key: NotificationKey, decision: String)] = [],
        areReleases: Bool = false
    ) async throws(PostgresError) {
        var statements: [PostgresStatement] = []
        if !notes.isEmpty {
            // Inboxes are locked before notifications, as everywhere.
            let users = ExactText.distinct(notes.map(\.key.user))
            statements.append(PostgresStatement(NotificationSQL.lockInboxes, [.texts(users)]))
        }
        if !changes.isEmpty { statements.append(Self.marking(changes, areReleases: areReleases)) }
        if !notes.isEmpty {
            let notes = NotificationSQL.lockOrder(notes, by: { $0.key })
            statements.append(
                PostgresStatement(NotificationSQL.note, .keys(notes.map(\.key), .texts(notes.map(\.decision)))))
        }
        guard !statements.isEmpty else { return }
        try await self.pool.run(statements)
    }

    private static func marking(_ changes: [Mark], areReleases: Bool) -> PostgresStatement {
        let changes = NotificationSQL.lockOrder(changes, by: { $0.key })
        return PostgresStatement(
            NotificationSQL.mark,
            .keys(
                changes.map(\.key), .texts(changes.map(\.status.rawValue)), .optionalTexts(changes.map(\.reason)),
                .optionalTexts(changes.map(\.via)), .bool(areReleases)))
    }

    /// A notification without an owner.
    package struct Unowned: Sendable {
        package let notification: Notification
        /// The unread count of its inbox.
        package let unread: Int32
        fileprivate let storedAt: Timestamp
    }

    /// The rows that a sweep reads together, by the times at which they were stored.
    package struct SweepSlice: Sendable {
        /// Its rows were stored later than this.
        let start: Timestamp
        /// Its rows were stored until this.
        package let end: Timestamp
    }

    /// Returns the slice after `last`, which may be empty.
    ///
    /// - Parameters:
    ///   - last: the slice before; nil for the slice from the watermark on.
    ///   - before: the end of the last slice.
    ///   - size: the number of rows; rows that were stored at the same time are in one slice.
    package func sweepSlice(
        after last: SweepSlice? = nil,
        before: Timestamp,
        size: Int
    ) async throws(PostgresError) -> SweepSlice {
        let result = try await self.pool.query(
            NotificationSQL.sweepSlice, .timestamp(last?.end), .timestamp(before), .int8(Int64(size)))
        guard let row = result.first else { throw PostgresError(.decoding, "the sweep has no watermark") }
        return SweepSlice(start: try row.timestamp(0), end: try row.timestamp(1))
    }

    /// A page of notifications of a slice that have no owner, oldest first.
    ///
    /// - Parameter last: the last notification of the previous page; nil for the first page.
    package func unowned(
        in slice: SweepSlice,
        after last: Unowned? = nil,
        limit: Int
    ) async throws(PostgresError) -> [Unowned] {
        let cursor =
            last.map { RepairCursor($0.storedAt, $0.notification.id) } ?? RepairCursor(slice.start + .microseconds(1))
        return try Self.readUnowned(
            try await self.pool.query(
                NotificationSQL.unowned, .timestamp(slice.end), .int4(clamping: limit),
                .timestamp(cursor.moment), .id(cursor.id)))
    }

    /// Returns the notifications among these that are stored and have no owner, in any order.
    package func unowned(among notifications: [Notification]) async throws(PostgresError) -> [Unowned] {
        try Self.readUnowned(
            try await self.pool.query(
                NotificationSQL.unownedAmong, .texts(notifications.map(\.user)), .ids(notifications.map(\.id))))
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
    package func advanceSweep(before: Timestamp) async throws(PostgresError) -> Bool {
        let result = try await self.pool.query(NotificationSQL.advanceSweep, .timestamp(before))
        return try result.first?.bool(0) ?? false
    }

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
            NotificationSQL.repairEnd, .timestamp(start), .timestamp(until), .int8(Int64(size)))
        guard let row = result.first else { throw PostgresError(.decoding, "the repair's slice returned no row") }
        return try row.timestamp(0)
    }

    /// A page of notifications that wait for a push provider and were handed to its stream between
    /// two moments, in that order.
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
            NotificationSQL.queued, .timestamp(since), .timestamp(until),
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

    /// Loads notifications by user and id, in any order, without missing ones.
    package func load(_ keys: [NotificationKey]) async throws(PostgresError) -> [Notification] {
        guard !keys.isEmpty else { return [] }
        return try NotificationColumns.all.read(
            try await self.pool.query(PostgresStatement(NotificationSQL.load, .keys(keys))))
    }
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

/// Assigns inbox versions to new notifications, from their order and their inboxes' new versions.
struct VersionAssignment {
    private struct Row {
        /// The index of the user.
        let user: Int
        /// The number of the user's listed notifications that follow it.
        let behind: Int32
        let isListed: Bool
    }

    /// Each user once, in byte order.
    private let users: [String]
    /// The number of listed notifications of each user.
    private let listed: [Int32]
    private let rows: [Row]

    init(_ notifications: [Notification]) {
        // Two fields are enough; a loop over the notifications would copy each.
        let owners = notifications.map { ExactText($0.user) }
        let areListed = notifications.map(\.isListed)
        var users: [ExactText] = []
        var listed: [Int32] = []
        var indexes = [Int](repeating: 0, count: owners.count)
        for position in owners.indices.sorted(by: { owners[$0] < owners[$1] }) {
            if users.last != owners[position] {
                users.append(owners[position])
                listed.append(0)
            }
            indexes[position] = users.count - 1
            if areListed[position] { listed[users.count - 1] += 1 }
        }
        var left = listed
        self.rows = zip(areListed, indexes).map { isListed, user in
            if isListed { left[user] -= 1 }
            return Row(user: user, behind: left[user], isListed: isListed)
        }
        self.users = users.map(\.text)
        self.listed = listed
    }

    /// The parameters of ``NotificationSQL/insertFresh`` after those of the columns.
    var parameters: [PostgresValue] {
        [
            .bools(self.rows.map(\.isListed)), .int4s(clamping: self.rows.map { Int($0.behind) }),
            .texts(self.users), .int4s(clamping: self.listed.map { Int($0) }),
            .int4s(clamping: self.rows.map { $0.user + 1 }),
        ]
    }

    /// Computes the outcomes of the batch from a row per user with its new version and unread
    /// count.
    func outcomes(_ inboxes: PostgresResult) throws(PostgresError) -> [NotificationStore.Outcome] {
        guard inboxes.count == self.users.count else {
            throw PostgresError(.decoding, "expected one row for each inbox")
        }
        let reached = try (0..<inboxes.count).map { (user) throws(PostgresError) in
            (try inboxes[user].int8(0), try inboxes[user].int4(1))
        }
        return self.rows.map { row in
            let (version, unread) = reached[row.user]
            return .stored(
                version: row.isListed ? version - Int64(row.behind) : 0,
                unread: unread - row.behind
            )
        }
    }
}
