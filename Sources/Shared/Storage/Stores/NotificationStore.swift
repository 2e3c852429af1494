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
        if Self.areNew(notifications, areRepeats: areRepeats), let batch = try await self.insertFresh(notifications) {
            return batch
        }
        return try await self.insertChecked(notifications)
    }

    /// Whether to assume that all are new; another entry may have stored one that has a job id.
    private static func areNew(_ notifications: [Notification], areRepeats: Bool) -> Bool {
        !areRepeats && !notifications.contains { $0.jobID != nil }
    }

    /// Stores summaries, and ends the notifications that they stand for and their releases, as one
    /// transaction, so that no notification is pushed as well.
    ///
    /// - Parameters:
    ///   - items: the notifications, none twice, and the summary of each.
    ///   - until: the end of the claim on the releases.
    ///   - moment: the time of the audit rows; each item gets at most one an hour.
    /// - Returns: an outcome for each summary, in order; nil if another dispatcher has claimed a
    ///   release since, or its user was erased; then nothing is stored.
    package func storeSummaries(
        _ summaries: [Notification],
        endingItems items: [(key: NotificationKey, summary: NotificationID)],
        claimedUntil until: Timestamp,
        at moment: Timestamp
    ) async throws(PostgresError) -> [Outcome]? {
        let marks: [Mark] = items.map { ($0.key, .sent, RecordedReason.summarised.rawValue, SentVia.summary.rawValue) }
        let audit = PostgresStatement(
            DeliverySQL.summarised,
            .keys(items.map(\.key), .ids(items.map(\.summary)), .timestamp(moment)))
        let marking = Self.marking(marks, areReleases: false)
        // Last, because settlements and cancellations also lock notifications before follow-ups.
        let releases = PostgresStatement(
            FollowUpStore.deleteClaimed,
            .keys(
                items.map(\.key), .texts(items.map { _ in FollowUp.release.rawValue }), .timestamp(until)))
        do throws(PostgresError) {
            return try await self.insertChecked(summaries, after: [marking, audit, releases]).outcomes
        } catch  where error.sqlState == NotificationSQL.notStored {
            return nil
        }
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
            return try await self.insertChecked(summaries, after: statements)
        } catch  where error.sqlState == NotificationSQL.notStored {
            return nil
        }
    }

    /// Stores a page of a broadcast.
    ///
    /// All notifications are of one job, which the users are assumed not to have yet.
    ///
    /// - Parameters:
    ///   - notifications: at least one.
    ///   - page: statements that run first, in the same transaction.
    ///   - recount: runs last, in the same transaction, if some users may have had one of this job
    ///     already.
    package func storeBroadcastPage(
        _ notifications: [Notification],
        page: [PostgresStatement],
        recount: PostgresStatement
    ) async throws(PostgresError) -> Batch {
        // No unique key covers the items of digests. If a digest holds an item of the job, look up
        // each notification.
        let database = Database(self.pool)
        var areNew = try await !database.digests.hasItems(ofJobOf: notifications.first)
        if let first = notifications.first, let job = first.jobID {
            let name = CancellationStore.Name(org: first.org, id: job)
            if try await database.cancellations.cancelledAt(name) != nil { areNew = false }
        }
        let check = notifications.first.map {
            PostgresStatement(NotificationSQL.requireStored, [.text($0.user), .id($0.id)])
        }
        if areNew, let batch = try await self.insertFresh(notifications, before: page, check: check) { return batch }
        return try await self.insertChecked(notifications, before: page, after: [recount])
    }

    /// Stores notifications that are assumed new, with versions computed here.
    ///
    /// - Parameters:
    ///   - before: statements that run first, in the same transaction.
    ///   - check: runs last; fails with ``NotificationSQL/notStored`` if nothing was stored, so
    ///     that `before` is not committed alone.
    /// - Returns: nil if nothing was stored, because a notification was stored before, has a
    ///   collapse key, or is of a cancelled job: use ``insertChecked(_:before:after:)``.
    private func insertFresh(
        _ notifications: [Notification],
        before: [PostgresStatement] = [],
        check: PostgresStatement? = nil
    ) async throws(PostgresError) -> Batch? {
        guard !Self.mayReplace(notifications) else { return nil }
        let versions = VersionAssignment(notifications)
        var statements = before + Self.freshStatements(notifications, versions)
        let insert = statements.count - 1
        if let check { statements.append(check) }
        do throws(PostgresError) {
            let inboxes = try await self.pool.run(statements)[insert]
            return try inboxes.isEmpty ? nil : Batch(outcomes: versions.outcomes(inboxes))
        } catch
            where error.sqlState == "23505" && error.table != BroadcastStore.pagesTable
            || error.sqlState == NotificationSQL.notStored
        {
            return nil
        }
    }

    /// Stores notifications of which some may be known, cancelled, or replace older ones.
    ///
    /// - Parameters:
    ///   - before: statements that run first, in the same transaction.
    ///   - after: statements that run last, in the same transaction.
    private func insertChecked(
        _ notifications: [Notification],
        before: [PostgresStatement] = [],
        after: [PostgresStatement] = []
    ) async throws(PostgresError) -> Batch {
        let statements = Self.checkedStatements(notifications)
        let results = try await self.pool.run(before + statements + after)
        // The third one inserts, the fourth replaces.
        let outcomes = try Self.checkedOutcomes(results[before.count + 2], notifications)
        let replaced = statements.count > 3 ? results[before.count + 3] : nil
        return try Self.batch(outcomes, notifications, replaced: replaced)
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
        guard Self.areNew(notifications, areRepeats: areRepeats), !Self.mayReplace(notifications) else {
            return Self.checkedStatements(notifications)
        }
        return Self.freshStatements(notifications, VersionAssignment(notifications))
    }

    /// Whether some may replace older notifications.
    private static func mayReplace(_ notifications: [Notification]) -> Bool {
        notifications.contains { $0.collapseKey != nil }
    }

    private static func freshStatements(
        _ notifications: [Notification],
        _ versions: VersionAssignment
    ) -> [PostgresStatement] {
        let columns = NotificationColumns.inserted.arrays(notifications)
        return [
            CancellationSQL.beforeStoring,
            PostgresStatement(NotificationSQL.insertFresh, columns + versions.parameters),
        ]
    }

    private static func checkedStatements(_ notifications: [Notification]) -> [PostgresStatement] {
        let columns = NotificationColumns.inserted.arrays(notifications)
        let users = ExactText.distinct(notifications.map(\.user))
        var statements = [
            CancellationSQL.beforeStoring,
            PostgresStatement(NotificationSQL.makeInboxes, [.texts(users)]),
            PostgresStatement(NotificationSQL.insertChecked, columns + [.bools(notifications.map(\.isListed))]),
        ]
        let collapsing = notifications.filter { $0.collapseKey != nil }
        if !collapsing.isEmpty {
            statements.append(
                PostgresStatement(
                    CollapseSQL.replaceOlder,
                    [
                        .texts(collapsing.map(\.user)), .texts(collapsing.map(\.org)),
                        .texts(collapsing.compactMap(\.collapseKey)), .ids(collapsing.map(\.id)),
                    ]
                )
            )
        }
        return statements
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

    /// Loads notifications by user and id, in any order, without missing ones.
    package func load(_ keys: [NotificationKey]) async throws(PostgresError) -> [Notification] {
        guard !keys.isEmpty else { return [] }
        return try NotificationColumns.all.read(
            try await self.pool.query(PostgresStatement(NotificationSQL.load, .keys(keys))))
    }
}
