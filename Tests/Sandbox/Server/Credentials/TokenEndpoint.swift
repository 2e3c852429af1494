// Carillon · TokenEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import NIOHPACK
import Synchronization

/// Google's `POST /token`: exchanges a service account's signed assertion for an access token (RFC
/// 7523).
struct TokenEndpoint: Sendable {
    private struct Refusal: Error {
        let error: String
        let description: String
    }

    private static let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    private static let scopes = [
        "https://www.googleapis.com/auth/firebase.messaging", "https://www.googleapis.com/auth/cloud-platform",
    ]
    private static let clockSkew = 300.0

    private let accounts: [SandboxCredentials.Account]
    private let tokens: AccessTokens
    private let clock: @Sendable () -> Date

    init(_ accounts: [SandboxCredentials.Account], tokens: AccessTokens, _ configuration: SandboxConfiguration) {
        self.accounts = accounts
        self.tokens = tokens
        self.clock = configuration.clock
    }

    func answer(_ request: SandboxRequest) -> SandboxAnswer {
        let now = self.clock()
        do throws(Refusal) {
            let account = try self.account(request, at: now)
            switch self.tokens.ask() {
            case .unavailable: return .respond(SandboxResponse(.html, to: request))
            case .limited: return .respond(.json(429, #"{"error":"rate_limit_exceeded"}"#))
            case .torn: return .respondInPart(.json(200, #"{"access_token":"ya29."#))
            case .silent: return .silence
            case .refused: throw Refusal(error: "invalid_grant", description: "Invalid JWT Signature.")
            case nil: break
            }
            let token = self.tokens.issue(for: account.projectID, at: now)
            return .respond(
                .json(
                    200, #"{"access_token":"\#(token)","expires_in":\#(AccessTokens.lifetime),"token_type":"Bearer"}"#))
        } catch {
            return .respond(
                .json(400) { writer in
                    writer.member("error", error.error)
                    writer.member("error_description", error.description)
                })
        }
    }

    /// Checks the request and returns the account that signed it.
    private func account(_ request: SandboxRequest, at now: Date) throws(Refusal) -> SandboxCredentials.Account {
        guard request.method == "POST" else {
            throw Refusal(error: "invalid_request", description: "Only POST is allowed.")
        }
        let type = request.headers.first(name: "content-type") ?? ""
        guard type.lowercased().hasPrefix("application/x-www-form-urlencoded") else {
            throw Refusal(error: "invalid_request", description: "Content-Type must be a form.")
        }
        let fields = Self.form(request.body)
        guard let grant = fields["grant_type"] else {
            throw Refusal(error: "invalid_request", description: "Required parameter is missing: grant_type")
        }
        guard grant == Self.grant else {
            throw Refusal(error: "unsupported_grant_type", description: "Invalid grant_type: \(grant)")
        }
        guard let assertion = fields["assertion"] else {
            throw Refusal(error: "invalid_request", description: "Missing required parameter: assertion")
        }
        guard let token = JSONWebToken(assertion) else {
            throw Refusal(error: "invalid_grant", description: "Invalid JWT: malformed.")
        }
        let host = request.headers.first(name: ":authority") ?? request.headers.first(name: "host") ?? ""
        let email = token.claims.member("iss")?.string
        guard let account = self.accounts.first(where: { $0.clientEmail == email }) else {
            throw Refusal(error: "invalid_grant", description: "Invalid grant: account not found")
        }
        try self.check(token, of: account, ownURL: "https://\(host)/token", at: now)
        return account
    }

    private func check(
        _ token: JSONWebToken, of account: SandboxCredentials.Account, ownURL: String, at now: Date
    ) throws(Refusal) {
        let keyID = token.header.member("kid")
        guard keyID == nil || keyID?.string == account.privateKeyID, token.isSigned(by: account.publicKey)
        else {
            throw Refusal(error: "invalid_grant", description: "Invalid JWT Signature.")
        }
        // google-auth always uses Google's endpoint as the audience, whatever `token_uri` says.
        let audience = token.claims.member("aud")?.string
        guard audience == "https://oauth2.googleapis.com/token" || audience == ownURL else {
            throw Refusal(error: "invalid_grant", description: "Invalid JWT: Failed audience check.")
        }
        let time = now.timeIntervalSince1970
        guard let issued = token.claims.member("iat")?.double, let expiry = token.claims.member("exp")?.double,
            issued <= time + Self.clockSkew, expiry > time, expiry > issued, expiry - issued <= 3600
        else {
            throw Refusal(
                error: "invalid_grant",
                description: "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
                    + "timeframe. Check your iat and exp values in the JWT claim.")
        }
        let scopes = token.claims.member("scope")?.string?.split(separator: " ") ?? []
        guard scopes.contains(where: { Self.scopes.contains(String($0)) }) else {
            throw Refusal(
                error: "invalid_scope", description: "Invalid OAuth scope or ID token audience provided.")
        }
    }

    private static func form(_ body: [UInt8]) -> [String: String] {
        var fields: [String: String] = [:]
        for field in String(decoding: body, as: UTF8.self).split(separator: "&") {
            let parts = field.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                .map { String($0).replacing("+", with: " ").removingPercentEncoding ?? "" }
            if parts.count == 2 { fields[parts[0]] = parts[1] }
        }
        return fields
    }
}

/// A fault for all valid token requests, until it is reset.
package enum TokenFault: String, Sendable, CaseIterable {
    /// 502 with an HTML page.
    case unavailable
    /// 429.
    case limited
    /// 200 that breaks off within the token.
    case torn
    /// No answer at all.
    case silent
    /// 400 invalid_grant, as for an account whose key was revoked.
    case refused
}

/// The OAuth access tokens that the sandbox issued.
///
/// Keeps at most 10,000; the one that expires first is dropped.
final class AccessTokens: Sendable {
    /// The lifetime of a token in seconds, as Google grants it.
    static let lifetime = 3599
    private static let limit = 10_000

    private struct Desk {
        var asked = 0
        var issued = 0
        var fault: TokenFault?
    }

    private struct Grant {
        let project: String
        let end: Date
    }

    /// The grants by `Authorization` value.
    private let live = Mutex<[String: Grant]>([:])
    private let desk = Mutex(Desk())

    /// The fault that token requests get; nil for none.
    var fault: TokenFault? {
        get { self.desk.withLock { $0.fault } }
        set { self.desk.withLock { $0.fault = newValue } }
    }

    /// The number of valid token requests, and of issued tokens.
    var counts: (asked: Int, issued: Int) { self.desk.withLock { ($0.asked, $0.issued) } }

    /// Counts a valid request and returns its fault, if any.
    func ask() -> TokenFault? {
        self.desk.withLock { desk in
            desk.asked += 1
            return desk.fault
        }
    }

    /// Issues a token for a project.
    func issue(for project: String, at now: Date) -> String {
        let random = (0..<8).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }
        let token = "ya29.c." + random.joined(separator: "-")
        self.desk.withLock { $0.issued += 1 }
        self.live.withLock { live in
            if live.count >= Self.limit {
                live = live.filter { $0.value.end > now }
                if live.count >= Self.limit, let first = live.min(by: { $0.value.end < $1.value.end }) {
                    live.removeValue(forKey: first.key)
                }
            }
            live["Bearer " + token] = Grant(project: project, end: now.addingTimeInterval(Double(Self.lifetime)))
        }
        return token
    }

    /// Returns the project of the token in an `Authorization` value; nil if it has no valid token.
    func project(of authorization: String, at now: Date) -> String? {
        let key: String
        if authorization.hasPrefix("Bearer ") {
            key = authorization
        } else if authorization.prefix(7).lowercased() == "bearer " {
            key = "Bearer " + authorization.dropFirst(7)
        } else {
            return nil
        }
        return self.live.withLock { live in live[key].flatMap { $0.end > now ? $0.project : nil } }
    }

    /// Revokes all tokens.
    func revokeAll() {
        self.live.withLock { $0.removeAll() }
    }
}
