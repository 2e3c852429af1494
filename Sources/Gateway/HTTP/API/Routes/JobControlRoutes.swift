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
        answers: [.ok("The status.", .jobReport), 404, 409])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.find)
        let isCounted = query.flag("recipients") ?? true
        let name = try await self.name(context, query)
        let report = try await self.jobs.control.find(name, isCounted: isCounted, countingFor: Self.countingTime)
        guard let report else { throw Self.unknown }
        return Response.object { JobShape.write(report, self.jobs.base.catalog, to: &$0) }
    }

    private static let cancel = Operation(
        "cancelJob",
        "Cancels a job.",
        scope: .service,
        path: id,
        query: org,
        answers: [.ok("The result; the call is idempotent.", .jobCancellation), 404, 409])

    private func cancel(_ request: Request, _ context: APIContext) async throws -> Response {
        let name = try await self.name(
            context, FieldReader(query: request, of: Self.cancel), isForCancelling: true)
        guard let report = try await self.jobs.control.cancel(name) else { throw Self.unknown }
        return Response.object { JobShape.write(cancellation: report, to: &$0) }
    }
}

extension Schema {
    private static let isJobFinal: Schema = .bool(
        "Whether every recipient has an outcome; mail that waits for `email_after` and attention calls may follow.")

    static let jobReport = Schema(
        "JobReport",
        [
            "id": .string,
            "org": .string,
            "final": .isJobFinal,
            "cancelled_at": .time.orNull,
            "recipients": .object([
                "pending": .count,
                "sent": .count,
                "delivered": .count,
                "failed": .count,
                "expired": .count,
                "suppressed": .count,
                "deferred": .count,
                "cancelled": .count,
            ]).orNull("The number of notifications by status; null if those of a broadcast are not counted."),
            "reach": .object(["stored": .count("Stored notifications.")] + Schema.reach).orNull(
                "The reach of the notifications; one may count in several places. Those held for a digest are "
                    + "not included."
            ),
            "scheduled": .count("Scheduled rows, one per zone with `deliver_local`."),
            "broadcast": .broadcast.orNull("Null unless the job is for a topic or everyone."),
        ])

    static let jobCancellation = Schema(
        "JobCancellation",
        [
            "id": .string,
            "org": .string,
            "final": .isJobFinal,
            "status": .choice("cancelled", "cancelling", "too_late", "not_sent", "pending")(
                "cancelling: a broadcast is being withdrawn. not_sent: no recipient would have received it. "
                    + "pending: the job is not stored yet; if it comes while the cancellation is kept, it is stored as "
                    + "cancelled."
            ),
            "cancelled": .count.orNull(
                "Recipients who do not receive it; the counts are null for a broadcast or an event."),
            "withdrawing": .count.orNull("Recipients from whose inboxes it is being withdrawn."),
            "too_late": .count.orNull("Recipients who have it already."),
            "not_sent": .count.orNull("Recipients who would not have received it: suppressed, expired, failed."),
        ])
}
