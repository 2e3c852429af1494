// Carillon · SimulationRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// What a user would get for a job, for admins: `/v1/admin/simulate`.
///
/// Nothing is stored, counted or sent.
struct SimulationRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.post("admin/simulate", use: self.simulate)
    }

    private func simulate(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(["user", "job", "at", "presence", "proven"])
        let user = body.text("user", limit: JobLimits.user, isRequired: true) ?? ""
        let presence = body.choice("presence", of: JobSimulation.SupposedPresence.self)
        let isProven = body.flag("proven")
        let moment = body.text("at", limit: 64)
        let at = moment.flatMap { Timestamp(rfc3339: $0) }
        if moment != nil, at == nil { body.fault("at", "must be an RFC 3339 time such as 2026-11-20T10:00:00Z") }
        let catalog = self.services.catalog
        let asked = self.question(&body, user: user, catalog)
        try body.finish()
        guard var question = asked else { throw Problem(.badRequest, "the job is missing") }
        question.at = at
        question.presence = presence ?? .actual
        question.isProven = isProven ?? true
        let simulation = JobSimulation(
            catalog: catalog,
            recipients: self.services.recipients,
            topics: self.services.topics,
            digests: self.services.digests,
            presence: self.services.presence,
            providers: self.services.providerBoard,
            usage: self.services.usage,
            zones: self.services.zones,
            defaultZone: self.services.defaultZone
        )
        let answer = try await simulation.answer(question, now: self.services.now())
        return Response.object { answer.write(to: &$0) }
    }

    private func question(_ body: inout JSONBody, user: String, _ catalog: Catalog) -> JobSimulation.Question? {
        guard let members = body.value["job"]?.object else {
            body.fault("job", "must be a JSON object with the fields of a job")
            return nil
        }
        do throws(JobFaults) {
            return try JobSimulation.question(
                of: JobFields.flat(members), user: user, catalog: catalog)
        } catch {
            for fault in error.faults { body.fault("job.\(fault.field)", fault.reason) }
            return nil
        }
    }
}
