// Carillon · CredentialResolver.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Sockets

/// Identifies the caller of a request, for REST, sockets and every dialect.
package struct CredentialResolver: Sendable {
    private enum Credential {
        case token(String)
        case ticket(String)
    }

    private let verifier: TokenVerifier
    private let tickets: SocketTickets
    private let cookie: CookieRules?

    /// - Parameter cookie: nil if no cookie is configured.
    package init(verifier: TokenVerifier, tickets: SocketTickets, cookie: CookieRules?) {
        self.verifier = verifier
        self.tickets = tickets
        self.cookie = cookie
    }

    /// Whether tokens can be verified; from then on it stays true.
    var isReady: Bool { self.verifier.hasKeys }

    /// Verifies a token and returns its caller.
    func caller(token: String) async throws(TokenFault) -> Caller {
        try await self.verifier.verify(token)
    }

    /// Checks again that the token of a verified caller was not revoked.
    func recheck(_ caller: Caller) async throws(TokenFault) {
        try await self.verifier.recheck(caller)
    }

    /// Returns the caller of a request; nil without an accepted kind of credential.
    ///
    /// Only the first of header, inline token, ticket and cookie is used, and it must be valid.
    ///
    /// - Throws: ``TokenFault``.
    func caller(
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
                throw TokenFault("more than one Authorization header")
            }
            return .token(try Self.token(header, kinds))
        }
        if kinds.contains(.inline), let token = presented.token { return .token(token) }
        if kinds.contains(.ticket), let ticket = presented.ticket { return .ticket(ticket) }
        if kinds.contains(.cookie), let cookie, let token = try cookie.token(presented) { return .token(token) }
        return nil
    }

    /// Extracts the token of a header; scheme names are case-insensitive (RFC 9110 section 11.1).
    private static func token(_ header: String, _ kinds: CredentialKinds) throws(TokenFault) -> String {
        let schemes: [(kind: CredentialKinds, name: String)] = [(.bearer, "bearer"), (.token, "token")]
        for scheme in schemes where kinds.contains(scheme.kind) {
            if let token = AuthorizationHeader.credential(header, of: scheme.name) { return token }
        }
        throw TokenFault("the Authorization header must be a bearer token")
    }
}

/// The accepted kinds of credentials.
struct CredentialKinds: OptionSet, Sendable {
    let rawValue: UInt8

    /// `Authorization: Bearer` (RFC 6750 section 2.1).
    static let bearer = CredentialKinds(rawValue: 1)
    /// `Authorization: Token`, which some clients send instead.
    static let token = CredentialKinds(rawValue: 2)
    /// ``PresentedCredentials/token``.
    static let inline = CredentialKinds(rawValue: 4)
    /// ``PresentedCredentials/ticket``.
    static let ticket = CredentialKinds(rawValue: 8)
    /// The configured cookie.
    static let cookie = CredentialKinds(rawValue: 16)

    /// The kinds for the canonical REST paths.
    static let canonical: CredentialKinds = [.bearer]
    /// The kinds for the compatibility REST paths.
    static let compatible: CredentialKinds = [.bearer, .token, .cookie]
    /// The kinds for native sockets and streams; Socket.IO and SignalR have their own places for a
    /// token.
    static let socket: CredentialKinds = [.bearer, .inline, .ticket]

    /// Whether these are for a socket, which sends its token only once.
    var areOfSockets: Bool { !self.isDisjoint(with: [.inline, .ticket]) }
}

/// The cookie that holds a token, and the pages that may use it.
///
/// Browsers attach cookies to requests of any page, so the cookie counts only for allowed origins
/// (against cross-site request forgery).
package struct CookieRules: Sendable {
    private let name: String
    private let allowedOrigins: Set<String>

    /// - Parameter allowedOrigins: origins such as `https://app.example.com`, compared in
    ///   lowercase.
    package init(name: String, allowedOrigins: [String]) {
        self.name = name
        self.allowedOrigins = Set(allowedOrigins.map { $0.lowercased() })
    }

    /// Returns the cookie's value; nil if there is none.
    ///
    /// - Throws: ``TokenFault`` if the cookie occurs twice, because an attacker may have set one,
    ///   or if the request's origin is not allowed.
    func token(_ presented: PresentedCredentials) throws(TokenFault) -> String? {
        var values: [String] = []
        for pair in presented.cookies.flatMap({ $0.split(separator: ";") }) {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, Self.trimmed(parts[0]).utf8.elementsEqual(self.name.utf8) else { continue }
            var value = Self.trimmed(parts[1])
            if value.count >= 2, value.hasPrefix("\""), value.hasSuffix("\"") { value = value.dropFirst().dropLast() }
            values.append(String(value))
        }
        guard let value = values.first else { return nil }
        guard values.count == 1 else { throw TokenFault("the cookie occurs more than once") }
        guard self.isAllowed(presented) else {
            throw TokenFault(.forbidden, "the cookie is not accepted from this origin")
        }
        return value
    }

    private func isAllowed(_ presented: PresentedCredentials) -> Bool {
        if let origin = presented.origin { return self.allowedOrigins.contains(origin.lowercased()) }
        switch presented.fetchSite?.lowercased() {
        case "same-origin": return true
        // A typed address, a client other than a browser, or a very old browser.
        case "none", nil: return !presented.isUnsafe
        default: return false
        }
    }

    private static func trimmed(_ text: Substring) -> Substring {
        let isBlank = { (character: Character) in character == " " || character == "\t" }
        let start = text.drop(while: isBlank)
        guard let end = start.lastIndex(where: { !isBlank($0) }) else { return start.prefix(0) }
        return start[...end]
    }
}

// Conversions to the types of the sockets, which do not import this module.

extension SocketIdentity {
    init(_ caller: Caller) {
        self.init(user: caller.user, issuedAt: caller.issuedAt, expiresAt: caller.expiresAt)
    }
}

extension SocketRefusal {
    init(_ fault: TokenFault) {
        self.init(status: fault.status, reason: fault.description)
    }
}
