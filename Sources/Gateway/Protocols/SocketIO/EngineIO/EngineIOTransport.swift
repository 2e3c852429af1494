// Carillon · EngineIOTransport.swift
// SPDX-License-Identifier: Apache-2.0

/// How a session's packets travel now.
package enum EngineIOTransport: String, Sendable, Equatable {
    case polling
    case webSocket = "websocket"
}
