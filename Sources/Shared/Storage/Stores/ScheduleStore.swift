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
        /// The fields of a schedule that stays; nil for one that is removed.
        ///
        /// One that stays is counted only if it still has them and is not being fired, because its
        /// firing counts all users that it had.
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
    /// The parts of an occurrence that one statement reads; it unpacks the users of each to count
    /// them.
    package static let cancelPartsSize = 500

    let pool: PostgresPool

    // MARK: Adding

    /// Stores schedules; leaves a known one, or another of the same job, as it is.
    ///
    /// - Parameter page: statements that come first in the same transaction, such as the page of a
    ///   broadcast whose users the schedules have.
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
            // Cancellations are forgotten before the job may be due: it fires now and is stored as
            // cancelled.
            PostgresStatement(ScheduleSQL.wakeCancelled, [parameters[0]]),
        ]
        let results = Array(try await self.pool.run(page + own).dropFirst(page.count))
        let added = Set(try results[1].ids())
        var outcomes = schedules.map { added.contains($0.id) ? Outcome.stored : .known }
        for row in results[2] {
            let position = Int(try row.int4(0))
            if outcomes.indices.contains(position) { outcomes[position] = .conflict }
        }
        return outcomes
    }

    /// Stores the schedule of a call unless its organisation has `limit` of them.
    package func put(_ schedule: Schedule, limit: Int) async throws(PostgresError) -> Outcome {
        let results = try await self.pool.run([
            CancellationSQL.beforeStoring,
            // Serialises calls of one organisation, so that the count holds.
            PostgresStatement(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", [.text("carillon.schedules " + schedule.org)]),
            PostgresStatement(
                ScheduleSQL.put,
                ScheduleColumns.parameters([schedule]) + [.text(schedule.org), .int8(Int64(limit))]
            ),
            PostgresStatement(ScheduleSQL.content, [.id(schedule.id)]),
            PostgresStatement(ScheduleSQL.wakeCancelled, [.ids([schedule.id])]),
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
    /// - Parameter hasRoom: whether to claim pages of broadcasts too; those of cancelled ones are
    ///   claimed always, because they make no deliveries.
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

    /// Notes that the due pages of recurring schedules wait for their full lane, so that they do
    /// not count as missed.
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

    /// Extends the claims of schedules that are being fired; of none that has moved on since.
    package func hold(_ schedules: [Schedule], until: Timestamp) async throws(PostgresError) {
        let (ids, numbers) = Self.keys(schedules)
        try await self.pool.query(
            ScheduleSQL.hold, ids, numbers, .timestamps(schedules.map(\.dueAt)), .timestamp(until))
    }

    /// Removes finished or cancelled schedules; repeating it changes nothing.
    ///
    /// - Parameter outcomes: how many users of the pages of broadcasts among them have a stored
    ///   notification, or none for a reason. They no longer count as `scheduled`.
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
            counts.append((outcome.schedule, page, "scheduled", -outcome.users, fields))
        }
        guard !counts.isEmpty else { return [] }
        let (ids, numbers) = Self.keys(counts.map(\.schedule))
        let parameters: [PostgresValue] = [
            ids, numbers, .int4s(clamping: counts.map(\.page.chain)), .int4s(clamping: counts.map(\.page.number)),
            .texts(counts.map(\.reason)), .int4s(clamping: counts.map(\.users)),
            .optionalTexts(counts.map(\.fields)),
        ]
        // Once it has the lock, the count sees whether another dispatcher has removed a schedule.
        return [PostgresStatement(ScheduleSQL.lockPages, parameters)]
            + (outcomes.contains { $0.fields != nil } ? [PostgresStatement(ScheduleSQL.lock, [ids])] : [])
            + [PostgresStatement(ScheduleSQL.countOutcomes, parameters)]
    }

    /// Ids and numbers, as a claimed schedule may have been replaced by another with the same id.
    private static func keys(_ schedules: [Schedule]) -> (ids: PostgresValue, numbers: PostgresValue) {
        (.ids(schedules.map(\.id)), .int8s(schedules.map(\.number)))
    }

    /// A schedule's step to its next occurrence.
    package struct Step: Sendable {
        let id: NotificationID
        /// The occurrence that it leaves; if the schedule is elsewhere, nothing changes.
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
    package func advance(_ steps: [Step]) async throws(PostgresError) -> Set<NotificationID> {
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
        after last: NotificationID?,
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
    package func noteZoneVersion(_ version: String) async throws(PostgresError) {
        try await self.pool.query(
            """
            INSERT INTO carillon.zone_data (version) VALUES ($1)
            ON CONFLICT (singleton) DO UPDATE SET version = excluded.version
            """,
            .text(version)
        )
    }

    /// Lets a failed schedule wait for an occurrence again.
    package func revive(_ id: NotificationID, at moment: Timestamp) async throws(PostgresError) {
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
    package func find(_ id: NotificationID) async throws(PostgresError) -> Schedule? {
        try Self.schedules(
            try await self.pool.query(
                "SELECT \(ScheduleColumns.list) FROM carillon.schedules s WHERE s.id = $1", .id(id)
            )
        ).first
    }

    /// A page of all schedules but those of broadcasts, or of an organisation's, by id.
    package func page(
        after last: NotificationID?,
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
        _ id: NotificationID,
        limit: Int = ScheduleStore.cancelPartsSize
    ) async throws(PostgresError) -> Bool {
        guard let schedule = try await self.find(id) else { return false }
        let hasParts = schedule.isRecurring && schedule.zone == Schedule.recipientZone
        // First, so that a repeated call finishes an interrupted one.
        if hasParts { try await self.removeParts(of: schedule, limit: limit) }
        let wasThere =
            try await self.pool.query("DELETE FROM carillon.schedules WHERE id = $1", .id(id)).affectedRows > 0
        // An occurrence may have been split meanwhile.
        if hasParts { try await self.removeParts(of: schedule, limit: limit) }
        return wasThere
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
    /// those that would bring its snoozed notifications back.
    ///
    /// Call it after the cancellation is recorded.
    ///
    /// - Parameter limit: rows per statement, at least 2. A large broadcast has a million of them.
    package func cancelJob(
        _ name: CancellationStore.Name,
        at: Timestamp,
        limit: Int = ScheduleStore.cancelSize
    ) async throws(PostgresError) {
        let most = PostgresValue.int4(clamping: limit)
        for id in name.ids {
            var last = ""
            while true {
                let page = try await self.pool.query(
                    ScheduleSQL.wakePage, .text(name.org), .text(id), .text(last), most, .timestamp(at))
                guard let row = page.first, try row.int8(0) >= Int64(limit) else { break }
                last = try row.text(1)
            }
        }
        try await self.removeSnoozes(of: name, limit: limit)
    }

    /// Removes a user from schedules for several users; those for the user alone are found by the
    /// column `user_id`.
    ///
    /// In a page of a broadcast, the user counts as cancelled.
    ///
    /// - Returns: the number of schedules changed or removed.
    package func erase(user: String) async throws(PostgresError) -> Int {
        var last = NotificationID.least
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

/// The longer statements of ``ScheduleStore``.
enum ScheduleSQL {
    /// Whether the schedule `s` brings a snoozed notification back.
    ///
    /// - Parameter id: the expression of its id.
    static func isSnooze(of id: String) -> String { "starts_with(s.job_id, 'snooze:' || \(id) || ':')" }

    /// Whether no job with the id of the new schedule `n` waits for another kind of time: for one
    /// moment, or for local times.
    ///
    /// A page of a broadcast may: its id was taken when the broadcast was stored.
    private static let isFree = """
        (n.part LIKE '% %' OR NOT EXISTS (
            SELECT FROM carillon.schedules s
            WHERE s.org_id = n.org_id AND s.job_id = n.job_id AND s.cron IS NULL AND (s.part = '') <> (n.part = '')
        ))
        """

    static let add = ScheduleColumns.insert + " WHERE \(Self.isFree) ON CONFLICT DO NOTHING RETURNING id"

    /// $18: organisation, $19: its limit.
    static let put =
        ScheduleColumns.insert + """

             WHERE \(Self.isFree) AND (SELECT count(*) FROM (
                SELECT FROM carillon.schedules WHERE org_id = $18 AND source = 'api' LIMIT $19
            ) own) < $19
            ON CONFLICT DO NOTHING
            """

    static let content = "SELECT content FROM carillon.schedules WHERE id = $1"

    /// The new schedules whose id belongs to a job that was scheduled with other content, or for
    /// another kind of time.
    static let conflicts = """
        SELECT (n.place - 1)::int4
        FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS n (id, org_id, job_id, part, content, place)
        WHERE EXISTS (
            SELECT FROM carillon.schedules s
            WHERE s.org_id = n.org_id AND s.job_id = n.job_id AND s.part = n.part AND s.cron IS NULL
                AND s.content <> n.content
        ) OR NOT \(Self.isFree) AND NOT EXISTS (SELECT FROM carillon.schedules o WHERE o.id = n.id)
        """

    /// Wakes schedules whose job was cancelled before.
    ///
    /// A cancelled entry also cancels the job's own id, because a broadcast fires as another entry.
    ///
    /// A source that is no entry, such as `api`, may also be the id of another job. $1: ids of new
    /// schedules.
    static let wakeCancelled = """
        WITH cancelled AS MATERIALIZED (
            SELECT s.id, s.org_id, s.job_id, x.at
            FROM carillon.schedules s
            CROSS JOIN LATERAL (
                SELECT max(c.at) AS at FROM carillon.cancellations c
                WHERE c.org_id = s.org_id AND c.job_id = ANY (ARRAY[
                    s.job_id, CASE WHEN s.source LIKE '%/%' THEN s.source END, split_part(s.source, '/', 2)])
            ) x
            WHERE s.id = ANY($1) AND s.cron IS NULL AND x.at IS NOT NULL
        ),
        named AS (
            INSERT INTO carillon.cancellations (org_id, job_id, at)
            SELECT c.org_id, c.job_id, max(c.at) FROM cancelled c WHERE c.job_id IS NOT NULL
            GROUP BY c.org_id, c.job_id ORDER BY c.org_id, c.job_id
            ON CONFLICT (org_id, job_id) DO NOTHING
        )
        UPDATE carillon.schedules s SET wake_at = now() FROM cancelled c
        WHERE s.id = c.id AND s.attempts = 0 AND s.wake_at > now()
        """

    /// The literal lets the index `schedules_pages` serve it.
    static let isPage = "part LIKE '% %'"
    /// Any other job, by the index `schedules_due`.
    static let isJob = "part NOT LIKE '% %'"

    /// $1: lane, $2: now.
    static let duePage = """
        SELECT FROM carillon.schedules WHERE lane = $1 AND wake_at <= $2 AND \(Self.isPage) ORDER BY wake_at LIMIT 1
        """

    /// Tells only the first claim from later ones: a schedule claimed with others may never be
    /// reached.
    ///
    /// $1: lane, $2: now, $3: end of the claim, $4: whether pages of broadcasts may be claimed that
    /// are not cancelled.
    static let claim = """
        UPDATE carillon.schedules s
        SET wake_at = $3, attempts = CASE s.attempts WHEN 0 THEN 1 ELSE greatest(s.attempts, 2) END
        WHERE s.id = ANY(ARRAY(
            SELECT id FROM carillon.schedules
            WHERE lane = $1 AND wake_at <= $2 AND \(Self.isJob)
            ORDER BY wake_at LIMIT \(ScheduleStore.claimSize) FOR UPDATE SKIP LOCKED
        ) || ARRAY(
            SELECT p.id FROM carillon.schedules p
            WHERE p.lane = $1 AND p.wake_at <= $2 AND p.\(Self.isPage) AND (
                $4 OR EXISTS (SELECT FROM carillon.cancellations) AND EXISTS (
                    SELECT FROM carillon.cancellations c
                    WHERE c.org_id = p.org_id AND c.job_id IN (p.job_id, p.source)
                )
            )
            ORDER BY p.wake_at LIMIT \(ScheduleStore.pageClaimSize) FOR UPDATE SKIP LOCKED
        ))
        RETURNING \(ScheduleColumns.list)
        """

    /// Marks due pages of recurring schedules by a creation after their moment.
    ///
    /// A page wakes at its moment or later, so the index bounds the search to those in time.
    ///
    /// $1: lane, $2: now, $3: least moment, $4: limit.
    static let holdPages = """
        UPDATE carillon.schedules s SET created_at = $2
        WHERE s.id = ANY(ARRAY(
            SELECT id FROM carillon.schedules
            WHERE lane = $1 AND wake_at >= $3 AND wake_at <= $2 AND due_at >= $3 AND due_at < $2
                AND created_at <= due_at AND \(Self.isPage) AND source LIKE '\(Keyspace.schedules)/%'
            ORDER BY wake_at LIMIT $4 FOR UPDATE SKIP LOCKED
        ))
        """

    /// $1: id, $2: attempts when it was claimed, $3: number.
    static let beginAlone = """
        UPDATE carillon.schedules SET attempts = least($2 + 1, 30000)::smallint WHERE id = $1 AND number = $3
        """

    /// $1: ids, $2: numbers, $3: current occurrences, $4: end of the claims.
    static let hold = """
        UPDATE carillon.schedules s SET wake_at = $4
        FROM unnest($1, $2, $3) AS n (id, number, due)
        WHERE s.id = n.id AND s.number = n.number AND s.due_at = n.due AND s.wake_at IS NOT NULL
        """

    /// The counts of those schedules that still exist, with their broadcasts; with fields, also
    /// only of those that have them and are not being fired.
    ///
    /// $1: ids, $2: numbers, $3, $4: pages, $5: reasons, $6: users, $7: fields or nulls.
    private static let outcomes = """
        SELECT b.id AS broadcast, n.part, n.page, n.reason, n.users
        FROM unnest($1, $2, $3, $4, $5, $6, $7) AS n (id, number, part, page, reason, users, fields)
        JOIN carillon.schedules s ON s.id = n.id AND s.number = n.number AND (
            n.fields IS NULL
            OR s.fields = n.fields::jsonb AND (s.attempts > 0 AND s.wake_at > now()) IS NOT TRUE
        )
        JOIN carillon.broadcasts b ON b.org_id = s.org_id AND b.job_id = s.job_id
        """

    /// Locks schedules that are counted, so that no dispatcher claims them meanwhile.
    ///
    /// $1: ids.
    static let lock = "SELECT FROM carillon.schedules WHERE id = ANY($1) ORDER BY id FOR UPDATE"

    /// Locks the pages of ``countOutcomes``, in one order for all dispatchers.
    ///
    /// $1 to $7: as in ``outcomes``.
    static let lockPages = """
        SELECT FROM carillon.broadcast_pages p
        WHERE (p.broadcast, p.part, p.number) IN (SELECT r.broadcast, r.part, r.page FROM (\(Self.outcomes)) r)
        ORDER BY p.broadcast, p.part, p.number FOR NO KEY UPDATE
        """

    /// Adds users to the stored ones of pages, and to the others by reason.
    ///
    /// Each page has others, because its users leave `scheduled`. $1 to $7: as in ``outcomes``.
    static let countOutcomes = """
        WITH outcomes AS (
            SELECT r.broadcast, r.part, r.page, r.reason, sum(r.users) AS users FROM (\(Self.outcomes)) r
            GROUP BY r.broadcast, r.part, r.page, r.reason
        ), pages AS (
            SELECT o.broadcast, o.part, o.page,
                coalesce(sum(o.users) FILTER (WHERE o.reason = '\(ScheduleStore.stored)'), 0)::int4 AS stored,
                jsonb_object_agg(o.reason, o.users) FILTER (WHERE o.reason <> '\(ScheduleStore.stored)') AS others
            FROM outcomes o GROUP BY o.broadcast, o.part, o.page
        )
        UPDATE carillon.broadcast_pages p SET
            stored = p.stored + n.stored,
            counted = p.counted || (
                SELECT jsonb_object_agg(e.key, coalesce((p.counted ->> e.key)::int8, 0) + e.value::int8)
                FROM jsonb_each_text(n.others) e
            )
        FROM pages n WHERE p.broadcast = n.broadcast AND p.part = n.part AND p.number = n.page
        """

    /// Leaves a job alone that waits no longer because it was cancelled.
    static let advance = """
        UPDATE carillon.schedules s SET due_at = n.due, wake_at = n.wake, wall_day = n.day, wall_minutes = n.minutes,
            last_fired_at = coalesce(n.fired, s.last_fired_at),
            attempts = CASE WHEN n.wake > n.due THEN s.attempts ELSE 0 END
        FROM unnest($1, $2, $3, $4, $5, $6, $7) AS n (id, was, due, day, minutes, fired, wake)
        WHERE s.id = n.id AND s.due_at = n.was AND s.state = 'waiting'
            AND (s.cron IS NOT NULL OR s.wake_at >= s.due_at)
        RETURNING s.id
        """

    /// $1: last id, $2: now, $3: limit.
    static let zoned = """
        SELECT \(ScheduleColumns.listWithoutFields) FROM carillon.schedules s
        WHERE s.zone IS NOT NULL AND s.zone <> 'recipient' AND s.id > $1 AND (s.due_at > $2 OR s.state = 'failed')
        ORDER BY s.id LIMIT $3
        """

    /// Counts the failed schedules that have not ended, up to a bound.
    ///
    /// No others lack `wake_at`, by which the index `schedules_due` finds them.
    ///
    /// $1: now, $2: bound.
    static let failed = """
        SELECT count(*) FROM (
            SELECT FROM carillon.schedules
            WHERE lane IN (\(Lane.allCases.map { "\($0.rank)" }.joined(separator: ", "))) AND wake_at IS NULL
                AND \(Self.isJob) AND state = 'failed' AND (ends_at IS NULL OR ends_at > $1)
            LIMIT $2
        ) f
        """

    /// Makes the waiting rows of a page of a job due now.
    ///
    /// $1: organisation, $2: job id, $3: least part, $4: limit, $5: when. Row: the number of rows
    /// in the page and the part of the last one.
    static let wakePage = """
        WITH page AS MATERIALIZED (
            SELECT id, part FROM carillon.schedules
            WHERE org_id = $1 AND job_id = $2 AND cron IS NULL AND part >= $3 ORDER BY part LIMIT $4
        ), woken AS (
            UPDATE carillon.schedules s SET wake_at = $5 FROM page p
            WHERE s.id = p.id AND s.wake_at > $5 AND s.attempts = 0
        )
        SELECT count(*), max(part) FROM page
        """

    /// Finds rows of jobs whose ids lie between two others.
    ///
    /// $1: organisation, $2, $3: job ids, $4: limit. Rows: id, number, part, and the number of
    /// users if it is a page of a broadcast, else 0.
    static let parts = """
        SELECT id, number, part, CASE WHEN \(Self.isPage) THEN coalesce((
            SELECT json_array_length((f ->> 1)::json) FROM jsonb_array_elements(fields) f
            WHERE f ->> 0 = 'users' LIMIT 1
        ), 0) ELSE 0 END
        FROM carillon.schedules
        WHERE org_id = $1 AND job_id > $2 AND job_id < $3 AND cron IS NULL LIMIT $4
        """

    /// $1: organisation, $2: job ids.
    static let count = """
        SELECT count(*) FROM carillon.schedules WHERE org_id = $1 AND job_id = ANY($2) AND cron IS NULL
        """

    /// The ids of the waiting jobs that came from these entries, except the ids in $3.
    ///
    /// $1: organisation, $2: entries with their streams, $3: ids, $4 and $5: the least and the
    /// greatest id of their schedules.
    static let owners = """
        SELECT DISTINCT w.job_id FROM unnest($2) AS e (name)
        CROSS JOIN LATERAL (
            SELECT s.job_id FROM carillon.schedules s
            WHERE s.id BETWEEN $4 AND $5 AND s.org_id = $1 AND s.source = e.name AND s.cron IS NULL LIMIT 1
        ) w
        WHERE w.job_id <> ALL ($3)
            AND NOT EXISTS (SELECT FROM carillon.broadcasts b WHERE b.org_id = $1 AND b.job_entry = e.name)
        """

    /// Leaves out the pages of broadcasts, which may be hundreds of thousands.
    ///
    /// $1: last id, $2: organisation or null, $3: limit.
    static let page = """
        SELECT \(ScheduleColumns.list) FROM carillon.schedules s
        WHERE s.id > $1 AND ($2::text IS NULL OR s.org_id = $2) AND s.part NOT LIKE '% %' ORDER BY s.id LIMIT $3
        """

    /// Reads a page of schedules for several users, with the fields of those that may name a user.
    ///
    /// The page bounds how many are unpacked at a time. $1: user, $2: last id. Rows: id, number,
    /// part and fields.
    static let naming = """
        WITH page AS MATERIALIZED (
            SELECT id, number, part, fields FROM carillon.schedules
            WHERE user_id IS NULL AND id > $2 ORDER BY id LIMIT 1000
        )
        SELECT s.id, s.number, s.part, CASE WHEN \(FieldsErasure.mayName("$1", in: "s.fields")) THEN s.fields END
        FROM page s ORDER BY s.id
        """
}
