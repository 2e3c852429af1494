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
        answers: [.ok("The trace.", .trace), 404, 422])

    private func trace(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.trace)
        let user = query.text("user", limit: JobLimits.user)
        try query.finish()
        let id = try context.pathID()
        guard let record = try await self.base.database.traces.record(id, user: user) else {
            throw Problem.noSuch("notification")
        }
        let trace = NotificationTrace(record)
        return Response.object { trace.write(to: &$0) }
    }
}

extension Schema {
    static let trace = Schema(
        "Trace",
        [
            "user_id": .string,
            "status": .string,
            "reason": .string.orNull,
            "held_back": .string.orNull,
            "sent_via": .string.orNull,
            "channels": .list(of: .channel, max: 3),
            "job_entry": .string,
            "job_id": .string.orNull,
            "org_id": .string,
            "notification": .notification,
            "steps": .list(
                of: .object(["at": .time, "event": .string]).with("additionalProperties", Schema.string.json), max: 1100
            ),
        ])
}
