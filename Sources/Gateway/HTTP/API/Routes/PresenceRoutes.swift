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
        answers: [.ok("The user's presence.", presence.schema)])

    private func one(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.pathText("user", limit: JobLimits.user)
        return .json(try await self.lookUp([user])[0], as: Self.presence)
    }

    private static let many = Operation(
        "lookUpPresence",
        "Returns the presence of several users.",
        scope: .admin,
        isReadOnly: true,
        body: .object(["users": .list(of: .text(JobLimits.user), min: 1, max: Self.mostUsers)], isClosed: true),
        answers: [.ok("The presence of each user, in the order of the request.", presences.schema)])

    private static let presences: Shape<[Found]> = ["users": .list(of: presence, max: 1000) { $0 }]

    private func many(_ request: Request, _ context: APIContext) async throws -> Response {
        var body = try await FieldReader(body: request, of: Self.many)
        let users = UserFields.users("users", &body, limit: Self.mostUsers)
        try body.finish()
        return .json(try await self.lookUp(users), as: Self.presences)
    }

    private typealias Found = (user: String, presence: Presence, lastSeen: Timestamp?)

    private static let presence = Shape<Found>(
        "Presence",
        ["user_id": .value(.text(JobLimits.user)) { $0.user }] + Presence.shape.of { ($0.presence, $0.lastSeen) })

    private func lookUp(_ users: [String]) async throws -> [Found] {
        let presences = try await self.base.presence.lookUp(users)
        let lastSeen = try await self.base.database.users.lastSeen(users)
        return zip(zip(users, presences), lastSeen).map { ($0.0, $0.1, $1) }
    }
}
