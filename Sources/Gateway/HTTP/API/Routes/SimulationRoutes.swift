// Carillon · SimulationRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Simulates a job for a user, for admins: `/v1/admin/simulate`.
///
/// Nothing is stored, counted or sent.
struct SimulationRoutes {
    let base: GatewayBase

    func add(to routes: Routes) {
        routes.post("admin/simulate", Self.simulate, self.simulate)
    }

    private static let simulate = Operation(
        "simulate",
        "Simulates a job for a user. Nothing is stored, counted or sent.",
        "Caps count what the user has received so far; the notification counts as never read.",
        scope: .admin,
        isReadOnly: true,
        body: .object(
            [
                "user": .text(JobLimits.user),
                "job": .anyObject("The fields of a job; the audience defaults to the user."),
                "at?": .time.orNull("Defaults to now."),
                "presence?": .cases(of: JobSimulation.SupposedPresence.self).orNull("Defaults to `actual`."),
                "proven?": .bool.orNull("Whether sockets confirm delivery; defaults to true."),
            ], isClosed: true),
        answers: [.ok("The steps.", SimulationAnswer.shape.schema)])

    private func simulate(_ request: Request, _ context: APIContext) async throws -> Response {
        var body = try await FieldReader(body: request, of: Self.simulate)
        let user = body.text("user", limit: JobLimits.user, isRequired: true) ?? ""
        let presence = body.choice("presence", of: JobSimulation.SupposedPresence.self)
        let isProven = body.flag("proven")
        let at = body.moment("at")
        let catalog = self.base.catalog
        let asked = self.question(&body, user: user, catalog)
        try body.finish()
        guard var question = asked else { throw Problem(.badRequest, "the job is missing") }
        question.at = at
        question.presence = presence ?? .actual
        question.isProven = isProven ?? true
        let simulation = JobSimulation(
            database: self.base.database, live: self.base.live, presence: self.base.presence, catalog: catalog,
            zones: self.base.zones, defaultZone: self.base.defaultZone)
        let answer = try await simulation.answer(question, now: self.base.now())
        return .json(answer, as: SimulationAnswer.shape)
    }

    private func question(_ body: inout FieldReader, user: String, _ catalog: Catalog) -> JobSimulation.Question? {
        guard let job = body.value["job"], let members = job.object else {
            body.fault("job", "must be a JSON object with the fields of a job")
            return nil
        }
        do throws(JobFaults) {
            return try JobSimulation.question(
                of: JobFields.flat(members), from: job, user: user, catalog: catalog)
        } catch {
            for fault in error.faults { body.fault("job.\(fault.field)", fault.reason) }
            return nil
        }
    }
}
