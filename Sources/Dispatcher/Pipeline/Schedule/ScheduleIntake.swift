// Carillon · ScheduleIntake.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import Storage

/// Stores jobs that are due later.
struct ScheduleIntake: Sendable {
    /// A job that is due later.
    struct Waiting: Sendable {
        let origin: JobOrigin
        let job: Job
        let content: JobContent
        let lane: Lane
        /// The chain of a broadcast whose next page this is; nil for a job that names its users.
        var chain: Broadcast.Chain?
    }

    /// The fields that name the due time; stored schedules leave them out.
    private static let times: Set<String> = ["deliver_at", "deliver_local"]
    /// Names the command, because a cancelled job's id stays cancelled for days.
    private static let conflictReason =
        "id: is scheduled already with other content; give another id, or end that one with dispatcher schedules cancel"

    let dispatcher: Dispatcher

    /// Whether a job is due later.
    ///
    /// The users of a topic get their times when its pages are expanded.
    static func isLater(_ job: Job, _ content: JobContent, now: Timestamp) -> Bool {
        if content.deliverLocal != nil, case .users = job.audience { return true }
        return content.deliverAt.map { $0 > now + JobContent.scheduleTolerance } ?? false
    }

    /// Stores jobs; storing the same entry or job again changes nothing while it waits.
    ///
    /// A job that has fired fires again, and its users get nothing new.
    ///
    /// - Parameter page: returns the statements that store a broadcast's page in the same
    ///   transaction. Its argument is the number of the page's users who get nothing, because their
    ///   moment passed too long ago.
    /// - Returns: dead letters of jobs whose id another job has, or which PostgreSQL refuses.
    /// - Throws: ``PostgresError`` if PostgreSQL refuses a page.
    func store(
        _ waiting: [Waiting],
        now: Timestamp,
        withPage page: (_ late: Int) -> [PostgresStatement] = { _ in [] }
    ) async throws -> [DeadLetter] {
        guard !waiting.isEmpty else { return [] }
        let zones = try await self.zones(of: waiting)
        var schedules: [(schedule: Schedule, job: Int)] = []
        var late = 0
        for (index, item) in waiting.enumerated() {
            let parts = self.schedules(item, zones: zones, now: now)
            late += parts.late
            if parts.late > 0, item.chain == nil {
                self.dispatcher.logger.notice(
                    "job is over an hour late for some users; they do not get it",
                    metadata: ["job.id": "\(item.job.id ?? item.origin.text)", "users.count": "\(parts.late)"])
            }
            for schedule in parts.schedules { schedules.append((schedule, index)) }
        }
        let faults = try await self.add(schedules.map(\.schedule)[...], withPage: page(late))
        var failed: [Int: [(part: Schedule, reason: String)]] = [:]
        for (schedule, fault) in zip(schedules, faults) {
            if let fault { failed[schedule.job, default: []].append((schedule.schedule, fault)) }
        }
        return failed.sorted { $0.key < $1.key }.map { Self.letter(waiting[$0.key], failed: $0.value, at: now) }
    }

    /// Stores schedules as one batch.
    ///
    /// Halves a batch that PostgreSQL refuses until the bad schedule is alone, and a batch that
    /// outlasts its time limit until it does not. A page and its schedules stay one transaction.
    ///
    /// - Returns: for each, the reason of its dead letter; nil if it is stored.
    private func add(
        _ schedules: ArraySlice<Schedule>,
        withPage page: [PostgresStatement]
    ) async throws -> [String?] {
        let isFinal = { (error: any Error) in
            JobIntake.isRefusal(error) || page.isEmpty && schedules.count > 1 && JobIntake.isTooLong(error)
        }
        do {
            let outcomes = try await self.dispatcher.retrying("store schedules", isFinal: isFinal) {
                try await self.dispatcher.database.schedules.add(Array(schedules), withPage: page)
            }
            return outcomes.map { $0 == .conflict ? Self.conflictReason : nil }
        } catch let error as PostgresError where page.isEmpty && isFinal(error) {
            guard schedules.count > 1 else { return [error.refusalReason] }
            let middle = schedules.startIndex + schedules.count / 2
            return try await self.add(schedules[..<middle], withPage: [])
                + self.add(schedules[middle...], withPage: [])
        }
    }

    /// Returns the dead letter of a job with failed parts.
    ///
    /// It names only the users of these parts, because the others are stored. A broadcast has one
    /// letter for all of its pages.
    private static func letter(
        _ item: Waiting,
        failed: [(part: Schedule, reason: String)],
        at now: Timestamp
    ) -> DeadLetter {
        let origin = item.origin
        var fields = origin.latestFields
        let lists = failed.compactMap { failure in failure.part.fields.first { $0.name == "users" }?.value }
        let users = lists.flatMap { (try? JSONParser.parse($0))?.array ?? [] }
        if item.chain == nil, !users.isEmpty, users.count < JobIntake.users(item.job).count {
            fields.removeAll { JobFields.audience.contains($0.name) }
            fields.append((name: "users", value: JSONWriter.bytes(of: .array(users))[...]))
        }
        return DeadLetter(
            stream: origin.latestStream, entry: origin.latestEntry,
            reason: Set(failed.map(\.reason)).sorted().joined(separator: "; "), at: now, fields: fields)
    }

    private func zones(of waiting: [Waiting]) async throws -> [ExactText: String] {
        let users = waiting.filter { $0.content.deliverLocal != nil }.flatMap { JobIntake.users($0.job) }
        guard !users.isEmpty else { return [:] }
        return try await self.dispatcher.retrying("look up zones") {
            try await self.dispatcher.database.schedules.zones(ExactText.distinct(users))
        }
    }

    private func schedules(
        _ item: Waiting,
        zones: [ExactText: String],
        now: Timestamp
    ) -> (schedules: [Schedule], late: Int) {
        let fields = item.origin.fields
        let stream = item.origin.stream
        let origin = EntryDigest(stream: stream, entry: item.origin.entry, fields: fields)
        // The trace differs between repeats of the same job.
        let given = fields.filter { $0.name != SpanTracer.field }
        let asked = Identifier(origin: EntryDigest(stream: "", entry: "", fields: given), user: "")
        let kept = fields.filter { !Self.times.contains($0.name) }.map { (name: $0.name, value: Array($0.value)) }
        // A job without an id gets its entry as its id, so that it is found after it has fired, and
        // so that a user who changed zones between two attempts is notified once.
        let job = item.job.id ?? item.origin.text
        let id = kept.contains { $0.name == "id" } ? [] : [(name: "id", value: Array(job.utf8))]
        func schedule(
            part: String,
            fields: [(name: String, value: [UInt8])],
            users: [String]?,
            at moment: Timestamp
        ) -> Schedule {
            var schedule = Schedule(
                id: ScheduleID(origin: origin, user: part), fields: fields, dueAt: moment, createdAt: now)
            schedule.org = item.job.org
            schedule.jobID = job
            schedule.part = part
            // Nil for pages: an erasure finds their users by the fields, and counts them.
            schedule.user = item.chain == nil && users?.count == 1 ? users?.first : nil
            schedule.source = item.origin.text
            schedule.lane = item.lane
            schedule.content = Int64(bitPattern: asked.low)
            return schedule
        }
        guard let wall = item.content.deliverLocal else {
            var users: [String]?
            if case .users(let named) = item.job.audience { users = named }
            return ([schedule(part: "", fields: kept + id, users: users, at: item.content.deliverAt ?? now)], 0)
        }
        // The job's own time decides the day, however late it is taken; so all pages of a broadcast
        // mean the same day.
        let createdAt = item.chain?.broadcast.createdAt ?? item.origin.enqueuedAt(now: now)
        let start = wall.day == nil ? createdAt : now
        // An occurrence that is over an hour late is dropped, unless an operator replays it.
        let delivery = LocalDelivery(
            JobIntake.users(item.job).map { ($0, zones[ExactText($0)]) },
            at: wall,
            now: start,
            defaultZone: self.dispatcher.zones.fallback,
            lateness: item.origin.latestStream == ScheduleFiring.stream ? Recurrence.missedLimit : nil,
            rules: { self.dispatcher.zones.database.rules($0) }
        )
        PipelineMetrics.unknownZones.increment(by: delivery.unknownZones)
        let schedules: [Schedule] = delivery.parts.map { part in
            let list = JSONWriter.bytes(of: .array(part.users.map { .string($0) }))
            let fields = kept.filter { !JobFields.audience.contains($0.name) } + [(name: "users", value: list)] + id
            var name = part.zone
            if let chain = item.chain {
                let users = Identifier(origin: origin, user: String(decoding: list, as: UTF8.self))
                name = Schedule.Page.part(zone: part.zone, chain: chain, users: users)
            }
            var result = schedule(part: name, fields: fields, users: part.users, at: part.at)
            result.zone = part.zone
            result.wall = part.wall
            return result
        }
        return (schedules, delivery.late)
    }
}
