// Carillon · WebSocketFraming.swift
// SPDX-License-Identifier: Apache-2.0

package import NIOCore

/// Writes a server's frames (RFC 6455 section 5.2): final, unmasked, header and payload in one buffer.
package enum WebSocketFraming {
    package static func writeText(_ payload: [UInt8], to buffer: inout ByteBuffer) {
        self.writeHeader(opcode: 1, length: payload.count, to: &buffer)
        buffer.writeBytes(payload)
    }

    package static func writePong(_ payload: [UInt8], to buffer: inout ByteBuffer) {
        self.writeHeader(opcode: 10, length: payload.count, to: &buffer)
        buffer.writeBytes(payload)
    }

    /// A ping whose payload is a sequence number.
    package static func writePing(sequence: UInt64, to buffer: inout ByteBuffer) {
        self.writeHeader(opcode: 9, length: 8, to: &buffer)
        buffer.writeInteger(sequence)
    }

    package static func writeClose(_ code: WebSocketCloseCode, reason: String, to buffer: inout ByteBuffer) {
        // A control frame's payload has at most 125 bytes; our reasons are short ASCII.
        let text = reason.utf8.prefix(123)
        self.writeHeader(opcode: 8, length: 2 + text.count, to: &buffer)
        buffer.writeInteger(code.rawValue)
        buffer.writeBytes(text)
    }

    private static func writeHeader(opcode: UInt8, length: Int, to buffer: inout ByteBuffer) {
        buffer.writeInteger(0x80 | opcode)
        switch length {
        case ..<126: buffer.writeInteger(UInt8(length))
        case ..<65_536:
            buffer.writeInteger(UInt8(126))
            buffer.writeInteger(UInt16(length))
        default:
            buffer.writeInteger(UInt8(127))
            buffer.writeInteger(UInt64(length))
        }
    }
}
