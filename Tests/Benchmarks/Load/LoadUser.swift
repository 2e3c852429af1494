// Carillon · LoadUser.swift
// SPDX-License-Identifier: Apache-2.0

/// A user of a load, with the credential made beforehand, as making it takes as long as checking it.
struct LoadUser: Sendable {
    let name: String
    let token: String

    /// Users with tokens that the gateway takes.
    static func named(_ names: [String]) throws -> [LoadUser] {
        try names.map { LoadUser(name: $0, token: try Environment.token(user: $0)) }
    }

    /// Users of the bare server, which takes a token for the name itself.
    static func bare(_ names: [String]) -> [LoadUser] {
        names.map { LoadUser(name: $0, token: $0) }
    }
}
