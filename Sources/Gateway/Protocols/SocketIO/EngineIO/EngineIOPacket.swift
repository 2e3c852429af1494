// Carillon · EngineIOPacket.swift
// SPDX-License-Identifier: Apache-2.0

/// A packet of Engine.IO 4: its type is the first character of its text.
///
/// The text of a packet is UTF-8. A binary message has no type: on a WebSocket it is a binary frame, in a polling payload
/// the letter `b` and base64.
package enum EngineIOPacket: Sendable, Equatable {
    /// The handshake's JSON; only the server sends it.
    case open([UInt8])
    case close
    /// From the server a heartbeat; from the client only with the text `probe`, on a WebSocket that wants to take over.
    case ping([UInt8])
    case pong([UInt8])
    case message(EngineIOMessage)
    /// The client's word that the probed WebSocket takes over.
    case upgrade
    /// Only the server sends it, to release a request.
    case noop

    /// What a probe and its answer carry.
    package static let probe = Array("probe".utf8)

    /// Reads the text of one packet.
    ///
    /// Does not check that it is UTF-8: a WebSocket's frames and a polling payload were checked as a whole.
    package init(text: ArraySlice<UInt8>) throws(EngineIOFault) {
        guard let type = text.first else { throw .emptyPacket }
        let content = text.dropFirst()
        switch type {
        case UInt8(ascii: "0"): self = .open(Array(content))
        case UInt8(ascii: "1"): self = try Self.bare(.close, content)
        case UInt8(ascii: "2"): self = .ping(Array(content))
        case UInt8(ascii: "3"): self = .pong(Array(content))
        case UInt8(ascii: "4"): self = .message(.text(Array(content)))
        case UInt8(ascii: "5"): self = try Self.bare(.upgrade, content)
        case UInt8(ascii: "6"): self = try Self.bare(.noop, content)
        default: throw .unknownType
        }
    }

    private static func bare(_ packet: EngineIOPacket, _ content: ArraySlice<UInt8>) throws(EngineIOFault)
        -> EngineIOPacket
    {
        guard content.isEmpty else { throw .unexpectedContent }
        return packet
    }

    /// Its text, or nil for a binary message, which goes as a binary frame.
    package var text: [UInt8]? {
        switch self {
        case .open(let json): Self.joined("0", json)
        case .close: Array("1".utf8)
        case .ping(let content): Self.joined("2", content)
        case .pong(let content): Self.joined("3", content)
        case .message(.text(let content)): Self.joined("4", content)
        case .message(.binary): nil
        case .upgrade: Array("5".utf8)
        case .noop: Array("6".utf8)
        }
    }

    private static func joined(_ type: Unicode.Scalar, _ content: [UInt8]) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(content.count + 1)
        text.append(UInt8(ascii: type))
        text.append(contentsOf: content)
        return text
    }

    var isMessage: Bool {
        if case .message = self { return true }
        return false
    }
}
