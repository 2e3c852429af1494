// Carillon · HubRoster.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The sockets that are up on a node.
struct HubRoster: Sendable {
    struct Entry: Sendable {
        let socket: ObjectIdentifier
        let user: String
        let connection: String
        let dialect: Dialect
        let lastVersion: Int64?
        let reference: LoopReference<SocketSession>
    }
}
