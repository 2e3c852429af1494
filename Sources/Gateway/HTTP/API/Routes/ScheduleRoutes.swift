// Carillon · ScheduleRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// Jobs that are due later, once or again and again: `/v1/schedules`.
struct ScheduleRoutes {
    /// How many an organisation may have made by calls.
    private static let mostOfOrganisation = 10_000
    private static let largestPage: Int64 = 100

    let services: APIServices
    private let zones = ZoneDatabase()

    init(services: APIServices) {
        self.services = services
    }

    func add(to group: RouterGroup<APIContext>) {
        group.post("schedules", use: self.create)
        group.get("schedules", use: self.list)
        group.get("schedules/:id", use: self.find)
        group.delete("schedules/:id", use: self.cancel)
    }

    private func create(_ request: Request, _ context: APIContext) async throws -> Response {
        let allowance = try context.requireService(allowsLimited: true).allowance
        let value = try await JSONBody.read(request, isRequired: true)
        let forbidden = JobRoutes.forbidden(value["job"] ?? .null, allowance)
        guard forbidden.isEmpty else {
            let faults = forbidden.map { JobFault("job.\($0.field)", $0.reason) }
            throw Problem(.forbidden, "the token does not allow such jobs", faults: faults)
        }
        let body = ScheduleBody(
            catalog: self.services.catalog, providers: Provider.wellKnown, zones: self.zones,
            now: self.services.now())
        let schedule = try body.read(value)
        switch try await self.services.schedules.put(schedule, limit: Self.mostOfOrganisation) {
        case .stored:
            return Self.answer(schedule, status: .created)
        case .known:
            guard let known = try await self.services.schedules.find(schedule.id) else { throw Problem.notFound }
            return Self.answer(known, status: .ok)
        case .conflict:
            throw Problem(.conflict, "the id stands for another schedule, or the job's id is scheduled already")
        case .full:
            let reason = "has \(Self.mostOfOrganisation) schedules already; cancel some"
            throw Problem(.unprocessableContent, "org \(reason)", faults: [JobFault("job.org", reason)])
        }
    }

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        var query = QueryFields(request, allowing: ["limit", "cursor", "org"])
        let limit = Int(query.integer("limit", in: 1...Self.largestPage) ?? 20)
        let org = query.text("org", limit: JobLimits.org)
        var cursor: NotificationID?
        if let text = query.text("cursor", limit: 36) {
            cursor = NotificationID(text)
            if cursor == nil { query.fault("cursor", "must be next_cursor of a page") }
        }
        try query.finish()
        let page = try await self.services.schedules.page(after: cursor, org: org, limit: limit + 1)
        return Response.object { writer in
            writer.key("schedules")
            writer.beginArray()
            for schedule in page.prefix(limit) {
                writer.beginObject()
                ScheduleShape.write(schedule, to: &writer)
                writer.endObject()
            }
            writer.endArray()
            writer.member("next_cursor", page.count > limit ? page[limit - 1].id.description : nil)
        }
    }

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        guard let schedule = try await self.services.schedules.find(try Self.id(context)) else {
            throw Problem.notFound
        }
        return Self.answer(schedule, status: .ok)
    }

    private func cancel(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        guard try await self.services.schedules.cancel(try Self.id(context)) else { throw Problem.notFound }
        return Response(status: .noContent)
    }

    private static func id(_ context: APIContext) throws -> NotificationID {
        guard let id = NotificationID(try context.pathText("id", limit: 64)) else { throw Problem.notFound }
        return id
    }

    private static func answer(_ schedule: Schedule, status: HTTPResponse.Status) -> Response {
        Response.object(status: status) { writer in
            ScheduleShape.write(schedule, to: &writer)
            ScheduleShape.writeJob(schedule, to: &writer)
        }
    }
}
