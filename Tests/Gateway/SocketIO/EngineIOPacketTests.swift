// Carillon · EngineIOPacketTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("Engine.IO packets", .timeLimit(.minutes(10)))
struct EngineIOPacketTests {
    @Test("Each packet has its text, and each text its packet")
    func texts() throws {
        let table: [(EngineIOPacket, String)] = [
            (.open(Array("{}".utf8)), "0{}"), (.close, "1"), (.ping([]), "2"), (.ping(EngineIOPacket.probe), "2probe"),
            (.pong([]), "3"), (.pong(EngineIOPacket.probe), "3probe"), (.message(.text([])), "4"),
            (.message(.text(Array("4€".utf8))), "44€"), (.upgrade, "5"), (.noop, "6"),
        ]
        for (packet, text) in table {
            #expect(packet.text == Array(text.utf8), "\(text)")
            #expect(try EngineIOPacket(text: Array(text.utf8)[...]) == packet, "\(text)")
        }
        #expect(EngineIOPacket.message(.binary([1])).text == nil)
    }

    @Test(
        "What is no packet is refused with its reason",
        arguments: [
            ("", EngineIOFault.emptyPacket), ("7", .unknownType), ("abc", .unknownType), ("bAQID", .unknownType),
            (" 4", .unknownType), ("1x", .unexpectedContent), ("5x", .unexpectedContent), ("66", .unexpectedContent),
        ])
    func refused(text: String, fault: EngineIOFault) {
        #expect(throws: fault) { try EngineIOPacket(text: Array(text.utf8)[...]) }
    }
}
