// Carillon · SocketIOMissedEvent.swift
// SPDX-License-Identifier: Apache-2.0

/// An event that a client missed, with its place.
package struct SocketIOMissedEvent: Sendable, Equatable {
    package let name: SocketIOEventName
    package let arguments: [SocketIOValue]
    package let offset: String

    package init(_ name: SocketIOEventName, _ arguments: [SocketIOValue], offset: String) {
        self.name = name
        self.arguments = arguments
        self.offset = offset
    }
}
