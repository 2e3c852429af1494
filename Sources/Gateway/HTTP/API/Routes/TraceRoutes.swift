// Carillon · TraceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Explains the delivery of a notification, for admins: `/v1/admin/notifications/{id}/trace`.
struct TraceRoutes {
    let base: GatewayBase

    func add(to routes: Routes) {
        routes.get("admin/notifications/:id/trace", Self.trace, self.trace)
    }

    private static let trace = Operation(
        "traceNotification",
        "Traces every step and attempt of a notification.",
        "Without `user`, it is found by a send attempt, or among the first 100,000 notifications stored within "
            + "ten minutes of the time in its id.",
        scope: .admin,
        path: ["id": .uuid],
        query: ["user?": .text(JobLimits.user)("The owner.")],
        answers: [.ok("The trace.", NotificationTrace.shape.schema), 404, 422])

    private func trace(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.trace)
        let user = query.text("user", limit: JobLimits.user)
        try query.finish()
        let id = try context.pathID()
        guard let record = try await self.base.database.traces.record(id, user: user) else {
            throw Problem.noSuch("notification")
        }
        return .json(NotificationTrace(record), as: NotificationTrace.shape)
    }
}
