// Carillon · JobControlRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Status and cancellation of jobs, for services: `/v1/jobs/{id}`.
struct JobControlRoutes {
    /// The time limit for counting a broadcast's notifications; proxies wait for a minute.
    private static let countingTime: Duration = .seconds(30)

    let jobs: JobServices

    func add(to routes: Routes) {
        routes.get("jobs/:id", Self.find, self.find)
        routes.delete("jobs/:id", Self.cancel, self.cancel)
    }

    static let id: Fields = [
        "id": .text(JobLimits.id)("The id of the job or of its entry, as `entry` or `stream/entry`.")
    ]
    static let org: Fields = ["org?": .text(JobLimits.org)("The organisation of the job; none if absent.")]

    static let unknown = Problem(.notFound, "there is no such job, or no dispatcher has stored it yet")

    /// Returns the name of the job in the path and `org`.
    func name(
        _ context: APIContext,
        _ query: consuming FieldReader,
        isForCancelling: Bool = false
    ) async throws -> CancellationStore.Name {
        let id = try context.pathText("id", limit: JobLimits.id)
        let org = query.text("org", limit: JobLimits.org)
        try query.finish()
        return try await self.name(org: org, id: id, isForCancelling: isForCancelling)
    }

    /// - Throws: ``Problem`` 409 if the id is an entry of several jobs.
    func name(
        org: String?,
        id: String,
        isForCancelling: Bool = false
    ) async throws -> CancellationStore.Name {
        do {
            return try await self.jobs.control.name(org: org ?? "", id: id, isForCancelling: isForCancelling)
        } catch let error as JobControl.AmbiguousEntry {
            throw Problem(.conflict, error.description)
        }
    }

    private static let find = Operation(
        "getJob",
        "Returns the status of a job.",
        scope: .service,
        path: id,
        query: org + [
            "recipients?": .bool(default: true)(
                "false skips the counts of a broadcast, which are slow for a million recipients. If they are "
                    + "skipped, or take over 30 s, `recipients` and `reach` are null and `final` is false.")
        ],
        answers: [.ok("The status.", JobControl.Report.shape.schema), 404, 409])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.find)
        let isCounted = query.flag("recipients") ?? true
        let name = try await self.name(context, query)
        let report = try await self.jobs.control.find(name, isCounted: isCounted, countingFor: Self.countingTime)
        guard let report else { throw Self.unknown }
        return .json((report, self.jobs.base.catalog), as: JobControl.Report.shape)
    }

    private static let cancel = Operation(
        "cancelJob",
        "Cancels a job.",
        scope: .service,
        path: id,
        query: org,
        answers: [
            .ok("The result; the call is idempotent.", JobControl.Report.cancellationShape.schema), 404, 409,
        ])

    private func cancel(_ request: Request, _ context: APIContext) async throws -> Response {
        let name = try await self.name(
            context, FieldReader(query: request, of: Self.cancel), isForCancelling: true)
        guard let report = try await self.jobs.control.cancel(name) else { throw Self.unknown }
        return .json(report, as: JobControl.Report.cancellationShape)
    }
}
