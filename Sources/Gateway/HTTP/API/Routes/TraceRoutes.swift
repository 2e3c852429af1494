// Carillon · TraceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Why a notification did, or did not, reach its user, for admins: `/v1/admin/notifications/{id}/trace`.
struct TraceRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("admin/notifications/:id/trace", use: self.trace)
    }

    private func trace(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var query = QueryFields(request, allowing: ["user"])
        let user = query.text("user", limit: JobLimits.user)
        try query.finish()
        guard let id = NotificationID(try context.parameters.require("id")),
            let record = try await self.services.traces.record(id, user: user)
        else { throw Problem.notFound }
        let trace = NotificationTrace(record)
        return Response.object { trace.write(to: &$0) }
    }
}
