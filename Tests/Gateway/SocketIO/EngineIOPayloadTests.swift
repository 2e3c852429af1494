// Carillon · EngineIOPayloadTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Support
import Testing

@Suite("Polling payloads", .timeLimit(.minutes(10)))
struct EngineIOPayloadTests {
    private static func decode(_ body: [UInt8], packets: Int = 100, bytes: Int = 10_000) throws -> [EngineIOPacket] {
        try EngineIOPayload.decode(body, maximumPackets: packets, maximumBytes: bytes)
    }

    @Test("Packets are joined by the record separator, bytes are base64 behind a b")
    func encode() throws {
        let packets: [EngineIOPacket] = [
            .message(.text(Array("hello".utf8))), .ping([]), .message(.binary([1, 2, 3, 4])), .message(.binary([])),
        ]
        let body = Array("4hello\u{1E}2\u{1E}bAQIDBA==\u{1E}b".utf8)
        #expect(EngineIOPayload.encode(packets) == body)
        let decoded = try Self.decode(body)
        #expect(decoded == packets)
    }

    @Test("Bytes of any length survive", arguments: 0..<70)
    func binary(count: Int) throws {
        var generator = SeededGenerator(seed: UInt64(count))
        let packet = EngineIOPacket.message(.binary(generator.bytes(count)))
        let decoded = try Self.decode(EngineIOPayload.encode([packet]))
        #expect(decoded == [packet])
    }

    @Test(
        "base64 has the standard alphabet and its padding",
        arguments: [
            ("bAA==", [0]), ("bAQI=", [1, 2]), ("b+/+/", [0xFB, 0xFF, 0xBF]), ("b", []),
        ] as [(String, [UInt8])])
    func base64(text: String, bytes: [UInt8]) throws {
        let decoded = try Self.decode(Array(text.utf8))
        #expect(decoded == [.message(.binary(bytes))])
    }

    @Test(
        "base64 passes with line breaks, without its padding and with bits that no byte takes",
        arguments: [
            ("bAQ\nID\r\nBA==\n", [1, 2, 3, 4]), ("bAQIDBA", [1, 2, 3, 4]), ("bAQI", [1, 2]), ("bAQJ=", [1, 2]),
            ("bAB==", [0]), ("bAA=", [0]), ("b\n", []),
        ] as [(String, [UInt8])])
    func lenientBase64(text: String, bytes: [UInt8]) throws {
        let decoded = try Self.decode(Array(text.utf8))
        #expect(decoded == [.message(.binary(bytes))])
    }

    @Test("What is not base64 is refused", arguments: ["bA", "bA===", "bAQIDB", "bA-_A", "bAA==AA==", "b AAA"])
    func notBase64(text: String) {
        #expect(throws: EngineIOFault.invalidBase64) { try Self.decode(Array(text.utf8)) }
    }

    @Test("A body with any fault is refused as a whole, with the fault")
    func faults() {
        let table: [([UInt8], EngineIOFault)] = [
            ([], .emptyPacket), ([0x1E], .emptyPacket), (Array("4a\u{1E}".utf8), .emptyPacket),
            (Array("\u{1E}4a".utf8), .emptyPacket), (Array("4a\u{1E}abc".utf8), .unknownType),
            ([0x34, 0xFF], .invalidUTF8), ([0x34, 0xC3, 0x1E, 0xA9], .invalidUTF8),
        ]
        for (body, fault) in table { #expect(throws: fault, "\(body)") { try Self.decode(body) } }
    }

    @Test("The bounds themselves pass, one more does not")
    func bounds() throws {
        let three = Array("4a\u{1E}4b\u{1E}4c".utf8)
        let decoded = try Self.decode(three, packets: 3, bytes: 8)
        #expect(decoded.count == 3)
        #expect(throws: EngineIOFault.tooManyPackets) { try Self.decode(three, packets: 2) }
        #expect(throws: EngineIOFault.tooLarge) { try Self.decode(three, bytes: 7) }
    }

    @Test("U+2028 and text beyond ASCII survive")
    func text() throws {
        let packet = EngineIOPacket.message(.text(Array("\u{2028}é€😀".utf8)))
        let decoded = try Self.decode(EngineIOPayload.encode([packet, .noop]))
        #expect(decoded == [packet, .noop])
    }
}
