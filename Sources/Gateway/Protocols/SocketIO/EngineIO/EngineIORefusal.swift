// Carillon · EngineIORefusal.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Why a request gets no session, as the protocol numbers it.
package enum EngineIORefusal: Sendable, Equatable {
    case unknownTransport
    case unknownSession
    case badHandshakeMethod
    case badRequest
    /// The owner's own check said no; its text goes to the client, or `Forbidden`.
    case forbidden(String?)
    case unsupportedVersion

    package var code: Int {
        switch self {
        case .unknownTransport: 0
        case .unknownSession: 1
        case .badHandshakeMethod: 2
        case .badRequest: 3
        case .forbidden: 4
        case .unsupportedVersion: 5
        }
    }

    package var message: String {
        switch self {
        case .unknownTransport: "Transport unknown"
        case .unknownSession: "Session ID unknown"
        case .badHandshakeMethod: "Bad handshake method"
        case .badRequest: "Bad request"
        case .forbidden(let text): text ?? "Forbidden"
        case .unsupportedVersion: "Unsupported protocol version"
        }
    }

    /// The answer to a plain request.
    package var response: EngineIOResponse {
        var writer = JSONWriter(capacity: 64)
        writer.beginObject()
        writer.member("code", self.code)
        writer.member("message", self.message)
        writer.endObject()
        return EngineIOResponse(status: self.code == 4 ? 403 : 400, contentType: .json, body: writer.bytes)
    }

    /// The answer to a request for a WebSocket: always 400, the text alone; the connection is closed after it.
    package var upgradeResponse: EngineIOResponse {
        EngineIOResponse(status: 400, contentType: .html, body: Array(self.message.utf8))
    }
}
