// Carillon · ScheduleStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Jobs that are due later.
package struct ScheduleStore: Sendable {
    /// What became of a schedule that was to be added.
    package enum Outcome: Sendable, Equatable {
        case stored
        /// It was there already.
        case known
        /// Its id stands for something else.
        case conflict
        /// Its organisation has as many as it may.
        case full
    }

    /// How many of one lane are claimed at once.
    package static let claimSize = 256

    let pool: PostgresPool

    // MARK: Adding

    /// Stores schedules; one that is known, or another of the same job, is left as it is.
    ///
    /// - Returns: an outcome for each, in order; never ``Outcome/full``.
    package func add(_ schedules: [Schedule]) async throws(PostgresError) -> [Outcome] {
        guard !schedules.isEmpty else { return [] }
        let parameters = ScheduleColumns.parameters(schedules)
        let results = try await self.pool.run([
            CancellationSQL.beforeStoring,
            PostgresStatement(ScheduleSQL.add, parameters),
            PostgresStatement(
                ScheduleSQL.conflicts, [parameters[0], parameters[1], parameters[2], parameters[3], parameters[8]]
            ),
            // A cancellation is not remembered for as long as a job may wait: it comes now, to be stored as cancelled.
            PostgresStatement(ScheduleSQL.wakeCancelled, [parameters[0]]),
        ])
        guard results.count == 4 else { throw PostgresError(.decoding, "there are no outcomes") }
        var added: Set<NotificationID> = []
        for row in results[1] { added.insert(NotificationID(try row.uuid(0))) }
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
            // Two calls of an organisation count one after the other.
            PostgresStatement(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", [.text("carillon.schedules " + schedule.org)]),
            PostgresStatement(
                ScheduleSQL.put,
                ScheduleColumns.parameters([schedule]) + [.text(schedule.org), .int8(Int64(limit))]
            ),
            PostgresStatement(ScheduleSQL.content, [.uuid(schedule.id.halves)]),
        ])
        guard results.count == 3 else { throw PostgresError(.decoding, "there is no outcome") }
        if results[1].affectedRows == 1 { return .stored }
        if let row = results[2].first { return try row.int8(0) == schedule.content ? .known : .conflict }
        guard let job = schedule.jobID, !schedule.isRecurring else { return .full }
        let others = try await self.pool.query(
            "SELECT FROM carillon.schedules WHERE org_id = $1 AND job_id = $2 AND part = $3 AND cron IS NULL",
            .text(schedule.org), .text(job), .text(schedule.part)
        )
        return others.isEmpty ? .full : .conflict
    }

    // MARK: Firing

    /// Claims what is due in a lane, the earliest first; it is due again after `hold`.
    package func claim(_ lane: Lane, now: Timestamp, hold: Duration) async throws(PostgresError) -> [Schedule] {
        let result = try await self.pool.query(
            ScheduleSQL.claim, .int4(ScheduleColumns.number(lane)), .timestamptz(now.microseconds),
            .timestamptz((now + hold).microseconds)
        )
        var schedules: [Schedule] = []
        schedules.reserveCapacity(result.count)
        for row in result { schedules.append(try ScheduleColumns.read(row)) }
        return schedules.sorted { ($0.dueAt, $0.number) < ($1.dueAt, $1.number) }
    }

    /// Notes that one that was claimed before is fired alone now; the same when it is said again.
    ///
    /// - Parameter schedule: as it was claimed.
    /// - Returns: whether it is still there.
    package func beginAlone(_ schedule: Schedule) async throws(PostgresError) -> Bool {
        try await self.pool.query(
            ScheduleSQL.beginAlone, .uuid(schedule.id.halves), .int4(Int32(clamping: schedule.attempts))
        ).affectedRows > 0
    }

    /// Holds on to what is being fired.
    package func hold(_ ids: [NotificationID], until: Timestamp) async throws(PostgresError) {
        try await self.pool.query(
            "UPDATE carillon.schedules SET wake_at = $2 WHERE id = ANY($1) AND wake_at IS NOT NULL",
            .array(PostgresArray(uuids: ids.map(\.halves))), .timestamptz(until.microseconds)
        )
    }

    /// Forgets those that are done.
    package func remove(_ ids: [NotificationID]) async throws(PostgresError) {
        guard !ids.isEmpty else { return }
        try await self.pool.query(
            "DELETE FROM carillon.schedules WHERE id = ANY($1)", .array(PostgresArray(uuids: ids.map(\.halves)))
        )
    }

    /// A schedule's step from one occurrence to another.
    package struct Step: Sendable {
        package let id: NotificationID
        /// The occurrence that it leaves; where it is another by now, nothing changes.
        package let from: Timestamp
        package let to: Timestamp
        package let wall: WallTime?
        /// When it fired; nil if it did not.
        package let firedAt: Timestamp?
        /// When it is looked at next.
        package let wakeAt: Timestamp

        /// - Parameter from: where it stands; its ``Schedule/dueAt`` if nil.
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

    /// Moves schedules on, each only from the occurrence where it stood.
    ///
    /// - Returns: those that were moved.
    @discardableResult
    package func advance(_ steps: [Step]) async throws(PostgresError) -> Set<NotificationID> {
        guard !steps.isEmpty else { return [] }
        var days = PostgresArray(.int4)
        var minutes = PostgresArray(.int4)
        for step in steps {
            if let day = step.wall?.day { days.append(int4: Int32(clamping: day)) } else { days.appendNull() }
            if let wall = step.wall { minutes.append(int4: Int32(wall.time.minutes)) } else { minutes.appendNull() }
        }
        func moments(_ moment: (Step) -> Timestamp?) -> PostgresValue {
            var array = PostgresArray(.timestamptz)
            for step in steps { array.append(timestamptz: moment(step)?.microseconds) }
            return .array(array)
        }
        let result = try await self.pool.query(
            ScheduleSQL.advance, .array(PostgresArray(uuids: steps.map(\.id.halves))), moments(\.from), moments(\.to),
            .array(days), .array(minutes), moments(\.firedAt), moments(\.wakeAt)
        )
        var moved: Set<NotificationID> = []
        for row in result { moved.insert(NotificationID(try row.uuid(0))) }
        return moved
    }

    /// Marks a schedule as one that fires no more, and why.
    package func fail(_ id: NotificationID, reason: String) async throws(PostgresError) {
        try await self.pool.query(
            "UPDATE carillon.schedules SET state = 'failed', state_reason = $2, wake_at = NULL WHERE id = $1",
            .uuid(id.halves), .text(reason)
        )
    }

    /// The zones of users who have set one.
    package func zones(_ users: [String]) async throws(PostgresError) -> [ExactText: String] {
        guard !users.isEmpty else { return [:] }
        let result = try await self.pool.query(
            "SELECT user_id, zone FROM carillon.user_settings WHERE user_id = ANY($1) AND zone IS NOT NULL",
            .array(PostgresArray(texts: users))
        )
        var zones: [ExactText: String] = [:]
        for row in result { zones[ExactText(try row.text(0))] = try row.text(1) }
        return zones
    }
}
