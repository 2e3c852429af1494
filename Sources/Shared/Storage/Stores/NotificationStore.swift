// Carillon · NotificationStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Stores notifications, a whole batch at once, with their inbox versions.
package struct NotificationStore: Sendable {
    /// What became of one notification of a batch.
    package enum Outcome: Sendable, Equatable {
        /// Stored now. `version` is 0 if it is not listed; `unread` is the count with it.
        case stored(version: Int64, unread: Int32)
        /// The same entry had been stored before; this is how it stands now.
        case known(version: Int64, unread: Int32, status: NotificationStatus, isOwned: Bool)
        /// Another entry with the same job id had been stored before, or is held by a digest.
        case duplicate(of: NotificationID)
        /// A duplicate with different content.
        case conflict(with: NotificationID)
        /// Stored now, but a newer one with the same collapse key was there.
        case replaced(by: NotificationID)
        /// Stored now as cancelled, as its job was called off before it came.
        case cancelled
    }

    /// A notification that a newer one with the same collapse key took the place of.
    package struct Replacement: Sendable, Equatable {
        package let label: NotificationLabel
        package let newest: NotificationID
        /// The inbox version of its deletion; 0 if it was not listed.
        package let version: Int64
        /// The unread count afterwards.
        package let unread: Int32

        package var user: String { self.label.user }
        package var id: NotificationID { self.label.id }
    }

    /// What became of a batch.
    package struct Batch: Sendable {
        /// One each, in the order of the notifications.
        package var outcomes: [Outcome] = []
        /// What was there before and is replaced now.
        package var replacements: [Replacement] = []
    }

    let pool: PostgresPool

    /// Stores notifications in their order as one transaction in one round trip.
    ///
    /// - Parameters:
    ///   - notifications: no two with the same user and id, nor with the same user, org and job id.
    ///   - areRepeats: whether some may have been stored before; others are taken to be new, and the call is repeated
    ///     with the check if they are not.
    /// - Returns: an outcome each, in the same order.
    package func store(
        _ notifications: [Notification],
        areRepeats: Bool
    ) async throws(PostgresError) -> [Outcome] {
        try await self.storeBatch(notifications, areRepeats: areRepeats).outcomes
    }

    /// The same, and says which older notifications with the same collapse keys were replaced.
    package func storeBatch(
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

    /// Stores a page of a broadcast, whose users are taken to have nothing of its job yet; all are of the one job.
    ///
    /// - Parameters:
    ///   - page: statements that run before, in the same transaction.
    ///   - recount: runs after, in the same transaction, where some users had one of the same job.
    package func store(
        _ notifications: [Notification],
        withPage page: [PostgresStatement],
        recount: PostgresStatement
    ) async throws(PostgresError) -> Batch {
        let companions = Companions(isFresh: true, before: page, after: [recount])
        // No key tells what a digest holds; where it has anything of the job, each is looked up.
        let areRepeats = try await DigestStore(pool: self.pool).hasItems(ofJobOf: notifications.first)
        do throws(PostgresError) {
            return try await self.attempt(notifications, areRepeats: areRepeats, companions: companions)
        } catch  where error.sqlState == "23505" && error.table != BroadcastStore.pagesTable {
            return try await self.attempt(notifications, areRepeats: true, companions: companions)
        }
    }

    /// What runs in the same transaction.
    private struct Companions {
        /// Whether the notifications are taken to be new although their jobs have ids.
        var isFresh = false
        var before: [PostgresStatement] = []
        /// Only where it was checked what is known.
        var after: [PostgresStatement] = []
    }

    private func attempt(
        _ notifications: [Notification],
        areRepeats: Bool,
        companions: Companions = Companions()
    ) async throws(PostgresError) -> Batch {
        let plan = Self.plan(
            for: notifications,
            areRepeats: areRepeats || !companions.isFresh && notifications.contains { $0.jobID != nil }
        )
        let after = plan.places == nil ? companions.after : []
        var results = try await self.pool.run(companions.before + plan.statements + after)
        results.removeLast(after.count)
        let replaced = plan.collapses ? results.popLast() : nil
        guard let rows = results.last else { throw PostgresError(.decoding, "storing returned no outcomes") }
        guard let places = plan.places else {
            return try Self.batch(Self.checkedOutcomes(rows, notifications), notifications, replaced: replaced)
        }
        guard rows.count == 0 else { return Batch(outcomes: try places.outcomes(rows)) }
        // Something was cancelled before it came; the check finds out what.
        return try await self.attempt(notifications, areRepeats: true, companions: companions)
    }

    /// Parts what is replaced into what was there before and what came too late.
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
                newest: NotificationID(try row.uuid(LabelColumns.count)),
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
            let position = Int(try row.int4(0))
            guard outcomes.indices.contains(position) else {
                throw PostgresError(.decoding, "an outcome has an invalid position")
            }
            outcomes[position] = try Self.outcome(row, id: notifications[position].id)
        }
        return outcomes
    }

    /// What ``store(_:areRepeats:)`` runs, in its order, as one transaction.
    package static func statements(
        for notifications: [Notification],
        areRepeats: Bool
    ) -> [PostgresStatement] {
        self.plan(
            for: notifications,
            areRepeats: areRepeats || notifications.contains { $0.jobID != nil }
        ).statements
    }

    /// How a batch is stored.
    private struct Plan {
        var statements: [PostgresStatement]
        /// Where its rows' versions are found; nil if the rows say so themselves.
        var places: InboxPlaces?
        /// Whether the last statement replaces older notifications.
        var collapses = false
    }

    /// Asking what is known makes sixteen parts ready twice, so entries that are seen for the first time, have no job id and
    /// replace nothing go the short way, which has places.
    private static func plan(
        for notifications: [Notification],
        areRepeats: Bool
    ) -> Plan {
        let columns = NotificationColumns.inserted.arrays(notifications)
        let collapsing = notifications.filter { $0.collapseKey != nil }
        guard areRepeats || !collapsing.isEmpty else {
            let places = InboxPlaces(notifications)
            let insert = PostgresStatement(StoreSQL.insertFresh, columns + places.parameters)
            return Plan(statements: [CancellationSQL.beforeStoring, insert], places: places)
        }
        let users = PostgresArray(texts: ExactText.distinct(notifications.map(\.user)))
        var listed = PostgresArray(.bool, capacity: notifications.count)
        for notification in notifications { listed.append(bool: notification.isListed) }
        var plan = Plan(statements: [
            CancellationSQL.beforeStoring,
            PostgresStatement(StoreSQL.makeInboxes, [.array(users)]),
            PostgresStatement(StoreSQL.lockInboxes, [.array(users)]),
            PostgresStatement(StoreSQL.insertChecked, columns + [.array(listed)]),
        ])
        if !collapsing.isEmpty {
            plan.collapses = true
            plan.statements.append(
                PostgresStatement(
                    CollapseSQL.replaceOlder,
                    [
                        .array(PostgresArray(texts: collapsing.map(\.user))),
                        .array(PostgresArray(texts: collapsing.compactMap(\.collapseKey))),
                    ]
                )
            )
        }
        return plan
    }

    private static func outcome(_ row: PostgresRow, id: NotificationID) throws(PostgresError) -> Outcome {
        let version = try row.int8(1)
        let unread = try row.int4(2)
        guard let known = try row.optionalUUID(3) else {
            return row.isNull(4) ? .stored(version: version, unread: unread) : .cancelled
        }
        let existing = NotificationID(known)
        guard existing == id else {
            return try row.bool(6) ? .conflict(with: existing) : .duplicate(of: existing)
        }
        let status = NotificationStatus(rawValue: try row.text(4)) ?? .pending
        return .known(version: version, unread: unread, status: status, isOwned: !row.isNull(5))
    }

    /// Records proofs of receipt.
    ///
    /// What is final already stays as it is.
    ///
    /// - Returns: those that are delivered by it.
    @discardableResult
    package func markDelivered(
        _ proofs: [(user: String, id: NotificationID, at: Timestamp)],
        via: String
    ) async throws(PostgresError) -> [(label: NotificationLabel, at: Timestamp)] {
        guard !proofs.isEmpty else { return [] }
        var users = PostgresArray(.text, capacity: proofs.count)
        var ids = PostgresArray(.uuid, capacity: proofs.count)
        var moments = PostgresArray(.timestamptz, capacity: proofs.count)
        for proof in proofs {
            users.append(proof.user)
            ids.append(uuid: proof.id.halves)
            moments.append(timestamptz: proof.at.microseconds)
        }
        let result = try await self.pool.query(
            StoreSQL.markDelivered, .array(users), .array(ids), .array(moments), .text(via)
        )
        var changed: [(label: NotificationLabel, at: Timestamp)] = []
        changed.reserveCapacity(result.count)
        for row in result {
            let at = Timestamp(microseconds: try row.timestamptz(LabelColumns.count))
            changed.append((try LabelColumns.read(row), at))
        }
        return changed
    }

    /// Sets the status of what was handed on, and notes why less was done than was asked for.
    ///
    /// What is final already keeps its status.
    package func mark(
        _ changes: [(user: String, id: NotificationID, status: NotificationStatus, reason: String?, via: String?)],
        notes: [(user: String, id: NotificationID, decision: String)] = []
    ) async throws(PostgresError) {
        var statements: [PostgresStatement] = []
        if !notes.isEmpty {
            // Inboxes are locked before notifications, as everywhere.
            let users = ExactText.distinct(notes.map(\.user))
            statements.append(PostgresStatement(StoreSQL.lockInboxes, [.array(PostgresArray(texts: users))]))
        }
        if !changes.isEmpty { statements.append(StatusChanges(changes).statement) }
        if !notes.isEmpty {
            statements.append(
                PostgresStatement(
                    StoreSQL.note,
                    [
                        .array(PostgresArray(texts: notes.map(\.user))),
                        .array(PostgresArray(uuids: notes.map(\.id.halves))),
                        .array(PostgresArray(texts: notes.map(\.decision))),
                    ]
                )
            )
        }
        guard !statements.isEmpty else { return }
        try await self.pool.run(statements)
    }

    /// PostgreSQL's time, by which rows are stamped.
    ///
    /// Whoever looks for rows by their age, or takes them away, goes by it: a machine whose own clock jumps would pass some
    /// by, or take away what is new.
    package func clock() async throws(PostgresError) -> Timestamp {
        let result = try await self.pool.query("SELECT clock_timestamp()")
        guard let row = result.first else { throw PostgresError(.decoding, "the clock query returned no row") }
        return Timestamp(microseconds: try row.timestamptz(0))
    }

    /// A notification without an owner.
    package struct Unowned: Sendable {
        package let notification: Notification
        /// The unread count of its inbox.
        package let unread: Int32
        fileprivate let storedAt: Int64
    }

    /// A page of notifications that were stored and have had no owner since `before`, the oldest first.
    ///
    /// - Parameter last: the last one of the page before; nil for the first page.
    package func unowned(
        before: Timestamp,
        after last: Unowned? = nil,
        limit: Int
    ) async throws(PostgresError) -> [Unowned] {
        let result = try await self.pool.query(
            StoreSQL.unowned, .timestamptz(before.microseconds), .int4(Int32(clamping: limit)),
            .timestamptz(last?.storedAt), last.map { .uuid($0.notification.id.halves) } ?? .null(.uuid)
        )
        var unowned: [Unowned] = []
        for row in result {
            unowned.append(
                Unowned(
                    notification: try NotificationColumns.all.read(row),
                    unread: try row.int4(NotificationColumns.all.count),
                    storedAt: try row.timestamptz(NotificationColumns.all.count + 1)
                )
            )
        }
        return unowned
    }

    /// Moves the sweeper's mark: everything stored before `before` that has an owner need not be looked at again.
    package func advanceSweep(before: Timestamp) async throws(PostgresError) {
        try await self.pool.query(StoreSQL.advanceSweep, .timestamptz(before.microseconds))
    }

    /// A page of the notifications that wait for a push provider and were handed to its stream
    /// between two moments, in the order in which they were.
    ///
    /// - Parameter place: where the page before ended; ``RepairPlace/init(_:)`` for the first page.
    /// - Returns: the page, and where it ended; nil if nothing was left.
    package func queued(
        handedOnSince since: Timestamp,
        until: Timestamp,
        after place: RepairPlace,
        limit: Int
    ) async throws(PostgresError) -> (page: [Notification], last: RepairPlace?) {
        let result = try await self.pool.query(
            StoreSQL.queued, .timestamptz(since.microseconds), .timestamptz(until.microseconds),
            .timestamptz(place.moment.microseconds), .uuid(place.id.halves), .int4(Int32(clamping: limit))
        )
        var page: [Notification] = []
        var last: RepairPlace?
        for row in result {
            let notification = try NotificationColumns.all.read(row)
            page.append(notification)
            last = RepairPlace(
                Timestamp(microseconds: try row.timestamptz(NotificationColumns.all.count)), notification.id)
        }
        return (page, last)
    }

    /// The notifications of these (user, id), in any order; those that do not exist are left out.
    package func load(_ keys: [(user: String, id: NotificationID)]) async throws(PostgresError) -> [Notification] {
        guard !keys.isEmpty else { return [] }
        let users = PostgresArray(texts: keys.map(\.user))
        let ids = PostgresArray(uuids: keys.map(\.id.halves))
        return try NotificationColumns.all.read(try await self.pool.query(StoreSQL.load, .array(users), .array(ids)))
    }
}

/// A place in the order in which notifications were handed to providers' streams.
package struct RepairPlace: Sendable {
    package let moment: Timestamp
    let id: NotificationID

    /// Before all that was handed on at a moment.
    package init(_ moment: Timestamp) {
        self.init(moment, NotificationID(high: 0, low: 0))
    }

    init(_ moment: Timestamp, _ id: NotificationID) {
        self.moment = moment
        self.id = id
    }
}

/// Where the notifications of a batch come to stand in their inboxes, so far as the batch alone tells it.
struct InboxPlaces {
    private struct Place {
        /// The user's index.
        let user: Int
        /// How many listed notifications of the user come after it.
        let behind: Int32
        let isListed: Bool
    }

    /// In the order of bytes, each once.
    private let users: [String]
    /// Of each user, how many listed notifications.
    private let listed: [Int32]
    private let places: [Place]

    init(_ notifications: [Notification]) {
        let order = notifications.indices.sorted {
            ExactText(notifications[$0].user) < ExactText(notifications[$1].user)
        }
        var users: [String] = []
        var listed: [Int32] = []
        var indexes = [Int](repeating: 0, count: notifications.count)
        for position in order {
            let notification = notifications[position]
            if users.last.map({ ExactText($0) }) != ExactText(notification.user) {
                users.append(notification.user)
                listed.append(0)
            }
            indexes[position] = users.count - 1
            if notification.isListed { listed[users.count - 1] += 1 }
        }
        var left = listed
        self.places = zip(notifications, indexes).map { notification, user in
            if notification.isListed { left[user] -= 1 }
            return Place(user: user, behind: left[user], isListed: notification.isListed)
        }
        self.users = users
        self.listed = listed
    }

    /// The parameters of ``StoreSQL/insertFresh`` after those of the columns.
    var parameters: [PostgresValue] {
        var behind = PostgresArray(.int4, capacity: self.places.count)
        var indexes = PostgresArray(.int4, capacity: self.places.count)
        var isListed = PostgresArray(.bool, capacity: self.places.count)
        for place in self.places {
            isListed.append(bool: place.isListed)
            behind.append(int4: place.behind)
            indexes.append(int4: Int32(place.user + 1))
        }
        var listed = PostgresArray(.int4, capacity: self.listed.count)
        for count in self.listed { listed.append(int4: count) }
        return [
            .array(isListed), .array(behind), .array(PostgresArray(texts: self.users)), .array(listed), .array(indexes),
        ]
    }

    /// What became of the batch, from a row for each user: the version and the unread count that were reached.
    func outcomes(_ rows: PostgresResult) throws(PostgresError) -> [NotificationStore.Outcome] {
        guard rows.count == self.users.count else {
            throw PostgresError(.decoding, "expected one row for each inbox")
        }
        var reached: [(version: Int64, unread: Int32)] = []
        reached.reserveCapacity(rows.count)
        for row in rows { reached.append((try row.int8(0), try row.int4(1))) }
        return self.places.map { place in
            let (version, unread) = reached[place.user]
            return .stored(
                version: place.isListed ? version - Int64(place.behind) : 0,
                unread: unread - place.behind
            )
        }
    }
}

/// A batch of status changes as a statement.
struct StatusChanges {
    let statement: PostgresStatement

    init(_ changes: [(user: String, id: NotificationID, status: NotificationStatus, reason: String?, via: String?)]) {
        var users = PostgresArray(.text, capacity: changes.count)
        var ids = PostgresArray(.uuid, capacity: changes.count)
        var statuses = PostgresArray(.text, capacity: changes.count)
        var reasons = PostgresArray(.text, capacity: changes.count)
        var ways = PostgresArray(.text, capacity: changes.count)
        for change in changes {
            users.append(change.user)
            ids.append(uuid: change.id.halves)
            statuses.append(change.status.rawValue)
            reasons.append(change.reason)
            ways.append(change.via)
        }
        self.statement = PostgresStatement(
            StoreSQL.mark,
            [.array(users), .array(ids), .array(statuses), .array(reasons), .array(ways)]
        )
    }
}
