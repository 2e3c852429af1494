// Carillon · ScheduleRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Operations
import Storage

/// Scheduled jobs, once or recurring: `/v1/schedules`.
struct ScheduleRoutes {
    /// The most schedules of an organisation.
    private static let mostOfOrganisation = 10_000

    let jobs: JobServices

    func add(to routes: Routes) {
        routes.post("schedules", Self.create, self.create)
        routes.get("schedules", Self.list, self.list)
        routes.get("schedules/:id", Self.find, self.find)
        routes.delete("schedules/:id", Self.cancel, self.cancel)
    }

    private static let create = Operation(
        "createSchedule",
        "Schedules a job, once or recurring.",
        scope: .sender,
        body: .scheduleRequest,
        answers: [
            .ok("It existed already.", scheduleWithJob),
            .created("It is stored.", scheduleWithJob),
            Answer(409, "The id belongs to another schedule, or the job is scheduled already."),
        ])

    private func create(_ request: Request, _ context: APIContext) async throws -> Response {
        let allowance = try context.requireService(allowsLimited: true).allowance
        let value = try await FieldReader.body(request)
        let forbidden = JobRoutes.forbidden(value["job"] ?? .null, allowance)
        guard forbidden.isEmpty else {
            let faults = forbidden.map { JobFault("job.\($0.field)", $0.reason) }
            throw Problem(.forbidden, "the token does not allow such jobs", faults: faults)
        }
        let body = ScheduleBody(
            catalog: self.jobs.base.catalog, zones: self.jobs.base.zones, now: self.jobs.base.now())
        let schedule = try body.read(value)
        switch try await self.jobs.schedules.put(schedule, limit: Self.mostOfOrganisation) {
        case .stored:
            return Self.answer(schedule, status: .created)
        case .known:
            guard let known = try await self.jobs.schedules.find(schedule.id) else { throw Problem.noSuch("schedule") }
            return Self.answer(known, status: .ok)
        case .conflict:
            throw Problem(.conflict, "the id stands for another schedule, or the job's id is scheduled already")
        case .full:
            let reason = "has \(Self.mostOfOrganisation) schedules already; cancel some"
            throw Problem(.unprocessableContent, "org \(reason)", faults: [JobFault("job.org", reason)])
        }
    }

    private static let list = Operation(
        "listSchedules",
        "Lists scheduled jobs, including those with `deliver_at` or `deliver_local`, but not the pages of broadcasts.",
        scope: .service,
        query: [
            "limit?": .integer(1...100, default: 20)("The most items."),
            "cursor?": .uuid("`next_cursor` of the previous page."),
            "org?": .text(JobLimits.org)("Only of this organisation."),
        ],
        answers: [.ok("The page, ordered by id.", page.schema)])

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.list)
        let limit = query.limit()
        let org = query.text("org", limit: JobLimits.org)
        let cursor = query.cursor()
        try query.finish()
        let page = try await self.jobs.schedules.page(after: cursor, org: org, limit: limit + 1)
        return .json(Page(page, limit: limit, id: \.id), as: Self.page)
    }

    private static let find = Operation(
        "findSchedule",
        "Returns a schedule with its job.",
        scope: .service,
        path: ["id": .uuid("A schedule.")],
        answers: [.ok("The schedule.", scheduleWithJob), 400, 404])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let schedule = try await self.jobs.schedules.find(try Self.id(context)) else {
            throw Problem.noSuch("schedule")
        }
        return Self.answer(schedule, status: .ok)
    }

    private static let cancel = Operation(
        "cancelSchedule",
        "Removes a schedule, including jobs that wait for recipients' zones; sent notifications stay.",
        scope: .service,
        path: ["id": .uuid("A schedule.")],
        answers: [.done, 400, 404])

    private func cancel(_ request: Request, _ context: APIContext) async throws -> Response {
        guard try await self.jobs.schedules.cancel(try Self.id(context)) else { throw Problem.noSuch("schedule") }
        return Response(status: .noContent)
    }

    private static func id(_ context: APIContext) throws -> ScheduleID {
        guard let id = ScheduleID(try context.pathText("id", limit: 64)) else { throw Problem.noSuch("schedule") }
        return id
    }

    private static func answer(_ schedule: Schedule, status: HTTPResponse.Status) -> Response {
        .json(schedule, as: Self.whole, status: status)
    }

    private static let whole = Schedule.shape + Schedule.job

    private static let scheduleWithJob = Schema(
        "ScheduleWithJob", .allOf(Schedule.shape.schema, Schedule.job.schema))

    private static let page = Shape(
        "SchedulePage", Shape.page("schedules", of: Schedule.shape, cursor: .uuid))
}

/// Reads the body of `POST /v1/schedules`: a time or a rule, and a job.
struct ScheduleBody {
    private static let longestZone = 64

    let catalog: Catalog
    let zones: ZoneDatabase
    let now: Timestamp

    /// - Throws: ``Problem`` 400 or 422 with every fault.
    func read(_ value: JSONValue) throws -> Schedule {
        var body = try FieldReader(value)
        body.allow(.scheduleRequest)
        let id = self.id(&body)
        let (fields, job) = self.job(&body)
        let at = body.moment("at")
        let cron = body.text("cron", limit: 256)
        if (at == nil) == (cron == nil), body.faults.isEmpty {
            body.fault("cron", "give \(at == nil ? "one" : "only one") of cron, at")
        }
        var first: (at: Timestamp, wall: WallTime?)?
        let (startsAt, endsAt) = (body.moment("starts_at"), body.moment("ends_at"))
        if let cron {
            let zone = body.text("zone", limit: Self.longestZone, isRequired: true)
            first = self.first(cron, zone: zone, startsAt: startsAt, endsAt: endsAt, job: job, &body)
        } else {
            for name in ["zone", "starts_at", "ends_at"] where body.value[name] ?? .null != .null {
                body.fault(name, "requires cron")
            }
            if let at, at <= self.now { body.fault("at", "is in the past") }
        }
        if cron != nil, job?.id != nil {
            body.fault("job.id", "cannot be combined with cron: each occurrence has its own id")
        }
        if case .notification(let content) = job?.payload {
            for (name, end) in [("expires_at", content.expiresAt), ("keep_until", content.keepUntil)] {
                guard let end else { continue }
                if cron != nil {
                    body.fault("job.\(name)", "cannot be combined with cron: later occurrences would come after it")
                } else if let at, end <= at {
                    body.fault("job.\(name)", "must be after at")
                }
            }
        }
        guard body.faults.isEmpty, let job, let due = at ?? first?.at else { throw Problem(faults: body.faults) }

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
            // A call that is repeated after the schedule has fired must name the same job.
            let content = String(UInt64(bitPattern: schedule.content), radix: 16)
            let jobID = job.id ?? "\(id)/\(due.milliseconds)/\(content)"
            schedule.jobID = jobID
            if job.id == nil { schedule.fields.append(("id", Array(jobID.utf8))) }
        }
        return schedule
    }

    // MARK: Parts

    private func id(_ body: inout FieldReader) -> ScheduleID {
        guard let text = body.text("id", limit: 36) else { return Self.randomID() }
        if let id = ScheduleID(text), id.halves != (0, 0) { return id }
        body.fault("id", "must be a UUID such as 0190b5a2-0000-7000-8000-000000000001")
        return Self.randomID()
    }

    private static func randomID() -> ScheduleID {
        ScheduleID.random()
    }

    /// Reads the job with the dispatcher's decoder.
    private func job(_ body: inout FieldReader) -> (fields: [(name: String, value: [UInt8])], job: Job?) {
        guard let job = body.value["job"], let members = job.object else {
            body.fault("job", "must be an object with the fields of a job")
            return ([], nil)
        }
        var fields = JobFields.flat(members)
        for name in ["deliver_at", "deliver_local"] where fields.contains(where: { $0.name == name }) {
            body.fault("job.\(name)", "is not allowed in a schedule; use at or cron")
            fields.removeAll { $0.name == name }
        }
        do throws(JobFaults) {
            return (fields, try self.catalog.checkedJob(fields, from: job))
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
        _ body: inout FieldReader
    ) -> (at: Timestamp, wall: WallTime?)? {
        var rules: ZoneRules?
        if let zone, zone != Schedule.recipientZone {
            rules = self.zones.current(zone)
            if rules == nil {
                body.fault(
                    "zone", "is not an IANA time zone; give one such as Europe/Berlin, or \(Schedule.recipientZone)")
            }
        } else if zone != nil, case .event? = job?.payload {
            body.fault("zone", "\(Schedule.recipientZone) cannot be combined with an event")
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

    private func lane(_ job: Job) -> Lane {
        guard case .notification(let content) = job.payload else { return .normal }
        return self.catalog.lane(of: content)
    }

    /// Hashes the request independently of the order of its members.
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
        return Int64(bitPattern: Identifier(origin: digest, user: "").low)
    }
}

extension Schema {
    static let scheduleRequest = Schema(
        "ScheduleRequest",
        [
            "id?": .uuid.orNull("Makes the call idempotent; random if absent."),
            "cron?": .string(max: 256).orNull("Five fields, or @daily and the like; instead of `at`."),
            "zone?": .string(max: 64).orNull("With `cron`: an IANA zone, or `recipient` for each recipient's own."),
            "at?": .time.orNull("Fires once at this time."),
            "starts_at?": .time.orNull("With `cron`: the earliest time."),
            "ends_at?": .time.orNull("With `cron`: the latest time."),
            "job": .job(
                "Without `deliver_at` and `deliver_local`; with `cron` also without `id`, `expires_at` and "
                    + "`keep_until`."),
        ], isClosed: true)
}
