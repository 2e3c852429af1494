// Carillon · JobControlRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Jobs after they were sent, for services: `/v1/jobs/{id}`.
struct JobControlRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("jobs/:id", use: self.find)
        group.delete("jobs/:id", use: self.cancel)
    }

    /// The job that a path and its `org` name.
    func name(_ request: Request, _ context: APIContext) throws -> CancellationStore.Name {
        var query = QueryFields(request, allowing: ["org"])
        return try self.name(context, &query)
    }

    private func name(_ context: APIContext, _ query: inout QueryFields) throws -> CancellationStore.Name {
        try context.requireService()
        let id = try context.pathText("id", limit: JobLimits.id)
        let org = query.text("org", limit: JobLimits.org)
        try query.finish()
        return self.services.jobControl.name(org: org ?? "", id: id)
    }

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = QueryFields(request, allowing: ["org", "recipients"])
        let isCounted = query.flag("recipients", default: true)
        let name = try self.name(context, &query)
        guard let report = try await self.services.jobControl.find(name, isCounted: isCounted) else {
            throw Problem.notFound
        }
        return Response.object { Self.write(report, self.services.catalog, to: &$0) }
    }

    private func cancel(_ request: Request, _ context: APIContext) async throws -> Response {
        let name = try self.name(request, context)
        guard let report = try await self.services.jobControl.cancel(name), let tally = report.tally else {
            throw Problem.notFound
        }
        return Response.object { writer in
            Self.writeHead(report, to: &writer)
            let cancelled = tally.counts[.cancelled, default: 0]
            let withdrawing = tally.open.values.reduce(0, +)
            let tooLate = [NotificationStatus.sent, .delivered].reduce(0) {
                $0 + tally.counts[$1, default: 0] - tally.open[$1, default: 0]
            }
            writer.member("status", Self.outcome(report, tally, cancelled: cancelled, tooLate: tooLate))
            writer.member("cancelled", cancelled)
            writer.member("withdrawing", withdrawing)
            writer.member("too_late", tooLate)
            writer.member("not_sent", tally.total - cancelled - withdrawing - tooLate)
        }
    }

    /// What a cancellation has come to in a word.
    private static func outcome(
        _ report: JobControl.Report,
        _ tally: CancellationStore.Tally,
        cancelled: Int64,
        tooLate: Int64
    ) -> String {
        if report.progress?.broadcast.state == .cancelling { return "cancelling" }
        if cancelled > 0 { return "cancelled" }
        if tooLate > 0 { return "too_late" }
        // What is not stored yet of a broadcast, or waits for its moment, comes no more.
        if report.progress != nil { return "cancelled" }
        if tally.total == 0 { return "pending" }
        return report.scheduled > 0 ? "cancelled" : "not_sent"
    }

    private static func writeHead(_ report: JobControl.Report, to writer: inout JSONWriter) {
        writer.member("id", report.name.id)
        writer.member("org", report.name.org)
        writer.member("final", report.isFinal)
    }

    /// Writes how a job stands.
    static func write(_ report: JobControl.Report, _ catalog: Catalog, to writer: inout JSONWriter) {
        Self.writeHead(report, to: &writer)
        writer.member("cancelled_at", report.cancelledAt?.rfc3339)
        writer.key("recipients")
        if let tally = report.tally {
            writer.beginObject()
            for status in NotificationStatus.allCases {
                writer.key(escaping: status.rawValue)
                writer.integer(tally.counts[status, default: 0])
            }
            writer.endObject()
        } else {
            writer.null()
        }
        writer.key("reach")
        if let reach = report.tally?.reach {
            writer.beginObject()
            writer.member("stored", reach.stored)
            StatisticsRoutes.write(reach, to: &writer)
            writer.endObject()
        } else {
            writer.null()
        }
        writer.member("scheduled", report.scheduled)
        writer.key("broadcast")
        if let progress = report.progress {
            BroadcastRoutes.write(progress, catalog, to: &writer)
        } else {
            writer.null()
        }
    }
}
