// Carillon · CredentialResolver.swift
// SPDX-License-Identifier: Apache-2.0

/// Finds out who sends a request: the one way in for REST, sockets and every dialect.
package struct CredentialResolver: Sendable {
    private enum Credential {
        case token(String)
        case ticket(String)
    }

    private let verifier: TokenVerifier
    private let tickets: SocketTickets
    private let cookie: CookieRules?

    /// - Parameter cookie: nil if none is configured.
    package init(verifier: TokenVerifier, tickets: SocketTickets, cookie: CookieRules?) {
        self.verifier = verifier
        self.tickets = tickets
        self.cookie = cookie
    }

    /// Who a token speaks for.
    package func caller(token: String) async throws(TokenFault) -> Caller {
        try await self.verifier.verify(token)
    }

    /// Who sends a request; nil if it does not say so in one of the ways that count.
    ///
    /// The first of header, token in the dialect's place, ticket and cookie counts, and must be good.
    ///
    /// - Throws: ``TokenFault``.
    package func caller(
        _ presented: PresentedCredentials,
        accepting kinds: CredentialKinds
    ) async throws(TokenFault) -> Caller? {
        switch try self.credential(presented, kinds) {
        case .token(let token): try await self.verifier.verify(token, remembers: !kinds.areOfSockets)
        case .ticket(let ticket): try await self.tickets.redeem(ticket)
        case nil: nil
        }
    }

    private func credential(
        _ presented: PresentedCredentials,
        _ kinds: CredentialKinds
    ) throws(TokenFault) -> Credential? {
        if let header = presented.authorization.first {
            guard presented.authorization.count == 1 else {
                throw TokenFault("there is more than one Authorization header")
            }
            return .token(try Self.token(header, kinds))
        }
        if kinds.contains(.inline), let token = presented.token { return .token(token) }
        if kinds.contains(.ticket), let ticket = presented.ticket { return .ticket(ticket) }
        if kinds.contains(.cookie), let cookie, let token = try cookie.token(presented) { return .token(token) }
        return nil
    }

    /// The token of a header; scheme names know no case (RFC 9110 section 11.1).
    private static func token(_ header: String, _ kinds: CredentialKinds) throws(TokenFault) -> String {
        let schemes: [(kind: CredentialKinds, name: String)] = [(.bearer, "bearer "), (.token, "token ")]
        for scheme in schemes where kinds.contains(scheme.kind) {
            guard header.prefix(scheme.name.count).lowercased() == scheme.name else { continue }
            return String(header.dropFirst(scheme.name.count).drop { $0 == " " })
        }
        throw TokenFault("the Authorization header must be a bearer token")
    }
}
