// Carillon · WebSocketFraming.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// Writes server frames (RFC 6455 section 5.2): final and unmasked, with header and payload in one
/// buffer.
package enum WebSocketFraming {
    package static func writeText(_ payload: [UInt8], to buffer: inout ByteBuffer) {
        self.writeHeader(opcode: 1, length: payload.count, to: &buffer)
        buffer.writeBytes(payload)
    }

    package static func writeBinary(_ payload: [UInt8], to buffer: inout ByteBuffer) {
        self.writeHeader(opcode: 2, length: payload.count, to: &buffer)
        buffer.writeBytes(payload)
    }

    /// Returns a text frame in its own buffer.
    package static func text(_ payload: [UInt8]) -> ByteBuffer {
        var frame = ByteBufferAllocator().buffer(capacity: payload.count + 10)
        self.writeText(payload, to: &frame)
        return frame
    }

    /// Returns the payload of a frame written by this type.
    package static func payload(of frame: ByteBuffer) -> ByteBuffer {
        var payload = frame
        let short = payload.getInteger(at: payload.readerIndex + 1, as: UInt8.self) ?? 0
        payload.moveReaderIndex(forwardBy: min(payload.readableBytes, short < 126 ? 2 : short == 126 ? 4 : 10))
        return payload
    }

    package static func writePong(_ payload: [UInt8], to buffer: inout ByteBuffer) {
        self.writeHeader(opcode: 10, length: payload.count, to: &buffer)
        buffer.writeBytes(payload)
    }

    /// Writes a ping with a sequence number as payload.
    package static func writePing(sequence: UInt64, to buffer: inout ByteBuffer) {
        self.writeHeader(opcode: 9, length: 8, to: &buffer)
        buffer.writeInteger(sequence)
    }

    /// Writes a close frame with any code.
    package static func writeClose(_ code: UInt16, reason: String, to buffer: inout ByteBuffer) {
        // A control frame's payload is at most 125 bytes; our reasons are short ASCII.
        let text = reason.utf8.prefix(123)
        self.writeHeader(opcode: 8, length: 2 + text.count, to: &buffer)
        buffer.writeInteger(code)
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

/// Close codes (RFC 6455 section 7.4); 4000 and above are ours.
package enum WebSocketCloseCode: UInt16, Sendable {
    case normal = 1000
    case goingAway = 1001
    case protocolError = 1002
    case unsupportedData = 1003
    case invalidPayload = 1007
    case policyViolation = 1008
    case messageTooBig = 1009
    case internalError = 1011
    case serviceRestart = 1012
    case tryAgainLater = 1013
    case unauthorized = 4401
    case tooSlow = 4408
    case tooManyConnections = 4409

    /// Whether a peer may send the code (RFC 6455 section 7.4.1 and the IANA registry).
    static func isValidOnTheWire(_ code: UInt16) -> Bool {
        switch code {
        case 1000...1003, 1007...1014, 3000...4999: true
        default: false
        }
    }
}
