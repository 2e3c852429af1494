// Carillon · TokenRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import JSON
import Model
import Services

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
            writer.key("ticket")
            writer.string(ticket)
            writer.key("expires_at")
            writer.string(expiresAt.rfc3339)
        }
        response.headers[.cacheControl] = "no-store"
        return response
    }

    private func revoke(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        guard let user = Self.decoded(try context.parameters.require("id")),
            (1...JobLimits.user).contains(user.unicodeScalars.count), !user.utf8.contains(0)
        else { throw Problem(.badRequest, "a user id has 1 to \(JobLimits.user) characters") }
        try await Self.expectNothing(request)
        let before = try await self.services.revocations.revoke(user: user)
        return Response.object { writer in
            writer.key("user")
            writer.string(user)
            writer.key("revoked_before")
            writer.string(before.rfc3339)
        }
    }

    /// A part of a path as it was meant (RFC 3986 section 2.1); nil if it is not well formed or no UTF-8.
    private static func decoded(_ part: String) -> String? {
        var bytes: [UInt8] = []
        var rest = part.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            let digits = rest.prefix(2).compactMap { Character(Unicode.Scalar($0)).hexDigitValue }
            guard digits.count == 2 else { return nil }
            bytes.append(UInt8(digits[0] << 4 | digits[1]))
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }

    /// Neither call takes anything; what it does not understand changes nothing.
    private static func expectNothing(_ request: Request) async throws {
        var body = try JSONBody(try await JSONBody.read(request))
        body.allow([])
        try body.finish()
    }
}
