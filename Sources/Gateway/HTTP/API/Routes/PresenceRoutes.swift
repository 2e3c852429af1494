// Carillon · PresenceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// The presence of users, for admins: `/v1/admin/presence`.
struct PresenceRoutes {
    private static let mostUsers = 1_000

    let base: GatewayBase

    func add(to routes: Routes) {
        routes.get("admin/presence/:user", Self.one, self.one)
        routes.post("admin/presence", Self.many, self.many)
    }

    private static let one = Operation(
        "getPresence",
        "Returns the presence of a user.",
        scope: .admin,
        path: ["user": .text(JobLimits.user)("A user, percent-encoded.")],
        answers: [.ok("The user's presence.", .presence)])

    private func one(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.pathText("user", limit: JobLimits.user)
        var writer = JSONWriter()
        try await self.write([user], to: &writer)
        return .json(writer)
    }

    private static let many = Operation(
        "lookUpPresence",
        "Returns the presence of several users.",
        scope: .admin,
        isReadOnly: true,
        body: .object(["users": .list(of: .text(JobLimits.user), min: 1, max: Self.mostUsers)], isClosed: true),
        answers: [
            .ok(
                "The presence of each user, in the order of the request.",
                .object(["users": .list(of: .presence, max: 1000)]))
        ])

    private func many(_ request: Request, _ context: APIContext) async throws -> Response {
        var body = try await FieldReader(body: request, of: Self.many)
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
        let presences = try await self.base.presence.lookUp(users)
        let lastSeen = try await self.base.database.users.lastSeen(users)
        for ((user, presence), seen) in zip(zip(users, presences), lastSeen) {
            writer.beginObject()
            writer.member("user_id", user)
            writer.member("last_seen", seen?.rfc3339)
            PresenceShape.writeMembers(presence, to: &writer)
            writer.endObject()
        }
    }
}

extension Schema {
    private static let presenceMembers: Fields = [
        "online": .bool,
        "last_seen": .time.orNull,
        "connections": .list(
            of: .object([
                "connection": .string,
                "dialect": .cases(of: Dialect.self),
                "node": .string,
                "state": .choice("active", "idle"),
                "since": .time,
            ]), max: 100_000),
    ]

    static let presenceState = Schema("PresenceState", presenceMembers)
    static let presence = Schema("Presence", ["user_id": .text(JobLimits.user)] + presenceMembers)
}
