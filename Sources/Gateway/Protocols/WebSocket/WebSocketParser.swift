// Carillon · WebSocketParser.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// Parses a client's frames (RFC 6455 section 5) and assembles messages.
///
/// Pure: uses no channel.
package struct WebSocketParser {
    /// A complete message, a control frame, or the end of valid input.
    package enum Event: Equatable, Sendable {
        case text(String)
        case binary([UInt8])
        case ping([UInt8])
        case pong([UInt8])
        /// A close frame; the code is nil if the frame has none.
        case close(code: UInt16?)
        /// A protocol violation; later input is ignored.
        case violation(WebSocketCloseCode, String)
    }

    private enum Opcode: UInt8 {
        case continuation = 0, text, binary
        case close = 8, ping, pong

        var isControl: Bool { self.rawValue >= 8 }
    }

    private struct Header {
        let isFinal: Bool
        let opcode: Opcode
        let mask: UInt32
        let length: Int
    }

    private struct Violation: Error {
        let code: WebSocketCloseCode
        let reason: String
    }

    /// Input that is not parsed yet; nil while the peer sends whole frames.
    private var unread: ByteBuffer?
    private var header: Header?
    private var messageKind: Opcode?
    private var message: [UInt8] = []
    private var fragmentCount = 0
    /// Validates text fragments as they arrive, so that invalid text fails early (RFC 6455 section
    /// 8.1).
    private var progress = UTF8Progress()
    private var isOver = false

    private let maximumMessage: Int
    private let maximumFragments: Int

    /// - Parameters:
    ///   - maximumMessage: the most bytes of a message; a longer one is a violation with code 1009.
    ///   - maximumFragments: the most frames of a message; one more is a violation with code 1008.
    package init(maximumMessage: Int = 64 * 1024, maximumFragments: Int = 256) {
        self.maximumMessage = maximumMessage
        self.maximumFragments = maximumFragments
    }

    /// The bytes of memory held for an incomplete frame or message.
    package var buffered: Int { (self.unread?.storageCapacity ?? 0) + self.message.count }

    /// Whether a frame or a message has begun and not ended.
    package var isIncomplete: Bool { self.unread != nil || self.header != nil || self.messageKind != nil }

    /// Parses the input and delivers every complete event.
    package mutating func read(_ buffer: ByteBuffer, _ handle: (Event) -> Void) {
        guard !self.isOver else { return }
        var bytes = buffer
        if var unread = self.unread {
            // Cleared first: a second reference would make each piece copy all earlier input.
            self.unread = nil
            unread.writeImmutableBuffer(bytes)
            bytes = unread
        }
        do throws(Violation) {
            while !self.isOver, let event = try self.next(&bytes) {
                if let event { handle(event) }
            }
        } catch {
            self.isOver = true
            handle(.violation(error.code, error.reason))
            return
        }
        let rest = bytes.readableBytes
        guard rest > 0, !self.isOver else { return }
        // A slice keeps the whole buffer alive, so copy a small rest.
        self.unread = rest < bytes.storageCapacity / 2 ? ByteBuffer(buffer: bytes) : bytes.slice()
    }

    /// Returns the next frame's event; the outer nil means an incomplete frame, the inner nil a
    /// frame that completes no message.
    private mutating func next(_ bytes: inout ByteBuffer) throws(Violation) -> Event?? {
        if self.header == nil { self.header = try self.readHeader(&bytes) }
        guard let header = self.header, var payload = bytes.readBytes(length: header.length) else {
            return Event??.none
        }
        self.header = nil
        Self.unmask(&payload, header.mask)
        return Event??.some(try self.event(header, payload))
    }

    private func readHeader(_ bytes: inout ByteBuffer) throws(Violation) -> Header? {
        let start = bytes
        guard let first: UInt8 = bytes.readInteger(), let second: UInt8 = bytes.readInteger() else {
            bytes = start
            return nil
        }
        guard first & 0x70 == 0 else { throw Violation(code: .protocolError, reason: "reserved bits are set") }
        guard let opcode = Opcode(rawValue: first & 0x0F) else {
            throw Violation(code: .protocolError, reason: "unknown opcode")
        }
        guard second & 0x80 != 0 else { throw Violation(code: .protocolError, reason: "frame is not masked") }
        let isFinal = first & 0x80 != 0
        guard let length = try self.readLength(second & 0x7F, &bytes), let mask: UInt32 = bytes.readInteger() else {
            bytes = start
            return nil
        }
        if opcode.isControl {
            guard isFinal, length <= 125 else {
                throw Violation(code: .protocolError, reason: "control frame is fragmented or too long")
            }
        } else {
            try self.checkData(opcode, length: length)
        }
        return Header(isFinal: isFinal, opcode: opcode, mask: mask, length: length)
    }

    private func readLength(_ short: UInt8, _ bytes: inout ByteBuffer) throws(Violation) -> Int? {
        let length: UInt64
        let least: UInt64
        switch short {
        case 126:
            guard let value: UInt16 = bytes.readInteger() else { return nil }
            (length, least) = (UInt64(value), 126)
        case 127:
            guard let value: UInt64 = bytes.readInteger() else { return nil }
            (length, least) = (value, 65_536)
        default:
            return Int(short)
        }
        guard length >= least, length >> 63 == 0 else {
            throw Violation(code: .protocolError, reason: "length is not in its shortest form")
        }
        return Int(length)
    }

    private func checkData(_ opcode: Opcode, length: Int) throws(Violation) {
        guard (opcode == .continuation) == (self.messageKind != nil) else {
            throw Violation(code: .protocolError, reason: "message is out of order")
        }
        // Subtract instead of adding: the peer's length may be huge and would overflow.
        guard length <= self.maximumMessage - self.message.count else {
            throw Violation(code: .messageTooBig, reason: "message exceeds \(self.maximumMessage) bytes")
        }
        guard self.fragmentCount < self.maximumFragments else {
            throw Violation(code: .policyViolation, reason: "message has too many fragments")
        }
    }

    private static func unmask(_ payload: inout [UInt8], _ mask: UInt32) {
        guard mask != 0 else { return }
        let key = (UInt8(mask >> 24), UInt8(mask >> 16 & 0xFF), UInt8(mask >> 8 & 0xFF), UInt8(mask & 0xFF))
        for index in payload.indices {
            switch index & 3 {
            case 0: payload[index] ^= key.0
            case 1: payload[index] ^= key.1
            case 2: payload[index] ^= key.2
            default: payload[index] ^= key.3
            }
        }
    }

    private mutating func event(_ header: Header, _ payload: [UInt8]) throws(Violation) -> Event? {
        switch header.opcode {
        case .ping: return .ping(payload)
        case .pong: return .pong(payload)
        case .close: return try self.close(payload)
        case .text, .binary:
            guard header.isFinal else {
                self.messageKind = header.opcode
                self.progress = UTF8Progress()
                try self.check(payload)
                self.message = payload
                self.fragmentCount = 1
                return nil
            }
            return try Self.message(header.opcode, payload)
        case .continuation:
            try self.check(payload)
            self.message += payload
            self.fragmentCount += 1
            guard header.isFinal, let kind = self.messageKind else { return nil }
            defer {
                self.messageKind = nil
                self.message = []
                self.fragmentCount = 0
            }
            return try Self.message(kind, self.message)
        }
    }

    private static let invalidText = Violation(code: .invalidPayload, reason: "text is not valid UTF-8")

    private mutating func check(_ fragment: [UInt8]) throws(Violation) {
        guard self.messageKind == .text else { return }
        guard self.progress.accepts(fragment) else { throw Self.invalidText }
    }

    private static func message(_ kind: Opcode, _ payload: [UInt8]) throws(Violation) -> Event {
        guard kind == .text else { return .binary(payload) }
        guard let text = String(validating: payload, as: UTF8.self) else { throw Self.invalidText }
        return .text(text)
    }

    private mutating func close(_ payload: [UInt8]) throws(Violation) -> Event {
        self.isOver = true
        guard !payload.isEmpty else { return .close(code: nil) }
        guard payload.count >= 2 else { throw Violation(code: .protocolError, reason: "close code is cut short") }
        let code = UInt16(payload[0]) << 8 | UInt16(payload[1])
        guard WebSocketCloseCode.isValidOnTheWire(code) else {
            throw Violation(code: .protocolError, reason: "close code is not valid")
        }
        guard String(validating: payload.dropFirst(2), as: UTF8.self) != nil else {
            throw Violation(code: .invalidPayload, reason: "close reason is not valid UTF-8")
        }
        return .close(code: code)
    }
}

/// Validates UTF-8 (RFC 3629 section 4) that arrives in pieces, which may split a sequence.
struct UTF8Progress {
    /// The bytes that the current sequence still needs.
    private var missing: UInt8 = 0
    /// The allowed range of its next byte.
    private var range: ClosedRange<UInt8> = 0x80...0xBF

    /// Validates the next piece; false if it cannot be part of valid UTF-8.
    mutating func accepts(_ bytes: [UInt8]) -> Bool {
        for byte in bytes {
            guard self.missing > 0 else {
                guard byte < 0x80 || self.begin(byte) else { return false }
                continue
            }
            guard self.range.contains(byte) else { return false }
            self.range = 0x80...0xBF
            self.missing -= 1
        }
        return true
    }

    /// Takes the first byte of a sequence and limits the second, which rules out overlong forms,
    /// surrogates and anything beyond U+10FFFF.
    private mutating func begin(_ byte: UInt8) -> Bool {
        switch byte {
        case 0xC2...0xDF: self.missing = 1
        case 0xE0...0xEF:
            self.missing = 2
            if byte == 0xE0 { self.range = 0xA0...0xBF }
            if byte == 0xED { self.range = 0x80...0x9F }
        case 0xF0...0xF4:
            self.missing = 3
            if byte == 0xF0 { self.range = 0x90...0xBF }
            if byte == 0xF4 { self.range = 0x80...0x8F }
        default: return false
        }
        return true
    }
}
