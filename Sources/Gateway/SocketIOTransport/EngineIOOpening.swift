// Carillon · EngineIOOpening.swift
// SPDX-License-Identifier: Apache-2.0

package import NIOCore
package import NIOHTTP1
package import SocketIO

/// The request that opens a connection.
package struct EngineIOOpening: Sendable {
    package let head: HTTPRequestHead
    package let query: EngineIOQuery
    package let address: SocketAddress?
}
