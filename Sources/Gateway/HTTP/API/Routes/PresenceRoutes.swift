// Carillon · PresenceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Who is here, for admins: `/v1/admin/presence`.
struct PresenceRoutes {
    private static let mostUsers = 1_000

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("admin/presence/:user", use: self.one)
        group.post("admin/presence", use: self.many)
    }

    private func one(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        let user = try context.pathText("user", limit: JobLimits.user)
        var writer = JSONWriter()
        try await self.write([user], to: &writer)
        return .json(writer)
    }

    private func many(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(["users"])
        let users = UserFields.users("users", &body, limit: Self.mostUsers)
        try body.finish()
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("users")
        writer.beginArray()
        try await self.write(users, to: &writer)
        writer.endArray()
        writer.endObject()
        return .json(writer)
    }

    private func write(_ users: [String], to writer: inout JSONWriter) async throws {
        let presences = try await self.services.presence.lookUp(users)
        let lastSeen = try await self.services.users.lastSeen(users)
        for ((user, presence), seen) in zip(zip(users, presences), lastSeen) {
            var connections: [ConnectionPresence] = []
            if case .online(let found) = presence { connections = found }
            writer.beginObject()
            writer.member("user_id", user)
            writer.member("online", !connections.isEmpty)
            writer.member("last_seen", seen?.rfc3339)
            writer.key("connections")
            writer.beginArray()
            for connection in connections {
                writer.beginObject()
                writer.member("connection", connection.connection)
                writer.member("dialect", connection.dialect.rawValue)
                writer.member("node", connection.node)
                writer.member("state", connection.state.rawValue)
                writer.member("since", connection.since.rfc3339)
                writer.endObject()
            }
            writer.endArray()
            writer.endObject()
        }
    }
}
