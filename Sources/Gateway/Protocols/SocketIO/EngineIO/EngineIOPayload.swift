// Carillon · EngineIOPayload.swift
// SPDX-License-Identifier: Apache-2.0

/// What one HTTP request or response of polling carries: packets joined by the record separator.
package enum EngineIOPayload {
    static let separator: UInt8 = 0x1E
    private static let binaryMark = UInt8(ascii: "b")

    /// Joins packets; an empty list is an empty body, which must never be sent.
    package static func encode(_ packets: [EngineIOPacket]) -> [UInt8] {
        var body: [UInt8] = []
        body.reserveCapacity(packets.reduce(0) { $0 + Self.length(of: $1) + 1 })
        for (index, packet) in packets.enumerated() {
            if index > 0 { body.append(Self.separator) }
            if case .message(.binary(let bytes)) = packet {
                body.append(Self.binaryMark)
                Base64.append(bytes, to: &body)
            } else if let text = packet.text {
                body.append(contentsOf: text)
            }
        }
        return body
    }

    /// How many bytes a packet takes in a body, without a separator.
    static func length(of packet: EngineIOPacket) -> Int {
        switch packet {
        case .message(.binary(let bytes)): 1 + Base64.length(of: bytes.count)
        case .message(.text(let content)), .open(let content), .ping(let content), .pong(let content): 1 + content.count
        case .close, .upgrade, .noop: 1
        }
    }

    /// The packets of a body.
    ///
    /// - Throws: The first fault; then no packet of the body counts. A body of more than `maximumBytes` or
    ///   `maximumPackets` is refused before it is read.
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

    /// How many packets of a body carry no message, as their first bytes tell.
    package static func countWithoutMessage(in body: [UInt8]) -> Int {
        body.split(separator: Self.separator, omittingEmptySubsequences: false).count { packet in
            packet.first != UInt8(ascii: "4") && packet.first != Self.binaryMark
        }
    }

    private static func packet(_ text: ArraySlice<UInt8>) throws(EngineIOFault) -> EngineIOPacket {
        guard text.first == Self.binaryMark else { return try EngineIOPacket(text: text) }
        guard let bytes = Base64.decode(text.dropFirst()) else { throw .invalidBase64 }
        return .message(.binary(bytes))
    }
}
