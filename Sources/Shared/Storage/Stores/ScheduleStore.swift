// Carillon · ScheduleStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Jobs that are due later.
package struct ScheduleStore: Sendable {
    /// The outcome of adding a schedule.
    package enum Outcome: Sendable, Equatable {
        case stored
        /// It was stored before.
        case known
        /// Its id belongs to other content.
        case conflict
        /// Its organisation has reached its limit.
        case full
    }

    /// The users of a page of a broadcast with the same outcome.
    package struct PageOutcome: Sendable {
        let schedule: Schedule
        let reason: String
        let users: Int
        /// The fields as read, for a schedule that is changed, not removed.
        ///
        /// It is counted only if they are unchanged and it is not firing: a firing counts its users
        /// itself.
        var fields: [UInt8]?

        /// - Parameter reason: ``ScheduleStore/stored``, or why they have no notification.
        package init(_ schedule: Schedule, reason: String, users: Int) {
            self.schedule = schedule
            self.reason = reason
            self.users = users
        }
    }

    /// The outcome of users whose notification is stored.
    package static let stored = "stored"

    /// The number of schedules of one lane that are claimed at once, without pages of broadcasts.
    package static let claimSize = 256
    /// The number of pages of broadcasts that are claimed at once; each may have a thousand users.
    package static let pageClaimSize = 8
    /// The pages that are marked as held at once.
    private static let holdSize = 1_000
    /// The rows of a cancelled job that one statement changes.
    package static let cancelSize = 5_000
    /// The parts of an occurrence that one statement reads, which counts the users of each.
    package static let cancelPartsSize = 500

    let pool: PostgresPool

    // MARK: Adding

    /// Stores schedules; leaves a known one, or another of the same job, as it is.
    ///
    /// - Parameter page: statements that come first in the same transaction, such as those that
    ///   store the page of a broadcast with the schedules' users.
    /// - Returns: an outcome for each, in order; never ``Outcome/full``.
    package func add(
        _ schedules: [Schedule],
        withPage page: [PostgresStatement] = []
    ) async throws(PostgresError) -> [Outcome] {
        guard !schedules.isEmpty else {
            if !page.isEmpty { try await self.pool.run(page) }
            return []
        }
        let parameters = ScheduleColumns.parameters(schedules)
        let own = [
            CancellationSQL.beforeStoring,
            PostgresStatement(ScheduleSQL.add, parameters),
            PostgresStatement(
                ScheduleSQL.conflicts, [parameters[0], parameters[1], parameters[2], parameters[3], parameters[8]]
            ),
            // The cancellation may be forgotten before the job is due. So a cancelled job fires now
            // and is stored as cancelled; an event is removed.
            PostgresStatement(ScheduleSQL.endCancelled, [parameters[0]]),
        ]
        let results = Array(try await self.pool.runDurably(page + own).dropFirst(page.count))
        let added = Set(try results[1].ids())
        var outcomes = schedules.map { added.contains($0.id) ? Outcome.stored : .known }
        for row in results[2] {
            outcomes[try row.position(in: outcomes.count)] = .conflict
        }
        return outcomes
    }

    /// Stores the schedule of a call unless its organisation has `limit` of them.
    package func put(_ schedule: Schedule, limit: Int) async throws(PostgresError) -> Outcome {
        let results = try await self.pool.runDurably([
            CancellationSQL.beforeStoring,
            // Serialises calls of one organisation, so that the count holds.
            PostgresStatement(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", [.text("carillon.schedules " + schedule.org)]),
            PostgresStatement(
                ScheduleSQL.put,
                ScheduleColumns.parameters([schedule]) + [.text(schedule.org), .int8(Int64(limit))]
            ),
            PostgresStatement(ScheduleSQL.content, [.id(schedule.id)]),
            PostgresStatement(ScheduleSQL.endCancelled, [.ids([schedule.id])]),
        ])
        if results[2].affectedRows == 1 { return .stored }
        if let row = results[3].first { return try row.int8(0) == schedule.content ? .known : .conflict }
        guard let job = schedule.jobID, !schedule.isRecurring else { return .full }
        let others = try await self.pool.query(
            "SELECT FROM carillon.schedules WHERE org_id = $1 AND job_id = $2 AND cron IS NULL LIMIT 1",
            .text(schedule.org), .text(job)
        )
        return others.isEmpty ? .full : .conflict
    }

    // MARK: Firing

    /// Claims the due schedules of a lane, earliest first; they are due again after `hold`.
    ///
    /// - Parameter hasRoom: whether to claim pages of broadcasts too; pages of cancelled broadcasts
    ///   are always claimed, because they make no deliveries.
    package func claim(
        _ lane: Lane,
        now: Timestamp,
        hold: Duration,
        hasRoom: Bool = true
    ) async throws(PostgresError) -> [Schedule] {
        let result = try await self.pool.query(
            ScheduleSQL.claim, .int4(clamping: lane.rank), .timestamp(now),
            .timestamp(now + hold), .bool(hasRoom)
        )
        return try Self.schedules(result).sorted { ($0.dueAt, $0.number) < ($1.dueAt, $1.number) }
    }

    /// Whether a page of a broadcast is due in a lane.
    package func isPageDue(in lane: Lane, now: Timestamp) async throws(PostgresError) -> Bool {
        let due = try await self.pool.query(ScheduleSQL.duePage, .int4(clamping: lane.rank), .timestamp(now))
        return !due.isEmpty
    }

    /// Records that the due pages of recurring schedules wait for room in their lane, so that they
    /// do not count as missed.
    ///
    /// - Parameter limit: pages that are later than this are missed already.
    package func holdPages(
        of lane: Lane,
        now: Timestamp,
        missedAfter limit: Duration
    ) async throws(PostgresError) {
        try await self.pool.query(
            ScheduleSQL.holdPages, .int4(clamping: lane.rank), .timestamp(now), .timestamp(now - limit),
            .int4(clamping: Self.holdSize))
    }

    /// Records that a claimed schedule is fired alone now; repeating it changes nothing.
    ///
    /// - Parameter schedule: the schedule as it was claimed.
    /// - Returns: whether it still exists.
    package func beginAlone(_ schedule: Schedule) async throws(PostgresError) -> Bool {
        try await self.pool.query(
            ScheduleSQL.beginAlone, .id(schedule.id), .int4(clamping: schedule.attempts), .int8(schedule.number)
        ).affectedRows > 0
    }

    /// Takes back the attempts of claimed schedules that were not fired and had none before.
    package func withdrawAttempts(_ schedules: [Schedule]) async throws(PostgresError) {
        let (ids, numbers) = Self.keys(schedules)
        try await self.pool.query(
            """
            UPDATE carillon.schedules SET attempts = 0
            WHERE id = ANY($1) AND number = ANY($2) AND attempts = 1
            """,
            ids, numbers)
    }

    /// Extends the claims of schedules that are being fired, unless they have moved on since.
    package func extendClaims(of schedules: [Schedule], until: Timestamp) async throws(PostgresError) {
        let (ids, numbers) = Self.keys(schedules)
        try await self.pool.query(
            ScheduleSQL.extendClaims, ids, numbers, .timestamps(schedules.map(\.dueAt)), .timestamp(until))
    }

    /// Removes finished or cancelled schedules; repeating it changes nothing.
    ///
    /// - Parameter outcomes: the users of the pages of broadcasts among them, by outcome; these
    ///   users no longer count as `scheduled`.
    package func remove(
        _ schedules: [Schedule],
        outcomes: [PageOutcome] = []
    ) async throws(PostgresError) {
        guard !schedules.isEmpty else { return }
        let (ids, numbers) = Self.keys(schedules)
        let remove = PostgresStatement(
            "DELETE FROM carillon.schedules WHERE id = ANY($1) AND number = ANY($2)", [ids, numbers])
        try await self.pool.run(Self.count(outcomes) + [remove])
    }

    /// The statements that count the outcomes of pages' users, in the transaction that removes or
    /// changes the pages' schedules.
    private static func count(_ outcomes: [PageOutcome]) -> [PostgresStatement] {
        var counts: [(schedule: Schedule, page: Schedule.Page, reason: String, users: Int, fields: String?)] = []
        for outcome in outcomes {
            guard let page = outcome.schedule.page else { continue }
            let fields = outcome.fields.map { String(decoding: $0, as: UTF8.self) }
            counts.append((outcome.schedule, page, outcome.reason, outcome.users, fields))
            counts.append((outcome.schedule, page, PageOutcomeReason.scheduled.rawValue, -outcome.users, fields))
        }
        guard !counts.isEmpty else { return [] }
        let (ids, numbers) = Self.keys(counts.map(\.schedule))
        let parameters: [PostgresValue] = [
            ids, numbers, .int4s(clamping: counts.map(\.page.chain)), .int4s(clamping: counts.map(\.page.number)),
            .texts(counts.map(\.reason)), .int4s(clamping: counts.map(\.users)),
            .optionalTexts(counts.map(\.fields)),
        ]
        // Once the pages are locked, the count sees whether another dispatcher has removed a
        // schedule.
        return [PostgresStatement(ScheduleSQL.lockPages, parameters)]
            + (outcomes.contains { $0.fields != nil } ? [PostgresStatement(ScheduleSQL.lock, [ids])] : [])
            + [PostgresStatement(ScheduleSQL.countOutcomes, parameters)]
    }

    /// Ids and numbers, because another schedule with the same id may have replaced a claimed one.
    private static func keys(_ schedules: [Schedule]) -> (ids: PostgresValue, numbers: PostgresValue) {
        (.ids(schedules.map(\.id)), .int8s(schedules.map(\.number)))
    }

    /// A schedule's step to its next occurrence.
    package struct Step: Sendable {
        let id: ScheduleID
        /// The occurrence that it leaves; a schedule at another occurrence does not change.
        let from: Timestamp
        let to: Timestamp
        let wall: WallTime?
        /// When it fired; nil if it did not.
        let firedAt: Timestamp?
        /// When it is inspected next.
        let wakeAt: Timestamp

        /// - Parameter from: the current occurrence; ``Schedule/dueAt`` if nil.
        package init(
            _ schedule: Schedule,
            from: Timestamp? = nil,
            to: Timestamp,
            wall: WallTime?,
            firedAt: Timestamp?,
            wakeAt: Timestamp
        ) {
            self.id = schedule.id
            self.from = from ?? schedule.dueAt
            self.to = to
            self.wall = wall
            self.firedAt = firedAt
            self.wakeAt = wakeAt
        }
    }

    /// Advances schedules, each only from its expected occurrence.
    ///
    /// - Returns: the schedules that were advanced.
    @discardableResult
    package func advance(_ steps: [Step]) async throws(PostgresError) -> Set<ScheduleID> {
        guard !steps.isEmpty else { return [] }
        let result = try await self.pool.query(
            ScheduleSQL.advance, .ids(steps.map(\.id)), .timestamps(steps.map(\.from)), .timestamps(steps.map(\.to)),
            .int4s(clamping: steps.map(\.wall?.day)), .int4s(clamping: steps.map(\.wall?.time.minutes)),
            .timestamps(steps.map(\.firedAt)), .timestamps(steps.map(\.wakeAt))
        )
        return Set(try result.ids())
    }

    /// Stops a waiting schedule, with a reason.
    ///
    /// - Returns: whether it was waiting.
    @discardableResult
    package func fail(_ schedule: Schedule, reason: String) async throws(PostgresError) -> Bool {
        try await self.pool.query(
            """
            UPDATE carillon.schedules SET state = 'failed', state_reason = $3, wake_at = NULL
            WHERE id = $1 AND number = $2 AND state = 'waiting' RETURNING id
            """,
            .id(schedule.id), .int8(schedule.number), .text(reason)
        ).first != nil
    }

    /// The number of failed schedules that have not ended; at most 10,000.
    package func failed(now: Timestamp) async throws(PostgresError) -> Int64 {
        try await self.pool.query(ScheduleSQL.failed, .timestamp(now), .int4(clamping: 10_000)).first?.int8(0) ?? 0
    }

    /// The zones of users who have set one.
    package func zones(_ users: [String]) async throws(PostgresError) -> [ExactText: String] {
        guard !users.isEmpty else { return [:] }
        let result = try await self.pool.query(
            "SELECT user_id, zone FROM carillon.user_settings WHERE user_id = ANY($1) AND zone IS NOT NULL",
            .texts(users)
        )
        var zones: [ExactText: String] = [:]
        for row in result { zones[ExactText(try row.text(0))] = try row.text(1) }
        return zones
    }
}

extension ScheduleStore {
    /// A page of schedules that follow a zone's local time, by id, without those being fired.
    ///
    /// The fields of their jobs are left out.
    ///
    /// - Parameter last: the last id of the previous page.
    package func zoned(
        after last: ScheduleID?,
        now: Timestamp,
        limit: Int
    ) async throws(PostgresError) -> [Schedule] {
        try Self.schedules(
            try await self.pool.query(
                ScheduleSQL.zoned, .id(last ?? .least), .timestamp(now),
                .int4(clamping: limit)
            )
        )
    }

    /// The version of the time zone data that the moments were computed with; nil if unknown.
    package func zoneVersion() async throws(PostgresError) -> String? {
        try await self.pool.query("SELECT version FROM carillon.zone_data").first?.text(0)
    }

    /// Records the version of the time zone data that the moments were computed with.
    package func recordZoneVersion(_ version: String) async throws(PostgresError) {
        try await self.pool.query(
            """
            INSERT INTO carillon.zone_data (version) VALUES ($1)
            ON CONFLICT (singleton) DO UPDATE SET version = excluded.version
            """,
            .text(version)
        )
    }

    /// Lets a failed schedule wait for an occurrence again.
    package func revive(_ id: ScheduleID, at moment: Timestamp) async throws(PostgresError) {
        try await self.pool.query(
            """
            UPDATE carillon.schedules SET state = 'waiting', state_reason = NULL, due_at = $2, wake_at = $2, attempts = 0,
                wall_day = NULL, wall_minutes = NULL
            WHERE id = $1 AND state = 'failed'
            """,
            .id(id), .timestamp(moment)
        )
    }

    /// Finds one schedule.
    package func find(_ id: ScheduleID) async throws(PostgresError) -> Schedule? {
        try Self.schedules(
            try await self.pool.query(
                "SELECT \(ScheduleColumns.list) FROM carillon.schedules s WHERE s.id = $1", .id(id)
            )
        ).first
    }

    /// A page of all schedules, or of an organisation's, by id, without the pages of broadcasts.
    package func page(
        after last: ScheduleID?,
        org: String?,
        limit: Int
    ) async throws(PostgresError) -> [Schedule] {
        try Self.schedules(
            try await self.pool.query(
                ScheduleSQL.page, .id(last ?? .least), .text(org), .int4(clamping: limit)
            )
        )
    }

    /// Removes a schedule, and the parts of its occurrences that wait for recipients' zones, whose
    /// users count as cancelled.
    ///
    /// - Parameter limit: parts per statement. An occurrence of a large broadcast has a million.
    /// - Returns: whether it existed.
    package func cancel(
        _ id: ScheduleID,
        limit: Int = ScheduleStore.cancelPartsSize
    ) async throws(PostgresError) -> Bool {
        let found = try await self.find(id)
        let split = found.flatMap { $0.isRecurring && $0.zone == Schedule.recipientZone ? $0 : nil }
        // First, so that a repeated call finishes an interrupted one.
        if let split { try await self.removeParts(of: split, limit: limit) }
        // The number keeps a new schedule that has taken the id meanwhile. No schedule has 0: if it
        // is gone, the statement only lets a repeated call wait for the standby.
        let removed = try await self.pool.delete(
            "DELETE FROM carillon.schedules WHERE id = $1 AND number = $2", .id(id), .int8(found?.number ?? 0))
        guard let split else { return removed > 0 }
        // An occurrence may have been split meanwhile, even the last, which removes the row. If a
        // new schedule has taken the id, the parts may be its own.
        if removed == 0, try await self.find(id) != nil { return false }
        try await self.removeParts(of: split, limit: limit)
        return removed > 0
    }

    private func removeParts(of schedule: Schedule, limit: Int) async throws(PostgresError) {
        while true {
            // "0" follows "/" in ASCII.
            let rows = try await self.pool.query(
                ScheduleSQL.parts, .text(schedule.org), .text("\(schedule.id)/"), .text("\(schedule.id)0"),
                .int4(clamping: limit))
            guard !rows.isEmpty else { return }
            var parts: [PageOutcome] = []
            for row in rows {
                parts.append(
                    PageOutcome(
                        try Self.part(row), reason: NotificationStatus.cancelled.rawValue,
                        users: Int(try row.int4(3))))
            }
            try await self.remove(parts.map(\.schedule), outcomes: parts)
        }
    }

    /// Reads as much of a row as ``PageOutcome`` needs: its id, number and part.
    private static func part(_ row: PostgresRow) throws(PostgresError) -> Schedule {
        let unread = Timestamp(microseconds: 0)
        var part = Schedule(id: try row.id(0), fields: [], dueAt: unread, createdAt: unread)
        part.number = try row.int8(1)
        part.part = try row.text(2)
        return part
    }

    /// The number of waiting rows of a job.
    package func count(_ name: CancellationStore.Name) async throws(PostgresError) -> Int {
        let result = try await self.pool.query(ScheduleSQL.count, .text(name.org), .texts(name.ids))
        return Int(try result.first?.int8(0) ?? 0)
    }

    /// Returns the names of waiting jobs that have an id of their own and one of a name's entries.
    ///
    /// A broadcast whose pages wait is not among them, because it is known by its entry.
    package func owners(of name: CancellationStore.Name) async throws(PostgresError) -> [CancellationStore.Name] {
        guard !name.entries.isEmpty else { return [] }
        let (first, last) = name.scheduleIDs
        let result = try await self.pool.query(
            ScheduleSQL.owners, .text(name.org), .texts(name.entries), .texts(name.ids), .id(first), .id(last))
        return try result.map { (row) throws(PostgresError) in
            CancellationStore.Name(org: name.org, id: try row.text(0))
        }
    }

    /// Makes the waiting rows of a cancelled job due now, to be stored as cancelled, and removes
    /// its events and the rows that would bring its snoozed notifications back.
    ///
    /// Call it after the cancellation is recorded.
    ///
    /// - Parameter limit: rows per statement, at least 2. A large broadcast has a million of them.
    /// - Returns: the number of events that it removed.
    @discardableResult
    package func cancelJob(
        _ name: CancellationStore.Name,
        at: Timestamp,
        limit: Int = ScheduleStore.cancelSize
    ) async throws(PostgresError) -> Int {
        let most = PostgresValue.int4(clamping: limit)
        var events = 0
        for id in name.ids {
            var last = ""
            while true {
                let page = try await self.pool.query(
                    ScheduleSQL.endPage, .text(name.org), .text(id), .text(last), most, .timestamp(at))
                guard let row = page.first else { break }
                events += Int(try row.int8(2))
                guard try row.int8(0) >= Int64(limit) else { break }
                last = try row.text(1)
            }
        }
        try await self.removeSnoozes(of: name, limit: limit)
        return events
    }

    /// Removes a user from schedules for several users.
    ///
    /// ``UserStore/erase(user:)`` removes the schedules for the user alone. In a page of a
    /// broadcast, the user counts as cancelled.
    ///
    /// - Returns: the number of schedules changed or removed.
    package func erase(user: String) async throws(PostgresError) -> Int {
        var last = ScheduleID.least
        var count = 0
        while true {
            let start = last
            let result = try await self.pool.query(ScheduleSQL.naming, .text(user), .id(last))
            var changes: [PostgresStatement] = []
            var parts: [PageOutcome] = []
            for row in result {
                last = try row.id(0)
                let json = try row.optionalJSON(3) ?? []
                let fields = FieldsColumn.values(json)
                let read: [PostgresValue] = [.id(last), .jsonb(json)]
                let change = FieldsErasure.change(fields, user: user)
                if change != .none {
                    // A page names each of its users once, and no exceptions.
                    var part = PageOutcome(
                        try Self.part(row), reason: NotificationStatus.cancelled.rawValue, users: 1)
                    if change != .remove { part.fields = json }
                    parts.append(part)
                }
                switch change {
                case .none: break
                case .remove:
                    changes.append(
                        PostgresStatement("DELETE FROM carillon.schedules WHERE id = $1 AND fields = $2", read))
                case .replace(let fields):
                    changes.append(
                        PostgresStatement(
                            "UPDATE carillon.schedules SET fields = $3 WHERE id = $1 AND fields = $2",
                            read + [.jsonb(JSONWriter.bytes(of: .array(fields)))]
                        )
                    )
                }
            }
            var changed = 0
            if !changes.isEmpty {
                let results = try await self.pool.run(Self.count(parts) + changes)
                for done in results.suffix(changes.count) { changed += done.affectedRows }
            }
            count += changed
            if changed < changes.count {
                // Another erasure changed some meanwhile: read the page again.
                last = start
            } else if result.isEmpty {
                return count
            }
        }
    }

    private static func schedules(_ result: PostgresResult) throws(PostgresError) -> [Schedule] {
        try result.map { (row) throws(PostgresError) in try ScheduleColumns.read(row) }
    }
}
