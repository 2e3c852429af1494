// Carillon · SocketIOPacketTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Support
import Testing

@Suite("Socket.IO packets to the client", .timeLimit(.minutes(10)))
struct SocketIOPacketTests {
    @Test("Packets are written as the protocol has it")
    func texts() {
        let sid = JSONValue.object([JSONMember("sid", .string("S"))])
        let table: [(SocketIOPacket, String)] = [
            (SocketIOPacket(.connect(nil)), "0"),
            (SocketIOPacket(.connect(sid)), #"0{"sid":"S"}"#),
            (SocketIOPacket(.connect(sid), namespace: "/admin"), #"0/admin,{"sid":"S"}"#),
            (SocketIOPacket(.disconnect), "1"),
            (SocketIOPacket(.disconnect, namespace: "/admin"), "1/admin,"),
            (SocketIOPacket(.event("name", [.json(.number("1"))], acknowledgement: nil)), #"2["name",1]"#),
            (SocketIOPacket(.event(.number("7"), [], acknowledgement: 0)), "20[7]"),
            (SocketIOPacket(.event("a", [], acknowledgement: 12), namespace: "/admin"), #"2/admin,12["a"]"#),
            (
                SocketIOPacket(.event("a\u{1E}\u{2028}", [.encoded(Array(#"{"b": 1}"#.utf8))], acknowledgement: nil)),
                "2[\"a\\u001e\u{2028}\",{\"b\": 1}]"
            ),
            (SocketIOPacket(.acknowledgement(3, [])), "33[]"),
            (SocketIOPacket(.acknowledgement(3, [.json(.null)]), namespace: "/x"), "3/x,3[null]"),
            (SocketIOPacket(.connectError(.object([JSONMember("message", .string("no"))]))), #"4{"message":"no"}"#),
        ]
        for (packet, text) in table { #expect(packet.messages == [.text(Array(text.utf8))], "\(text)") }
    }

    @Test("Bytes become placeholders in the order of their places, and make the packet a binary one")
    func binary() {
        let arguments: [SocketIOValue] = [
            .bytes([1]), .object([.init("a\"", .array([.bytes([2]), .json(.bool(true))]))]), .bytes([1]),
        ]
        let text =
            #"/admin,7["e",{"_placeholder":true,"num":0},"#
            + #"{"a\"":[{"_placeholder":true,"num":1},true]},{"_placeholder":true,"num":2}]"#
        let event = SocketIOPacket(.event("e", arguments, acknowledgement: 7), namespace: "/admin")
        let attachments: [EngineIOMessage] = [.binary([1]), .binary([2]), .binary([1])]
        #expect(event.messages == [.text(Array("53-\(text)".utf8))] + attachments)

        let acknowledgement = SocketIOPacket(.acknowledgement(9, [.bytes([5])]))
        let acknowledged = Array(#"61-9[{"_placeholder":true,"num":0}]"#.utf8)
        #expect(acknowledgement.messages == [.text(acknowledged), .binary([5])])
    }

    @Test("Whatever is written is read as the same", arguments: 0..<300)
    func roundTrip(seed: Int) throws {
        var generator = SeededGenerator(seed: UInt64(seed))
        let packet = Self.packet(&generator)
        var decoder = SocketIODecoder(configuration: SocketIOConfiguration(maximumAttachments: 1_000))
        var read: [SocketIOPacket] = []
        for message in packet.messages {
            #expect(read.isEmpty, "complete only with the last message")
            if let packet = try decoder.read(message) { read.append(packet) }
        }
        #expect(read == [packet])
    }

    private static func packet(_ generator: inout SeededGenerator) -> SocketIOPacket {
        let namespace = ["/", "/admin", "/ü/😀", "/7"].randomElement(using: &generator) ?? "/"
        let arguments = (0..<Int.random(in: 0...4, using: &generator)).map { _ in Self.value(&generator, depth: 0) }
        let id: UInt64? = Bool.random(using: &generator) ? UInt64.random(in: 0..<(1 << 53), using: &generator) : nil
        let content: SocketIOPacket.Content =
            switch Int.random(in: 0..<6, using: &generator) {
            case 0: .connect(Bool.random(using: &generator) ? nil : .object([JSONMember("a", Self.json(&generator))]))
            case 1: .disconnect
            case 2: .acknowledgement(id ?? 0, arguments)
            case 3: .connectError(.object([JSONMember("message", Self.json(&generator))]))
            case 4: .event(.number("-1.5e3"), arguments, acknowledgement: id)
            default: .event(.text(Self.text(&generator)), arguments, acknowledgement: id)
            }
        return SocketIOPacket(content, namespace: namespace)
    }

    /// A value in the form in which it is read: with bytes below every array and object that is not plain JSON.
    private static func value(_ generator: inout SeededGenerator, depth: Int) -> SocketIOValue {
        switch Int.random(in: 0..<(depth < 4 ? 5 : 3), using: &generator) {
        case 0, 1: return .json(Self.json(&generator))
        case 2: return .bytes(generator.bytes(Int.random(in: 0...5, using: &generator)))
        case 3: return .array([.bytes([1]), Self.value(&generator, depth: depth + 1)].shuffled(using: &generator))
        default:
            let inner = Self.value(&generator, depth: depth + 1)
            return .object([.init(Self.text(&generator), inner), .init("bytes", .bytes([2]))])
        }
    }

    private static func json(_ generator: inout SeededGenerator) -> JSONValue {
        let values: [JSONValue] = [
            .null, .bool(false), .number("-0.5E+7"), .string(Self.text(&generator)), .array([]), .object([]),
            .array([.object([JSONMember("a", .string(Self.text(&generator)))]), .null]),
        ]
        return values.randomElement(using: &generator) ?? .null
    }

    private static func text(_ generator: inout SeededGenerator) -> String {
        let characters: [Character] = ["a", "\"", "\\", "\u{1E}", "\u{2028}", "é", "😀", ",", "/", "-", "0", "\n"]
        return String(
            (0..<Int.random(in: 1...8, using: &generator)).map { _ in
                characters.randomElement(using: &generator) ?? "a"
            })
    }
}
