// Carillon · SocketIOPacketTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Protocols

@Suite("Socket.IO packets to the client", .timeLimit(.minutes(10)))
struct SocketIOPacketTests {
    @Test("writes packets in the protocol's form")
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

    @Test("replaces bytes with placeholders in order and makes the packet binary")
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

    @Test("round-trips random packets", arguments: 0..<300)
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

    /// A random value in the form in which it is read: every array or object that holds bytes is
    /// not plain JSON.
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

@Suite("Socket.IO packets from the client", .timeLimit(.minutes(10)))
struct SocketIODecoderTests {
    private static func read(
        _ messages: [EngineIOMessage], _ configuration: SocketIOConfiguration = SocketIOConfiguration()
    ) throws -> [SocketIOPacket] {
        var decoder = SocketIODecoder(configuration: configuration)
        return try messages.compactMap { try decoder.read($0) }
    }

    private static func read(
        _ text: String, _ configuration: SocketIOConfiguration = SocketIOConfiguration()
    ) throws -> SocketIOPacket? {
        try Self.read([.text(Array(text.utf8))], configuration).first
    }

    private static func event(
        _ name: SocketIOEventName, _ arguments: JSONValue..., in namespace: String = "/", id: UInt64? = nil
    ) -> SocketIOPacket {
        SocketIOPacket(
            .event(name, arguments.map { .json($0) }, acknowledgement: id), namespace: namespace)
    }

    @Test("reads every type, with and without namespace, acknowledgement and payload")
    func packets() throws {
        let token = JSONValue.object([JSONMember("token", .string("x"))])
        let table: [(String, SocketIOPacket)] = [
            ("0", SocketIOPacket(.connect(nil))),
            (#"0{"token":"x"}"#, SocketIOPacket(.connect(token))),
            ("0/,", SocketIOPacket(.connect(nil))),
            ("0/admin", SocketIOPacket(.connect(nil), namespace: "/admin")),
            ("0/admin,", SocketIOPacket(.connect(nil), namespace: "/admin")),
            (#"0/admin,{"token":"x"}"#, SocketIOPacket(.connect(token), namespace: "/admin")),
            ("1", SocketIOPacket(.disconnect)),
            ("1/admin", SocketIOPacket(.disconnect, namespace: "/admin")),
            ("1/admin,", SocketIOPacket(.disconnect, namespace: "/admin")),
            (#"2["a"]"#, Self.event("a")),
            (#"2["a",1,{"b":null}]"#, Self.event("a", .number("1"), .object([JSONMember("b", .null)]))),
            (#"2 ["a"]"#, Self.event("a")),
            (#"2[1.50]"#, Self.event(.number("1.50"))),
            (#"20["a"]"#, Self.event("a", id: 0)),
            (#"2/admin,12["a"]"#, Self.event("a", in: "/admin", id: 12)),
            (#"29007199254740991["a"]"#, Self.event("a", id: 9_007_199_254_740_991)),
            ("30[]", SocketIOPacket(.acknowledgement(0, []))),
            ("3/x,7[true]", SocketIOPacket(.acknowledgement(7, [.json(.bool(true))]), namespace: "/x")),
            (#"4{"message":"no"}"#, SocketIOPacket(.connectError(.object([JSONMember("message", .string("no"))])))),
            (#"4"no""#, SocketIOPacket(.connectError(.string("no")))),
            (#"50-["a"]"#, Self.event("a")),
            (#"60-3["a"]"#, SocketIOPacket(.acknowledgement(3, [.json(.string("a"))]))),
            ("2[\"a\",\"\u{2028}\\u001e\"]", Self.event("a", .string("\u{2028}\u{1E}"))),
        ]
        for (text, packet) in table {
            let read = try Self.read(text)
            #expect(read == packet, "\(text)")
        }
    }

    @Test(
        "refuses invalid packets with the reason",
        arguments: [
            ("", SocketIOFault.emptyPacket), ("7", .unknownType), ("abc", .unknownType), (#"8["a"]"#, .unknownType),
            (#"5["a"]"#, .attachmentCount), (#"51["a"]"#, .attachmentCount), (#"5-["a"]"#, .attachmentCount),
            (#"5x-["a"]"#, .attachmentCount), ("61", .attachmentCount), (#"511-["a"]"#, .tooManyAttachments),
            (#"599999999999999999999999-["a"]"#, .tooManyAttachments),
            (#"2abc["a"]"#, .invalidJSON), (#"21x["a"]"#, .invalidJSON), (#"2-1["a"]"#, .invalidJSON),
            (#"2["a""#, .invalidJSON), ("2['a']", .invalidJSON), (#"2["a"]]"#, .invalidJSON), ("0abc", .invalidJSON),
            (#"2["a","\u0000"]"#, .invalidJSON), (#"2["a",{"b":1,"b":2}]"#, .invalidJSON),
            (#"29007199254740992["a"]"#, .acknowledgementID), (#"2123456789012345678901["a"]"#, .acknowledgementID),
            ("3[]", .acknowledgementID), ("01{}", .acknowledgementID), ("17", .acknowledgementID),
            (#"40{"message":""}"#, .acknowledgementID),
            ("0[]", .connectPayload), (#"0"x""#, .connectPayload), ("0null", .connectPayload),
            ("0true", .connectPayload), ("1{}", .disconnectPayload), (#"1["a"]"#, .disconnectPayload),
            ("1/admin,null", .disconnectPayload), ("2", .eventPayload), ("2{}", .eventPayload), ("2[]", .eventPayload),
            (#"2"a""#, .eventPayload), ("2[null]", .eventPayload), ("2[{}]", .eventPayload), ("2[true]", .eventPayload),
            ("2[[]]", .eventPayload), ("212", .eventPayload), (#"50-[null]"#, .eventPayload),
            ("3", .acknowledgementPayload), ("31", .acknowledgementPayload), ("31{}", .acknowledgementPayload),
            (#"31"a""#, .acknowledgementPayload), ("60-1{}", .acknowledgementPayload),
            ("4", .connectErrorPayload), ("4[]", .connectErrorPayload), ("4null", .connectErrorPayload),
        ])
    func refused(text: String, fault: SocketIOFault) {
        #expect(throws: fault, "\(text)") { try Self.read(text) }
    }

    @Test("refuses exactly the reserved names, plain and binary", arguments: SocketIOEventName.reserved)
    func reserved(name: String) throws {
        #expect(throws: SocketIOFault.reservedEventName) { try Self.read(#"2["\#(name)"]"#) }
        let binary = #"51-["\#(name)",{"_placeholder":true,"num":0}]"#
        #expect(throws: SocketIOFault.reservedEventName) { try Self.read(binary) }
        let read = try Self.read(#"2["\#(name)s"]"#)
        #expect(read == Self.event(.text("\(name)s")))
    }

    @Test("limits namespaces to UTF-8 without control characters and a length")
    func namespaces() throws {
        let configuration = SocketIOConfiguration(maximumNamespaceLength: 8)
        let longest = try Self.read("0/1234567", configuration)
        #expect(longest?.namespace == "/1234567")
        #expect(throws: SocketIOFault.namespace) { try Self.read("0/12345678", configuration) }
        #expect(throws: SocketIOFault.namespace) { try Self.read("0/a\u{1E}b") }
        #expect(throws: SocketIOFault.namespace) { try Self.read([.text([0x30, 0x2F, 0xFF])]) }
    }

    @Test("puts bytes in their places at any depth and order once the last attachment arrived")
    func binary() throws {
        let text =
            #"53-/admin,7["e",{"_placeholder":true,"num":2},"#
            + #"{"a":[1,{"b":{"num":0,"_placeholder":true}}],"c":{"d":2}},[{"_placeholder":true,"num":1}]]"#
        let messages: [EngineIOMessage] = [
            .text(Array(text.utf8)), .binary([0]), .binary([]), .binary([2, 2]), .text(Array(#"2["next"]"#.utf8)),
        ]
        let c = SocketIOValue.json(.object([JSONMember("d", .number("2"))]))
        let inner = SocketIOValue.object([.init("b", .bytes([0]))])
        let arguments: [SocketIOValue] = [
            .bytes([2, 2]),
            .object([.init("a", .array([.json(.number("1")), inner])), .init("c", c)]),
            .array([.bytes([])]),
        ]
        let event = SocketIOPacket(.event("e", arguments, acknowledgement: 7), namespace: "/admin")
        let read = try Self.read(messages)
        #expect(read == [event, Self.event("next")])

        let acknowledgement = #"61-4[{"_placeholder":true,"num":0}]"#
        let second = try Self.read([.text(Array(acknowledgement.utf8)), .binary([9])])
        #expect(second == [SocketIOPacket(.acknowledgement(4, [.bytes([9])]))])
    }

    @Test(
        "refuses a packet before its attachments unless placeholders match them one to one",
        arguments: [
            #"51-["e",{"_placeholder":true,"num":1}]"#, #"51-["e",{"_placeholder":true,"num":-1}]"#,
            #"51-["e",{"_placeholder":true,"num":0.5}]"#, #"51-["e",{"_placeholder":true,"num":"0"}]"#,
            #"51-["e",{"_placeholder":true}]"#, #"51-["e",{"_placeholder":true,"num":99999999999999999999}]"#,
            #"51-["e",{"_placeholder":true,"num":0},{"_placeholder":true,"num":0}]"#,
            #"52-["e",{"_placeholder":true,"num":0}]"#, #"51-["e"]"#, #"51-["e",{"_placeholder":1,"num":0}]"#,
            #"50-["e",{"_placeholder":true,"num":0}]"#, #"61-1[[{"a":{"_placeholder":true,"num":1}}]]"#,
        ])
    func placeholders(text: String) {
        #expect(throws: SocketIOFault.placeholders, "\(text)") { try Self.read(text) }
    }

    @Test("leaves a placeholder in a plain event to the application")
    func plainPlaceholder() throws {
        let read = try Self.read(#"2["e",{"_placeholder":true,"num":0}]"#)
        let value = JSONValue.object([JSONMember("_placeholder", .bool(true)), JSONMember("num", .number("0"))])
        #expect(read == Self.event("e", value))
    }

    @Test("refuses text while attachments are pending and bytes while none is")
    func sequence() {
        let head = EngineIOMessage.text(Array(#"51-["e",{"_placeholder":true,"num":0}]"#.utf8))
        #expect(throws: SocketIOFault.textWithinBinary) { try Self.read([head, .text(Array(#"2["a"]"#.utf8))]) }
        #expect(throws: SocketIOFault.textWithinBinary) { try Self.read([head, head]) }
        #expect(throws: SocketIOFault.unexpectedBinary) { try Self.read([.binary([1])]) }
        #expect(throws: SocketIOFault.unexpectedBinary) { try Self.read([head, .binary([1]), .binary([2])]) }
        let none = EngineIOMessage.text(Array(#"50-["e"]"#.utf8))
        #expect(throws: SocketIOFault.unexpectedBinary) { try Self.read([none, .binary([1])]) }
    }

    @Test("limits attachments in number and bytes and accepts the limits themselves")
    func bounds() throws {
        func messages(_ sizes: [Int]) -> [EngineIOMessage] {
            let event = SocketIOPacket(
                .event("e", sizes.map { .bytes([UInt8](repeating: 1, count: $0)) }, acknowledgement: nil))
            return event.messages
        }
        let ten = try Self.read(messages([Int](repeating: 1, count: 10)))
        #expect(ten.count == 1)
        #expect(throws: SocketIOFault.tooManyAttachments) { try Self.read(messages([Int](repeating: 1, count: 11))) }
        let small = SocketIOConfiguration(maximumAttachmentBytes: 10)
        let exact = try Self.read(messages([4, 6]), small)
        #expect(exact.count == 1)
        #expect(throws: SocketIOFault.attachmentsTooLarge) { try Self.read(messages([4, 7]), small) }
        #expect(throws: SocketIOFault.attachmentsTooLarge) { try Self.read(messages([11]), small) }
    }
}
