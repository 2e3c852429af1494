// Carillon · TokenRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird

/// Socket tickets and token revocation: `/v1/socket-tickets`, `/v1/users/{id}/revoke-tokens`.
struct TokenRoutes {
    let identity: IdentityServices

    func add(to routes: Routes) {
        routes.post("socket-tickets", Self.makeTicket, self.makeTicket)
        routes.post("users/:id/revoke-tokens", Self.revoke, self.revoke)
    }

    private static let makeTicket = Operation(
        "makeSocketTicket",
        "Issues a ticket that opens one socket as the caller within 30 seconds.",
        body: .object([:], isClosed: true),
        isBodyRequired: false,
        answers: [
            .ok(
                "The ticket.",
                .object([
                    "ticket": .string,
                    "expires_at": .time,
                    "user": .text(JobLimits.user)("The caller, as the token's claim names them."),
                ]))
        ])

    private func makeTicket(_ request: Request, _ context: APIContext) async throws -> Response {
        let caller = try context.requireCaller()
        try await FieldReader(body: request, of: Self.makeTicket).finish()
        let (ticket, expiresAt) = try await self.identity.tickets.issue(for: caller)
        var response = Response.object { writer in
            writer.member("ticket", ticket)
            writer.member("expires_at", expiresAt.rfc3339)
            writer.member("user", caller.user)
        }
        response.headers[.cacheControl] = "no-store"
        return response
    }

    private static let revoke = Operation(
        "revokeTokens",
        "Revokes the user's existing tokens and closes their sockets.",
        scope: .service,
        path: UserRoutes.user,
        body: .object([:], isClosed: true),
        isBodyRequired: false,
        answers: [
            .ok(
                "Tokens issued before `revoked_before` are invalid.",
                .object(["user": .text(JobLimits.user), "revoked_before": .time]))
        ])

    private func revoke(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.pathText("id", limit: JobLimits.user)
        try await FieldReader(body: request, of: Self.revoke).finish()
        let before = try await self.identity.revocations.revoke(user: user)
        return Response.object { writer in
            writer.member("user", user)
            writer.member("revoked_before", before.rfc3339)
        }
    }
}
