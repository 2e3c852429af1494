// Carillon · PresentedCredentials.swift
// SPDX-License-Identifier: Apache-2.0

/// What a request carries that may say who sends it, as it came and not yet believed.
package struct PresentedCredentials: Sendable, CustomStringConvertible {
    /// Every `Authorization` field.
    package var authorization: [String] = []
    /// Every `Cookie` field.
    package var cookies: [String] = []
    /// The field `Origin`, which a browser sets and a page cannot.
    package var origin: String?
    /// The field `Sec-Fetch-Site`, likewise.
    package var fetchSite: String?
    /// False for GET and HEAD: what they change is nothing, and their answer stays hidden from pages of other origins.
    package var isUnsafe = true
    /// A token in the place that a dialect has for one: a subprotocol, the query, a message.
    package var token: String?
    /// A one-use ticket of ``SocketTickets``, from the query.
    package var ticket: String?

    package init() {}

    /// Nothing of what they are.
    package var description: String { "credentials" }
}

/// Which ways of saying who one is count.
package struct CredentialKinds: OptionSet, Sendable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// `Authorization: Bearer` (RFC 6750 section 2.1).
    package static let bearer = CredentialKinds(rawValue: 1)
    /// `Authorization: Token`, which some clients send in its place.
    package static let token = CredentialKinds(rawValue: 2)
    /// ``PresentedCredentials/token``.
    package static let inline = CredentialKinds(rawValue: 4)
    /// ``PresentedCredentials/ticket``.
    package static let ticket = CredentialKinds(rawValue: 8)
    /// The configured cookie.
    package static let cookie = CredentialKinds(rawValue: 16)

    /// What the canonical REST paths take.
    package static let canonical: CredentialKinds = [.bearer]
    /// What REST paths for existing clients take.
    package static let compatible: CredentialKinds = [.bearer, .token, .cookie]
    /// What native sockets and streams take; Socket.IO and SignalR bring their token in places of their own.
    package static let socket: CredentialKinds = [.bearer, .inline, .ticket]

    /// Whether they open a socket: its token does not come with every message.
    var areOfSockets: Bool { !self.isDisjoint(with: [.inline, .ticket]) }
}
