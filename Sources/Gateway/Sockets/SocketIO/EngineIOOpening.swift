// Carillon · EngineIOOpening.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols

/// The request that opens a connection.
package struct EngineIOOpening: Sendable {
    package let head: HTTPRequestHead
    package let query: EngineIOQuery
    package let address: SocketAddress?
}
