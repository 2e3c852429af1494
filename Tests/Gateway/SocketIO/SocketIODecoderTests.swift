// Carillon · SocketIODecoderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

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

    @Test("Every type, with and without namespace, acknowledgement and payload")
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
        "What must be refused is refused with its reason",
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

    @Test("Reserved names are refused, plain and binary, and only those", arguments: SocketIOEventName.reserved)
    func reserved(name: String) throws {
        #expect(throws: SocketIOFault.reservedEventName) { try Self.read(#"2["\#(name)"]"#) }
        let binary = #"51-["\#(name)",{"_placeholder":true,"num":0}]"#
        #expect(throws: SocketIOFault.reservedEventName) { try Self.read(binary) }
        let read = try Self.read(#"2["\#(name)s"]"#)
        #expect(read == Self.event(.text("\(name)s")))
    }

    @Test("Namespaces are bounded, UTF-8 and without control characters")
    func namespaces() throws {
        let configuration = SocketIOConfiguration(maximumNamespaceLength: 8)
        let longest = try Self.read("0/1234567", configuration)
        #expect(longest?.namespace == "/1234567")
        #expect(throws: SocketIOFault.namespace) { try Self.read("0/12345678", configuration) }
        #expect(throws: SocketIOFault.namespace) { try Self.read("0/a\u{1E}b") }
        #expect(throws: SocketIOFault.namespace) { try Self.read([.text([0x30, 0x2F, 0xFF])]) }
    }

    @Test("Bytes come to their places, at any depth and in any order, with the last attachment")
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
        "Placeholders and attachments match one to one, or the packet is refused before its attachments",
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

    @Test("What looks like a placeholder in a plain event is the application's own")
    func plainPlaceholder() throws {
        let read = try Self.read(#"2["e",{"_placeholder":true,"num":0}]"#)
        let value = JSONValue.object([JSONMember("_placeholder", .bool(true)), JSONMember("num", .number("0"))])
        #expect(read == Self.event("e", value))
    }

    @Test("Text while attachments are pending, and bytes while none is, are refused")
    func sequence() {
        let head = EngineIOMessage.text(Array(#"51-["e",{"_placeholder":true,"num":0}]"#.utf8))
        #expect(throws: SocketIOFault.textWithinBinary) { try Self.read([head, .text(Array(#"2["a"]"#.utf8))]) }
        #expect(throws: SocketIOFault.textWithinBinary) { try Self.read([head, head]) }
        #expect(throws: SocketIOFault.unexpectedBinary) { try Self.read([.binary([1])]) }
        #expect(throws: SocketIOFault.unexpectedBinary) { try Self.read([head, .binary([1]), .binary([2])]) }
        let none = EngineIOMessage.text(Array(#"50-["e"]"#.utf8))
        #expect(throws: SocketIOFault.unexpectedBinary) { try Self.read([none, .binary([1])]) }
    }

    @Test("Attachments are bounded in number and in bytes; the bounds themselves pass")
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
