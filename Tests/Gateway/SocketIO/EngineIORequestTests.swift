// Carillon · EngineIORequestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Protocols

@Suite("Engine.IO requests", .timeLimit(.minutes(10)))
struct EngineIORequestTests {
    private static func judge(
        _ method: String, _ query: String, upgrade: Bool = false
    ) throws -> EngineIORequest.Decision {
        let request = EngineIORequest(
            method: method, query: EngineIOQuery(try RequestQuery(query)), asksForWebSocket: upgrade)
        return request.judge(isKnown: { $0 == "p" })
    }

    @Test("classifies a valid request by method, session and upgrade")
    func right() throws {
        #expect(try Self.judge("GET", "EIO=4&transport=polling") == .open)
        #expect(try Self.judge("GET", "EIO=4&transport=polling&t=x&sid=") == .open)
        #expect(try Self.judge("GET", "EIO=4&transport=websocket", upgrade: true) == .open)
        #expect(try Self.judge("GET", "EIO=4&transport=polling&sid=p") == .poll(sid: "p"))
        #expect(try Self.judge("POST", "transport=polling&sid=p") == .post(sid: "p"))
        #expect(try Self.judge("GET", "transport=websocket&sid=p", upgrade: true) == .takeOver(sid: "p"))
    }

    @Test("refuses an invalid request with the code of its fault")
    func wrong() throws {
        let table: [(String, String, Bool, EngineIORefusal)] = [
            ("GET", "EIO=4", false, .unknownTransport),
            ("GET", "EIO=4&transport=abc", false, .unknownTransport),
            ("GET", "EIO=4&transport=webtransport", true, .unknownTransport),
            ("GET", "EIO=4&transport=polling&sid=x", false, .unknownSession),
            ("GET", "EIO=4&transport=websocket&sid=x", true, .unknownSession),
            ("POST", "EIO=4&transport=polling", false, .badHandshakeMethod),
            ("PUT", "EIO=4&transport=polling", false, .badHandshakeMethod),
            ("GET", "EIO=4&transport=websocket", false, .badRequest),
            ("GET", "EIO=4&transport=polling", true, .badRequest),
            ("GET", "EIO=4&transport=websocket&sid=p", false, .badRequest),
            ("GET", "EIO=4&transport=polling&sid=p", true, .badRequest),
            ("PUT", "EIO=4&transport=polling&sid=p", false, .badRequest),
            ("GET", "transport=polling", false, .unsupportedVersion),
            ("GET", "EIO=3&transport=polling", false, .unsupportedVersion),
            ("GET", "EIO=abc&transport=websocket", true, .unsupportedVersion),
        ]
        for (method, query, upgrade, refusal) in table {
            #expect(try Self.judge(method, query, upgrade: upgrade) == .refuse(refusal), "\(method) \(query)")
        }
    }

    @Test("checks in the protocol's order and reports the first fault")
    func order() throws {
        #expect(try Self.judge("PUT", "transport=x&sid=x") == .refuse(.unknownTransport))
        #expect(try Self.judge("PUT", "transport=polling&sid=x") == .refuse(.unknownSession))
        #expect(try Self.judge("PUT", "transport=websocket") == .refuse(.badHandshakeMethod))
        #expect(try Self.judge("GET", "transport=websocket") == .refuse(.badRequest))
    }

    @Test("answers refusals with their codes, statuses and bodies")
    func refusals() throws {
        let table: [(EngineIORefusal, Int, String)] = [
            (.unknownTransport, 400, #"{"code":0,"message":"Transport unknown"}"#),
            (.unknownSession, 400, #"{"code":1,"message":"Session ID unknown"}"#),
            (.badHandshakeMethod, 400, #"{"code":2,"message":"Bad handshake method"}"#),
            (.badRequest, 400, #"{"code":3,"message":"Bad request"}"#),
            (.unsupportedVersion, 400, #"{"code":5,"message":"Unsupported protocol version"}"#),
        ]
        for (refusal, status, body) in table {
            let expected = EngineIOResponse(status: status, contentType: .json, body: Array(body.utf8))
            #expect(refusal.response == expected)
        }
    }

    @Test("writes exactly five members in the handshake")
    func handshake() throws {
        let configuration = EngineIOConfiguration()
        let polling = EngineIOHandshake.json(sid: "S", transport: .polling, configuration: configuration)
        let expected =
            #"{"sid":"S","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}"#
        #expect(String(decoding: polling, as: UTF8.self) == expected)
        let webSocket = EngineIOHandshake.json(sid: "S", transport: .webSocket, configuration: configuration)
        #expect(try JSONParser.parse(webSocket)["upgrades"] == .array([]))
    }

    @Test("removes the protocol's own parameters and leaves the rest to the application")
    func query() throws {
        let text = "EIO=4&transport=polling&sid=a%2Bb&t=abc&j=0&b64=1&user=J%C3%B6rg+X&flag"
        let query = EngineIOQuery(try RequestQuery(text))
        #expect(query.version == "4")
        #expect(query.transport == "polling")
        #expect(query.sid == "a+b")
        #expect(query.mark == PollMark("abc"))
        #expect(query.parameters == [.init("user", "Jörg X"), .init("flag", "")])
        #expect(EngineIOQuery(try RequestQuery("sid=")).sid == nil)
        #expect(EngineIOQuery(try RequestQuery("")).parameters.isEmpty)
    }
}

@Suite("Engine.IO packets", .timeLimit(.minutes(10)))
struct EngineIOPacketTests {
    @Test("encodes and decodes each packet")
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
        "refuses invalid packets with the reason",
        arguments: [
            ("", EngineIOFault.emptyPacket), ("7", .unknownType), ("abc", .unknownType), ("bAQID", .unknownType),
            (" 4", .unknownType), ("1x", .unexpectedContent), ("5x", .unexpectedContent), ("66", .unexpectedContent),
        ])
    func refused(text: String, fault: EngineIOFault) {
        #expect(throws: fault) { try EngineIOPacket(text: Array(text.utf8)[...]) }
    }
}

@Suite("Polling payloads", .timeLimit(.minutes(10)))
struct EngineIOPayloadTests {
    private static func decode(_ body: [UInt8], packets: Int = 100, bytes: Int = 10_000) throws -> [EngineIOPacket] {
        try EngineIOPayload.decode(body, maximumPackets: packets, maximumBytes: bytes)
    }

    @Test("joins packets with the record separator and writes bytes as base64 after a b")
    func encode() throws {
        let packets: [EngineIOPacket] = [
            .message(.text(Array("hello".utf8))), .ping([]), .message(.binary([1, 2, 3, 4])), .message(.binary([])),
        ]
        let body = Array("4hello\u{1E}2\u{1E}bAQIDBA==\u{1E}b".utf8)
        #expect(EngineIOPayload.encode(packets) == body)
        let decoded = try Self.decode(body)
        #expect(decoded == packets)
    }

    @Test("round-trips bytes of any length", arguments: 0..<70)
    func binary(count: Int) throws {
        var generator = SeededGenerator(seed: UInt64(count))
        let packet = EngineIOPacket.message(.binary(generator.bytes(count)))
        let decoded = try Self.decode(EngineIOPayload.encode([packet]))
        #expect(decoded == [packet])
    }

    @Test(
        "writes base64 with the standard alphabet and padding",
        arguments: [
            ("bAA==", [0]), ("bAQI=", [1, 2]), ("b+/+/", [0xFB, 0xFF, 0xBF]), ("b", []),
        ] as [(String, [UInt8])])
    func base64(text: String, bytes: [UInt8]) throws {
        let decoded = try Self.decode(Array(text.utf8))
        #expect(decoded == [.message(.binary(bytes))])
    }

    @Test(
        "reads base64 with line breaks, without padding and with unused bits",
        arguments: [
            ("bAQ\nID\r\nBA==\n", [1, 2, 3, 4]), ("bAQIDBA", [1, 2, 3, 4]), ("bAQI", [1, 2]), ("bAQJ=", [1, 2]),
            ("bAB==", [0]), ("bAA=", [0]), ("b\n", []),
        ] as [(String, [UInt8])])
    func lenientBase64(text: String, bytes: [UInt8]) throws {
        let decoded = try Self.decode(Array(text.utf8))
        #expect(decoded == [.message(.binary(bytes))])
    }

    @Test("refuses invalid base64", arguments: ["bA", "bA===", "bAQIDB", "bA-_A", "bAA==AA==", "b AAA"])
    func notBase64(text: String) {
        #expect(throws: EngineIOFault.invalidBase64) { try Self.decode(Array(text.utf8)) }
    }

    @Test("refuses a whole body with its fault")
    func faults() {
        let table: [([UInt8], EngineIOFault)] = [
            ([], .emptyPacket), ([0x1E], .emptyPacket), (Array("4a\u{1E}".utf8), .emptyPacket),
            (Array("\u{1E}4a".utf8), .emptyPacket), (Array("4a\u{1E}abc".utf8), .unknownType),
            ([0x34, 0xFF], .invalidUTF8), ([0x34, 0xC3, 0x1E, 0xA9], .invalidUTF8),
        ]
        for (body, fault) in table { #expect(throws: fault, "\(body)") { try Self.decode(body) } }
    }

    @Test("accepts the limits and refuses one more")
    func bounds() throws {
        let three = Array("4a\u{1E}4b\u{1E}4c".utf8)
        let decoded = try Self.decode(three, packets: 3, bytes: 8)
        #expect(decoded.count == 3)
        #expect(throws: EngineIOFault.tooManyPackets) { try Self.decode(three, packets: 2) }
        #expect(throws: EngineIOFault.tooLarge) { try Self.decode(three, bytes: 7) }
    }

    @Test("round-trips U+2028 and text beyond ASCII")
    func text() throws {
        let packet = EngineIOPacket.message(.text(Array("\u{2028}é€😀".utf8)))
        let decoded = try Self.decode(EngineIOPayload.encode([packet, .noop]))
        #expect(decoded == [packet, .noop])
    }
}
