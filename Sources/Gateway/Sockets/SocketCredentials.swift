// Carillon · SocketCredentials.swift
// SPDX-License-Identifier: Apache-2.0

package import NIOHTTP1

/// What an upgrade request, or the first request of a dialect's session, carries that may say who sends it.
package struct SocketCredentials: Sendable, CustomStringConvertible {
    /// Every `Authorization` field.
    package let authorization: [String]
    /// Every `Cookie` field.
    package let cookies: [String]
    package let origin: String?
    package let fetchSite: String?
    /// A token in the dialect's own place, such as a subprotocol or the query.
    package var token: String?
    /// A one-use ticket, from the query.
    package var ticket: String?
    /// Whether `Authorization: Token` and the configured cookie count as well, as they do for existing clients.
    package var isCompatible = false

    package init(_ headers: HTTPHeaders) {
        self.authorization = headers["authorization"]
        self.cookies = headers["cookie"]
        self.origin = headers.first(name: "origin")
        self.fetchSite = headers.first(name: "sec-fetch-site")
    }

    /// Nothing of what they are.
    package var description: String { "credentials" }
}
