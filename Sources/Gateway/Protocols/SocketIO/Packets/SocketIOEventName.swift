// Carillon · SocketIOEventName.swift
// SPDX-License-Identifier: Apache-2.0

/// What an event is called: a text, rarely a number, which is kept as written.
package enum SocketIOEventName: Sendable, Hashable {
    case text(String)
    case number(String)

    /// Names that clients and servers use for themselves and that no packet may carry.
    package static let reserved: Set<String> = [
        "connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener",
    ]
}

extension SocketIOEventName: ExpressibleByStringLiteral {
    package init(stringLiteral text: String) {
        self = .text(text)
    }
}
