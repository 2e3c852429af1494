// Carillon · SocketIOPacketTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Protocols

@Suite("Socket.IO packets from the client", .timeLimit(.minutes(10)))
struct SocketIOPacketTests {
    private static func read(_ text: String) throws -> SocketIOPacket { try SocketIOPacket(Array(text.utf8)) }

    private static func event(_ name: String, _ arguments: JSONValue..., id: UInt64? = nil) -> SocketIOPacket.Content {
        .event(name, arguments, acknowledgement: id)
    }

    @Test("reads every type, with and without namespace, acknowledgement and payload")
    func packets() throws {
        let token = JSONValue.object([JSONMember("token", .string("x"))])
        let placeholder = JSONValue.object([JSONMember("_placeholder", .bool(true)), JSONMember("num", .number("0"))])
        let table: [(String, String, SocketIOPacket.Content)] = [
            ("0", "/", .connect(nil)),
            (#"0{"token":"x"}"#, "/", .connect(token)),
            ("0/,", "/", .connect(nil)),
            ("0/admin", "/admin", .connect(nil)),
            ("0/admin,", "/admin", .connect(nil)),
            (#"0/admin,{"token":"x"}"#, "/admin", .connect(token)),
            ("1", "/", .disconnect),
            ("1/admin", "/admin", .disconnect),
            ("1/admin,", "/admin", .disconnect),
            (#"2["a"]"#, "/", Self.event("a")),
            (#"2["a",1,{"b":null}]"#, "/", Self.event("a", .number("1"), .object([JSONMember("b", .null)]))),
            (#"2 ["a"]"#, "/", Self.event("a")),
            (#"2[1.50]"#, "/", Self.event("1.50")),
            (#"20["a"]"#, "/", Self.event("a", id: 0)),
            (#"2/admin,12["a"]"#, "/admin", Self.event("a", id: 12)),
            (#"29007199254740991["a"]"#, "/", Self.event("a", id: 9_007_199_254_740_991)),
            ("30[]", "/", .acknowledgement),
            ("3/x,7[true]", "/x", .acknowledgement),
            ("2[\"a\",\"\u{2028}\\u001e\"]", "/", Self.event("a", .string("\u{2028}\u{1E}"))),
            (#"2["a",{"_placeholder":true,"num":0}]"#, "/", Self.event("a", placeholder)),
        ]
        for (text, namespace, content) in table {
            let read = try Self.read(text)
            #expect(read.namespace == namespace, "\(text)")
            #expect(read.content == content, "\(text)")
        }
    }

    @Test(
        "refuses invalid packets with the reason",
        arguments: [
            ("", SocketIOFault.emptyPacket), ("7", .unknownType), ("abc", .unknownType), (#"8["a"]"#, .unknownType),
            (#"51-["a",{"_placeholder":true,"num":0}]"#, .attachments), (#"50-["a"]"#, .attachments),
            (#"5["a"]"#, .attachments), (#"61-3[{"_placeholder":true,"num":0}]"#, .attachments), ("6", .attachments),
            (#"2abc["a"]"#, .invalidJSON), (#"21x["a"]"#, .invalidJSON), (#"2-1["a"]"#, .invalidJSON),
            (#"2["a""#, .invalidJSON), ("2['a']", .invalidJSON), (#"2["a"]]"#, .invalidJSON), ("0abc", .invalidJSON),
            (#"2["a","\u0000"]"#, .invalidJSON), (#"2["a",{"b":1,"b":2}]"#, .invalidJSON),
            (#"29007199254740992["a"]"#, .acknowledgementID), (#"2123456789012345678901["a"]"#, .acknowledgementID),
            ("3[]", .acknowledgementID), ("01{}", .acknowledgementID), ("17", .acknowledgementID),
            ("0[]", .connectPayload), (#"0"x""#, .connectPayload), ("0null", .connectPayload),
            ("0true", .connectPayload), ("1{}", .disconnectPayload), (#"1["a"]"#, .disconnectPayload),
            ("1/admin,null", .disconnectPayload), ("2", .eventPayload), ("2{}", .eventPayload), ("2[]", .eventPayload),
            (#"2"a""#, .eventPayload), ("2[null]", .eventPayload), ("2[{}]", .eventPayload), ("2[true]", .eventPayload),
            ("2[[]]", .eventPayload), ("212", .eventPayload),
            ("3", .acknowledgementPayload), ("31", .acknowledgementPayload), ("31{}", .acknowledgementPayload),
            (#"31"a""#, .acknowledgementPayload),
            (#"4{"message":"no"}"#, .connectErrorFromClient), ("4", .connectErrorFromClient),
        ])
    func refused(text: String, fault: SocketIOFault) {
        #expect(throws: fault, "\(text)") { try Self.read(text) }
    }

    @Test("refuses exactly the reserved names", arguments: SocketIOPacket.reservedNames)
    func reserved(name: String) throws {
        #expect(throws: SocketIOFault.reservedEventName) { try Self.read(#"2["\#(name)"]"#) }
        let read = try Self.read(#"2["\#(name)s"]"#)
        #expect(read.content == Self.event("\(name)s"))
    }

    @Test("limits namespaces to UTF-8 without control characters and a length")
    func namespaces() throws {
        let name = "/" + String(repeating: "a", count: 255)
        let longest = try Self.read("0\(name)")
        #expect(longest.namespace == name)
        #expect(throws: SocketIOFault.namespace) { try Self.read("0\(name)a") }
        #expect(throws: SocketIOFault.namespace) { try Self.read("0/a\u{1E}b") }
        #expect(throws: SocketIOFault.namespace) { try SocketIOPacket([0x30, 0x2F, 0xFF]) }
    }
}
