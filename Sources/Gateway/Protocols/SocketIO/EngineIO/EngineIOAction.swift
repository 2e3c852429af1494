// Carillon · EngineIOAction.swift
// SPDX-License-Identifier: Apache-2.0

/// What a session wants done, in the order of the list that it adds to.
package enum EngineIOAction: Sendable, Equatable {
    /// Answer a request; each request is answered exactly once, unless it was aborted.
    case respond(EngineIOCarrier, EngineIOResponse)
    /// Send a text frame as it is.
    case sendText(EngineIOCarrier, [UInt8])
    case sendBinary(EngineIOCarrier, [UInt8])
    /// Close a WebSocket with that code (RFC 6455 section 7.4); nothing more will be sent on it.
    case closeWebSocket(EngineIOCarrier, code: UInt16)
    /// The session travels on this WebSocket now; what waited for a poll follows.
    case upgraded(EngineIOCarrier)
    /// A message for the layer above.
    case deliver(EngineIOMessage)
    /// The session is over: the last action, once.
    case closed(EngineIOCloseReason)
}
