// Carillon · WebSocketFramingTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols
import Testing

@Suite("WebSocket framing", .timeLimit(.minutes(10)))
struct WebSocketFramingTests {
    private static func bytes(_ write: (inout ByteBuffer) -> Void) -> [UInt8] {
        var buffer = ByteBuffer()
        write(&buffer)
        return Array(buffer.readableBytesView)
    }

    @Test(
        "Text has the shortest header that fits, final and unmasked",
        arguments: [
            (0, [0x81, 0]), (1, [0x81, 1]), (125, [0x81, 125]), (126, [0x81, 126, 0, 126]),
            (65_535, [0x81, 126, 0xFF, 0xFF]), (65_536, [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] as [(Int, [UInt8])]
    )
    func text(count: Int, header: [UInt8]) {
        let payload = [UInt8](repeating: 0x61, count: count)
        #expect(Self.bytes { WebSocketFraming.writeText(payload, to: &$0) } == header + payload)
    }

    @Test("Control frames")
    func control() {
        #expect(Self.bytes { WebSocketFraming.writePong([1, 2], to: &$0) } == [0x8A, 2, 1, 2])
        #expect(
            Self.bytes { WebSocketFraming.writePing(sequence: 0x0102_0304_0506_0708, to: &$0) }
                == [0x89, 8, 1, 2, 3, 4, 5, 6, 7, 8])
        #expect(
            Self.bytes { WebSocketFraming.writeClose(.unauthorized, reason: "expired", to: &$0) }
                == [0x88, 9, 0x11, 0x31] + Array("expired".utf8))
        #expect(Self.bytes { WebSocketFraming.writeClose(.normal, reason: "", to: &$0) } == [0x88, 2, 0x03, 0xE8])
    }

    @Test("A close frame never exceeds what a control frame may hold")
    func longReason() {
        let reason = String(repeating: "r", count: 500)
        let bytes = Self.bytes { WebSocketFraming.writeClose(.goingAway, reason: reason, to: &$0) }
        #expect(bytes.count == 127)
        #expect(bytes[1] == 125)
    }

    @Test("Frames follow one another in one buffer")
    func appends() {
        let bytes = Self.bytes {
            WebSocketFraming.writeText([0x61], to: &$0)
            WebSocketFraming.writePong([], to: &$0)
        }
        #expect(bytes == [0x81, 1, 0x61, 0x8A, 0])
    }

    @Test("The codes that clients see do not change")
    func codes() {
        #expect(WebSocketCloseCode.unauthorized.rawValue == 4_401)
        #expect(WebSocketCloseCode.tooSlow.rawValue == 4_408)
        #expect(WebSocketCloseCode.serviceRestart.rawValue == 1_012)
        #expect(WebSocketCloseCode.messageTooBig.rawValue == 1_009)
        #expect(WebSocketCloseCode.policyViolation.rawValue == 1_008)
    }

    @Test("The key of RFC 6455 section 1.3")
    func accept() {
        #expect(WebSocketKey.accept("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    }

    @Test(
        "A key is 16 bytes in base64",
        arguments: [
            ("dGhlIHNhbXBsZSBub25jZQ==", true), ("AAAAAAAAAAAAAAAAAAAAAA==", true), ("", false), ("AAAA", false),
            ("dGhlIHNhbXBsZSBub25jZQ", false), ("dGhlIHNhbXBsZSBub25jZSE=", false),
            ("not base64 at all!!!!!!!!", false),
            ("dGhlIHNhbXBsZSBub25jZ\r\n==", false),
        ]
    )
    func keys(key: String, isValid: Bool) {
        #expect(WebSocketKey.isValid(key) == isValid)
    }
}
