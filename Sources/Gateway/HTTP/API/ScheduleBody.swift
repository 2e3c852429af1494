// Carillon · ScheduleBody.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Storage

/// Reads the body of `POST /v1/schedules`: when, and which job.
struct ScheduleBody {
    private static let longestZone = 64

    let catalog: Catalog
    /// Those that a job's `platform` may name.
    let providers: [Provider]
    let zones: ZoneDatabase
    let now: Timestamp

    /// - Throws: ``Problem`` 400 or 422 with every fault.
    func read(_ value: JSONValue) throws -> Schedule {
        var body = try JSONBody(value)
        body.allow(["id", "cron", "zone", "at", "starts_at", "ends_at", "job"])
        let id = self.id(&body)
        let (fields, job) = self.job(&body)
        let at = self.moment("at", &body)
        let cron = body.text("cron", limit: 256)
        if (at == nil) == (cron == nil), body.faults.isEmpty { body.fault("cron", "or at is needed, and not both") }
        var first: (at: Timestamp, wall: WallTime?)?
        let (startsAt, endsAt) = (self.moment("starts_at", &body), self.moment("ends_at", &body))
        if let cron {
            let zone = body.text("zone", limit: Self.longestZone, isRequired: true)
            first = self.first(cron, zone: zone, startsAt: startsAt, endsAt: endsAt, job: job, &body)
        } else {
            for name in ["zone", "starts_at", "ends_at"] where body.value[name] ?? .null != .null {
                body.fault(name, "goes with cron")
            }
            if let at, at <= self.now { body.fault("at", "is in the past") }
        }
        if cron != nil, job?.id != nil {
            body.fault("job.id", "does not go with cron: each occurrence has one of its own")
        }
        try body.finish()
        guard let job, let due = at ?? first?.at else {
            throw Problem(.unprocessableContent, "some fields are at fault")
        }

        var schedule = Schedule(id: id, fields: fields, dueAt: due, createdAt: self.now)
        schedule.org = job.org
        if case .users(let users) = job.audience, users.count == 1 { schedule.user = users.first }
        schedule.lane = self.lane(job)
        schedule.content = Self.content(value)
        schedule.cron = cron
        schedule.zone = cron == nil ? nil : body.value["zone"]?.string
        schedule.wall = first?.wall
        schedule.startsAt = startsAt
        schedule.endsAt = endsAt
        if cron == nil {
            let jobID = job.id ?? Self.randomID().description
            schedule.jobID = jobID
            if job.id == nil { schedule.fields.append(("id", Array(jobID.utf8))) }
        }
        return schedule
    }

    // MARK: Parts

    private func id(_ body: inout JSONBody) -> NotificationID {
        guard let text = body.text("id", limit: 36) else { return Self.randomID() }
        if let id = NotificationID(text), id.halves != (0, 0) { return id }
        body.fault("id", "must be a UUID such as 0190b5a2-0000-7000-8000-000000000001")
        return Self.randomID()
    }

    private static func randomID() -> NotificationID {
        NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID
    }

    /// The job, checked with the decoder that the dispatcher uses.
    private func job(_ body: inout JSONBody) -> (fields: [(name: String, value: [UInt8])], job: Job?) {
        guard let members = body.value["job"]?.object else {
            body.fault("job", "must be an object with the fields of a job")
            return ([], nil)
        }
        for name in ["deliver_at", "deliver_local"] where members.contains(where: { $0.key == name }) {
            body.fault("job.\(name)", "does not go here: say when in at or cron")
        }
        let fields = JobFields.flat(members.filter { !$0.key.hasPrefix("deliver_") })
        do throws(JobFaults) {
            return (fields, try self.catalog.job(fields.map { ($0.name, $0.value[...]) }, providers: self.providers))
        } catch {
            for fault in error.faults { body.fault("job.\(fault.field)", fault.reason) }
            return (fields, nil)
        }
    }

    private func first(
        _ cron: String,
        zone: String?,
        startsAt: Timestamp?,
        endsAt: Timestamp?,
        job: Job?,
        _ body: inout JSONBody
    ) -> (at: Timestamp, wall: WallTime?)? {
        var rules: ZoneRules?
        if let zone, zone != Schedule.recipientZone {
            rules = self.zones.current(zone)
            if rules == nil {
                body.fault("zone", "is no IANA time zone; give one such as Europe/Berlin, or \(Schedule.recipientZone)")
            }
        } else if zone != nil, case .event? = job?.payload {
            body.fault("zone", "\(Schedule.recipientZone) does not go with an event")
        }
        if let startsAt, let endsAt, endsAt < startsAt { body.fault("ends_at", "is before starts_at") }
        do throws(CronFault) {
            let expression = try CronExpression(cron)
            guard zone == Schedule.recipientZone || rules != nil else { return nil }
            let recurrence = try Recurrence(expression, in: rules, startsAt: startsAt, endsAt: endsAt)
            if let next = recurrence.next(after: self.now) { return (next.at, recurrence.wall(of: next)) }
            body.fault("ends_at", "leaves no occurrence")
        } catch {
            body.fault("cron", error.field == "cron" ? error.reason : error.description)
        }
        return nil
    }

    private func moment(_ name: String, _ body: inout JSONBody) -> Timestamp? {
        guard let text = body.text(name, limit: 64) else { return nil }
        if let moment = Timestamp(rfc3339: text) { return moment }
        body.fault(name, "must be an RFC 3339 time such as 2026-11-20T10:00:00Z")
        return nil
    }

    private func lane(_ job: Job) -> Lane {
        guard case .notification(let content) = job.payload else { return .normal }
        return content.lane ?? self.catalog[content.type]?.lane ?? .normal
    }

    /// A hash of what was asked for, whatever the order of its members.
    private static func content(_ value: JSONValue) -> Int64 {
        func sorted(_ value: JSONValue) -> JSONValue {
            guard let members = value.object else { return value }
            return .object(
                members.filter { $0.value != .null }.sorted { $0.key < $1.key }
                    .map { JSONMember($0.key, sorted($0.value)) }
            )
        }
        let bytes = JSONWriter.bytes(of: sorted(value))
        let digest = EntryDigest(stream: "", entry: "", fields: [("", bytes[...])])
        return Int64(bitPattern: NotificationID(origin: digest, user: "").low)
    }
}
