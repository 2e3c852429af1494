// Carillon · JobControlRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird
import JSON
import Model
import Services
import Stores

/// Jobs after they were sent, for services: `/v1/jobs/{id}`.
struct JobControlRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("jobs/:id", use: self.find)
        group.delete("jobs/:id", use: self.cancel)
    }

    private func name(_ request: Request, _ context: APIContext) throws -> CancellationStore.Name {
        try context.requireService()
        let id = try context.pathText("id", limit: JobLimits.id)
        var query = QueryFields(request, allowing: ["org"])
        let org = query.text("org", limit: JobLimits.org)
        try query.finish()
        return self.services.jobControl.name(org: org ?? "", id: id)
    }

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let report = try await self.services.jobControl.find(try self.name(request, context)) else {
            throw Problem.notFound
        }
        return Response.object { writer in
            self.write(report, to: &writer)
            writer.key("cancelled_at")
            writer.string(report.cancelledAt?.rfc3339)
            writer.key("recipients")
            writer.beginObject()
            for status in NotificationStatus.allCases {
                writer.key(escaping: status.rawValue)
                writer.integer(report.tally.counts[status, default: 0])
            }
            writer.endObject()
        }
    }

    private func cancel(_ request: Request, _ context: APIContext) async throws -> Response {
        let name = try self.name(request, context)
        guard let report = try await self.services.jobControl.cancel(name) else { throw Problem.notFound }
        return Response.object { writer in
            self.write(report, to: &writer)
            let counts = report.tally.counts
            let cancelled = counts[.cancelled, default: 0]
            let tooLate = [NotificationStatus.sent, .delivered].reduce(0) { $0 + counts[$1, default: 0] }
            writer.key("status")
            let isTooLate = tooLate > 0 && cancelled == 0
            writer.string(report.tally.total == 0 ? "pending" : isTooLate ? "too_late" : "cancelled")
            writer.key("cancelled")
            writer.integer(cancelled)
            writer.key("too_late")
            writer.integer(tooLate)
            writer.key("not_sent")
            writer.integer(report.tally.total - cancelled - tooLate)
        }
    }

    private func write(_ report: JobControl.Report, to writer: inout JSONWriter) {
        writer.key("id")
        writer.string(report.name.id)
        writer.key("org")
        writer.string(report.name.org)
        writer.key("final")
        writer.bool(report.isFinal)
    }
}
