// Carillon · EngineIOPacket.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An Engine.IO 4 packet; the first character of its text is the type.
///
/// The text is UTF-8. A binary message has no type: on a WebSocket it is a binary frame, in a
/// polling payload the letter `b` and base64.
package enum EngineIOPacket: Sendable, Equatable {
    /// The handshake's JSON; sent only by the server.
    case open([UInt8])
    case close
    /// A heartbeat from the server; from the client only with the text `probe`, on a WebSocket that
    /// wants to take over.
    case ping([UInt8])
    case pong([UInt8])
    case message(EngineIOMessage)
    /// The client's confirmation that the probed WebSocket takes over.
    case upgrade
    /// Sent only by the server, to release a poll.
    case noop

    /// The content of a probe and its answer.
    static let probe = Array("probe".utf8)

    /// Decodes the text of one packet.
    ///
    /// Does not validate UTF-8: WebSocket frames and polling payloads were validated as a whole.
    init(text: ArraySlice<UInt8>) throws(EngineIOFault) {
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

    /// The packet's text; nil for a binary message, which is sent as a binary frame.
    var text: [UInt8]? {
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

/// A message of the layer above: UTF-8 text or bytes.
package enum EngineIOMessage: Sendable, Equatable {
    case text([UInt8])
    case binary([UInt8])

    var fitsPolling: Bool {
        if case .text(let text) = self { return !text.contains(EngineIOPayload.separator) }
        return true
    }
}

/// The content of the server's first packet: exactly five members.
enum EngineIOHandshake {
    /// Returns the JSON of the open packet.
    ///
    /// - Parameter sid: the session's id, a bearer secret: by convention 20 base64url characters.
    ///   Never show it to others or use it elsewhere.
    static func json(sid: String, transport: EngineIOTransport, configuration: EngineIOConfiguration) -> [UInt8] {
        var writer = JSONWriter(capacity: 128)
        writer.beginObject()
        writer.member("sid", sid)
        writer.key("upgrades")
        writer.beginArray()
        if transport == .polling { writer.string("websocket") }
        writer.endArray()
        writer.member("pingInterval", configuration.pingInterval)
        writer.member("pingTimeout", configuration.pingTimeout)
        writer.member("maxPayload", configuration.maximumPayload)
        writer.endObject()
        return writer.bytes
    }
}

/// The body of a polling request or response: packets joined by the record separator.
package enum EngineIOPayload {
    package static let separator: UInt8 = 0x1E
    private static let binaryMark = UInt8(ascii: "b")

    /// Joins packets; an empty list gives an empty body, which must never be sent.
    package static func encode(_ packets: [EngineIOPacket]) -> [UInt8] {
        var body: [UInt8] = []
        body.reserveCapacity(packets.reduce(0) { $0 + Self.length(of: $1) + 1 })
        for (index, packet) in packets.enumerated() {
            if index > 0 { body.append(Self.separator) }
            if case .message(.binary(let bytes)) = packet {
                body.append(Self.binaryMark)
                Base64.standard.append(bytes, to: &body)
            } else if let text = packet.text {
                body.append(contentsOf: text)
            }
        }
        return body
    }

    /// Returns the bytes of a packet in a body, without a separator.
    static func length(of packet: EngineIOPacket) -> Int {
        switch packet {
        case .message(.binary(let bytes)): 1 + Base64.length(of: bytes.count)
        case .message(.text(let content)), .open(let content), .ping(let content), .pong(let content): 1 + content.count
        case .close, .upgrade, .noop: 1
        }
    }

    /// Decodes the packets of a body.
    ///
    /// - Throws: the first fault, which discards the whole body. A body over `maximumBytes` or
    ///   `maximumPackets` is rejected before it is parsed.
    package static func decode(_ body: [UInt8], maximumPackets: Int, maximumBytes: Int) throws(EngineIOFault)
        -> [EngineIOPacket]
    {
        guard body.count <= maximumBytes else { throw .tooLarge }
        guard body.count(where: { $0 == Self.separator }) < maximumPackets else { throw .tooManyPackets }
        guard String(validating: body, as: UTF8.self) != nil else { throw .invalidUTF8 }
        var packets: [EngineIOPacket] = []
        var rest = body[...]
        while true {
            let end = rest.firstIndex(of: Self.separator)
            packets.append(try Self.packet(rest[..<(end ?? rest.endIndex)]))
            guard let end else { return packets }
            rest = rest[(end + 1)...]
        }
    }

    /// Counts the packets without a message in a body, judging by their first bytes.
    package static func countWithoutMessage(in body: [UInt8]) -> Int {
        body.split(separator: Self.separator, omittingEmptySubsequences: false).count { packet in
            packet.first != UInt8(ascii: "4") && packet.first != Self.binaryMark
        }
    }

    private static func packet(_ text: ArraySlice<UInt8>) throws(EngineIOFault) -> EngineIOPacket {
        guard text.first == Self.binaryMark else { return try EngineIOPacket(text: text) }
        guard let bytes = Base64.standard.decodeLeniently(text.dropFirst()) else { throw .invalidBase64 }
        return .message(.binary(bytes))
    }
}

/// The reason why input is not an Engine.IO packet or polling payload.
package enum EngineIOFault: String, Error, Sendable, Equatable {
    case emptyPacket = "a packet without a type"
    case unknownType = "a packet of unknown type"
    /// Close, upgrade and noop have no content.
    case unexpectedContent = "content in a packet that carries none"
    case invalidUTF8 = "text that is not valid UTF-8"
    case invalidBase64 = "a binary packet that is not base64"
    case tooManyPackets = "too many packets in a payload"
    case tooLarge = "too large a payload"
}
