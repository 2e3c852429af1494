// Carillon · TokenCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import HTTP
import Operations

/// `gateway token`.
struct TokenCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "token",
        abstract: "Prints a JWT signed with AUTH_JWT_SECRET.",
        discussion: """
            Needs AUTH_JWT_SECRET, but no running gateway.

            Examples:
              gateway token --user u1
              gateway token --user my-backend --scope service --ttl 30d
              gateway token --user news --scope service --types 'news_*' --audiences topic
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Option(help: "The user of the token.")
    var user: String

    @Option(
        help: "Rights beyond the user's own data: service or admin.",
        completion: .list(["service", "admin"]))
    var scope: String?

    @Option(
        help: "With --scope: the types of jobs that it may send, such as invoice,news_*; default: all.",
        completion: .catalogTypes
    )
    var types: String?

    @Option(help: "With --scope: the audiences of those jobs, among user, users, topic, all; default: all.")
    var audiences: String?

    @Option(help: "How long it is valid, such as 90s, 15m, 1h or 30d.")
    var ttl = "1h"

    func run() async throws {
        try await GatewayCommand.run {
            let scope = self.scope.flatMap { Caller.Scope(rawValue: $0) }
            if self.scope != nil, scope == nil { throw ValidationError("--scope must be service or admin") }
            if scope == nil, self.types != nil || self.audiences != nil {
                throw ValidationError("--types and --audiences need --scope")
            }
            if self.user.allSatisfy(\.isWhitespace) { throw ValidationError("--user must not be empty") }
            let types = try self.types.map { try Self.list($0, option: "--types") }
            let audiences = try self.audiences.map { try Self.list($0, option: "--audiences") }?.map { name in
                guard let audience = JobAllowance.Audience(rawValue: name) else {
                    throw ValidationError("--audiences must be among user, users, topic, all")
                }
                return audience
            }
            guard let lifetime = Duration(written: self.ttl) else {
                throw ValidationError("--ttl must be a number and a unit, such as 90s, 15m, 1h or 30d")
            }
            let reader = try self.options.reader()
            let authentication = AuthenticationSettings(reader, signs: true)
            try reader.finish()
            let now = Timestamp.now()
            let token = TokenIssuer.issue(
                user: self.user,
                userClaim: authentication.userClaim,
                scope: scope,
                lifetime: lifetime,
                secret: authentication.secrets.first ?? "",
                issuer: authentication.issuer,
                audience: authentication.audience,
                types: types,
                audiences: audiences,
                now: now
            )
            guard self.output.json else { return Terminal.line(token) }
            Terminal.object { writer in
                writer.member("token", token)
                writer.member("expires_at", (now + lifetime).rfc3339)
            }
        }
    }

    /// Splits a list at its commas and trims its names.
    private static func list(_ text: String, option: String) throws -> [String] {
        let names = text.split(separator: ",", omittingEmptySubsequences: false).map { name in
            name.split(whereSeparator: \.isWhitespace).joined(separator: " ")
        }
        guard !names.contains("") else {
            throw ValidationError("\(option) must be names, with commas between them")
        }
        return names
    }
}
