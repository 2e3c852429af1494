// Carillon · ClientFrame.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// A client's WebSocket frame (RFC 6455 section 5.2), right or wrong as a test wants it.
struct ClientFrame {
    static let text: UInt8 = 1
    static let binary: UInt8 = 2
    static let close: UInt8 = 8
    static let ping: UInt8 = 9
    static let pong: UInt8 = 10

    /// How the length is written; the shortest form unless a test says otherwise.
    enum LengthForm {
        case shortest, sixteen, sixtyFour
    }

    var opcode: UInt8
    var payload: [UInt8] = []
    var isFinal = true
    var reservedBits: UInt8 = 0
    var mask: [UInt8]? = [0x37, 0xFA, 0x21, 0x3D]
    var lengthForm = LengthForm.shortest
    /// In place of the payload's own length.
    var claimedLength: UInt64?

    init(_ opcode: UInt8, _ payload: [UInt8] = [], isFinal: Bool = true) {
        self.opcode = opcode
        self.payload = payload
        self.isFinal = isFinal
    }

    init(text: String, isFinal: Bool = true) {
        self.init(Self.text, Array(text.utf8), isFinal: isFinal)
    }

    static func continuation(_ payload: [UInt8], isFinal: Bool) -> ClientFrame {
        ClientFrame(0, payload, isFinal: isFinal)
    }

    func with(_ change: (inout ClientFrame) -> Void) -> ClientFrame {
        var frame = self
        change(&frame)
        return frame
    }

    var bytes: [UInt8] {
        let length = self.claimedLength ?? UInt64(self.payload.count)
        let masked: UInt8 = self.mask == nil ? 0 : 0x80
        var bytes = [(self.isFinal ? 0x80 : 0) | self.reservedBits | self.opcode]
        func big(_ count: Int) -> [UInt8] { (0..<count).reversed().map { UInt8(length >> ($0 * 8) & 0xFF) } }
        switch self.lengthForm {
        case .shortest where length < 126: bytes.append(masked | UInt8(length))
        case .shortest where length < 65_536: bytes += [masked | 126] + big(2)
        case .sixteen: bytes += [masked | 126] + big(2)
        case .shortest, .sixtyFour: bytes += [masked | 127] + big(8)
        }
        guard let mask else { return bytes + self.payload }
        return bytes + mask + self.payload.enumerated().map { $0.element ^ mask[$0.offset % 4] }
    }
}

extension WebSocketParser {
    /// The events of what comes in pieces.
    mutating func events(_ pieces: [[UInt8]]) -> [Event] {
        var events: [Event] = []
        for piece in pieces { self.read(ByteBuffer(bytes: piece)) { events.append($0) } }
        return events
    }

    /// The events of frames that come at once to a parser with the default bounds.
    static func events(_ frames: ClientFrame...) -> [Event] {
        var parser = WebSocketParser()
        return parser.events([frames.flatMap(\.bytes)])
    }
}
