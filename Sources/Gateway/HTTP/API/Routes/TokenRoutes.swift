// Carillon · TokenRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird

/// Tickets for sockets, and the end of tokens: `/v1/socket-tickets`, `/v1/users/{id}/revoke-tokens`.
struct TokenRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.post("socket-tickets", use: self.makeTicket)
        group.post("users/:id/revoke-tokens", use: self.revoke)
    }

    private func makeTicket(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let caller = context.caller else { throw Problem(.unauthorized, "a bearer token is required") }
        try await Self.expectNothing(request)
        let (ticket, expiresAt) = try await self.services.tickets.issue(for: caller)
        var response = Response.object { writer in
            writer.member("ticket", ticket)
            writer.member("expires_at", expiresAt.rfc3339)
        }
        response.headers[.cacheControl] = "no-store"
        return response
    }

    private func revoke(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        let user = try context.pathText("id", limit: JobLimits.user)
        try await Self.expectNothing(request)
        let before = try await self.services.revocations.revoke(user: user)
        return Response.object { writer in
            writer.member("user", user)
            writer.member("revoked_before", before.rfc3339)
        }
    }

    /// Neither call takes anything; what it does not understand changes nothing.
    private static func expectNothing(_ request: Request) async throws {
        var body = try JSONBody(try await JSONBody.read(request))
        body.allow([])
        try body.finish()
    }
}
