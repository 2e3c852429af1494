// Carillon · EngineIOFault.swift
// SPDX-License-Identifier: Apache-2.0

/// Why something is no Engine.IO packet, or no polling payload.
package enum EngineIOFault: String, Error, Sendable, Equatable {
    case emptyPacket = "a packet without a type"
    case unknownType = "a packet of unknown type"
    /// Close, upgrade and noop carry nothing.
    case unexpectedContent = "content in a packet that carries none"
    case invalidUTF8 = "text that is not valid UTF-8"
    case invalidBase64 = "a binary packet that is not base64"
    case tooManyPackets = "too many packets in a payload"
    case tooLarge = "too large a payload"
}
