// Carillon · SocketCredentials.swift
// SPDX-License-Identifier: Apache-2.0

import NIOHTTP1

/// What the request for a socket or a stream carries that may say who sends it.
///
/// A cookie never does: browsers send it for any page.
package struct SocketCredentials: Sendable, CustomStringConvertible {
    /// Every `Authorization` field.
    package let authorization: [String]
    /// A token in the dialect's own place, such as a subprotocol.
    package var token: String?
    /// A one-use ticket, from the query.
    package var ticket: String?

    package init(_ headers: HTTPHeaders) {
        self.authorization = headers["authorization"]
    }

    /// Nothing of what they are.
    package var description: String { "credentials" }
}
