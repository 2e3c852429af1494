// Carillon · EngineIORequestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@Suite("Requests of Engine.IO", .timeLimit(.minutes(10)))
struct EngineIORequestTests {
    private static func judge(
        _ method: String, _ query: String, upgrade: Bool = false, origin: [UInt8]? = nil,
        allow: EngineIORefusal? = nil
    ) throws -> EngineIORequest.Decision {
        let request = EngineIORequest(
            method: method, query: EngineIOQuery(try RequestQuery(query)), asksForWebSocket: upgrade, origin: origin)
        return request.judge(transportOf: { ["p": .polling, "w": .webSocket][$0] }, allow: { allow })
    }

    @Test("A request that is right is told from the others by its method, its session and its upgrade")
    func right() throws {
        #expect(try Self.judge("GET", "EIO=4&transport=polling") == .open(.polling))
        #expect(try Self.judge("GET", "EIO=4&transport=polling&t=x&sid=") == .open(.polling))
        #expect(try Self.judge("GET", "EIO=4&transport=websocket", upgrade: true) == .open(.webSocket))
        #expect(try Self.judge("GET", "EIO=4&transport=polling&sid=p") == .poll(sid: "p"))
        #expect(try Self.judge("POST", "transport=polling&sid=p") == .post(sid: "p"))
        #expect(try Self.judge("GET", "transport=websocket&sid=p", upgrade: true) == .takeOver(sid: "p"))
        #expect(try Self.judge("GET", "transport=websocket&sid=w", upgrade: true) == .takeOver(sid: "w"))
    }

    @Test("A request that is wrong is refused with the code of its fault")
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
            ("GET", "EIO=4&transport=polling&sid=w", false, .badRequest),
            ("POST", "EIO=4&transport=polling&sid=w", false, .badRequest),
            ("GET", "EIO=4&transport=websocket&sid=p", false, .badRequest),
            ("GET", "EIO=4&transport=websocket&sid=w", false, .badRequest),
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

    @Test("The checks come in the protocol's order: of two faults the earlier is told")
    func order() throws {
        let bad: [UInt8] = [0x0A]
        #expect(try Self.judge("PUT", "transport=x&sid=x", origin: bad) == .refuse(.unknownTransport))
        #expect(try Self.judge("PUT", "transport=polling&sid=x", origin: bad) == .refuse(.badRequest))
        #expect(try Self.judge("PUT", "transport=polling&sid=x") == .refuse(.unknownSession))
        #expect(try Self.judge("PUT", "transport=websocket") == .refuse(.badHandshakeMethod))
        #expect(try Self.judge("GET", "transport=websocket", allow: .forbidden(nil)) == .refuse(.badRequest))
        #expect(try Self.judge("GET", "EIO=3&transport=polling", allow: .forbidden("no")) == .refuse(.forbidden("no")))
    }

    @Test("Control characters in the origin are refused, what a header may hold is not")
    func origin() throws {
        for byte in UInt8.min ... .max {
            let isBad = byte < 0x20 && byte != 0x09 || byte == 0x7F
            let decision = try Self.judge("GET", "EIO=4&transport=polling", origin: [0x68, byte])
            #expect(decision == (isBad ? .refuse(.badRequest) : .open(.polling)), "\(byte)")
        }
    }

    @Test("Refusals have their codes, statuses and bodies")
    func refusals() throws {
        let table: [(EngineIORefusal, Int, String)] = [
            (.unknownTransport, 400, #"{"code":0,"message":"Transport unknown"}"#),
            (.unknownSession, 400, #"{"code":1,"message":"Session ID unknown"}"#),
            (.badHandshakeMethod, 400, #"{"code":2,"message":"Bad handshake method"}"#),
            (.badRequest, 400, #"{"code":3,"message":"Bad request"}"#),
            (.forbidden(nil), 403, #"{"code":4,"message":"Forbidden"}"#),
            (.forbidden("not \"you\""), 403, #"{"code":4,"message":"not \"you\""}"#),
            (.unsupportedVersion, 400, #"{"code":5,"message":"Unsupported protocol version"}"#),
        ]
        for (refusal, status, body) in table {
            let expected = EngineIOResponse(status: status, contentType: .json, body: Array(body.utf8))
            #expect(refusal.response == expected)
            let upgrade = EngineIOResponse(status: 400, contentType: .html, body: Array(refusal.message.utf8))
            #expect(refusal.upgradeResponse == upgrade)
        }
    }

    @Test("The handshake has exactly five members")
    func handshake() throws {
        let configuration = EngineIOConfiguration()
        let polling = EngineIOHandshake.json(sid: "S", transport: .polling, configuration: configuration)
        let expected =
            #"{"sid":"S","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}"#
        #expect(String(decoding: polling, as: UTF8.self) == expected)
        let webSocket = EngineIOHandshake.json(sid: "S", transport: .webSocket, configuration: configuration)
        #expect(try JSONParser.parse(webSocket)["upgrades"] == .array([]))
        let without = EngineIOConfiguration(allowsUpgrade: false)
        let alone = EngineIOHandshake.json(sid: "S", transport: .polling, configuration: without)
        #expect(try JSONParser.parse(alone)["upgrades"] == .array([]))
    }

    @Test("The query's own names are taken out, the rest is the application's")
    func query() throws {
        let text = "EIO=4&transport=polling&sid=a%2Bb&t=abc&j=0&b64=1&user=J%C3%B6rg+X&flag"
        let query = EngineIOQuery(try RequestQuery(text))
        #expect(query.version == "4")
        #expect(query.transport == "polling")
        #expect(query.sid == "a+b")
        #expect(query.parameters == [.init("user", "Jörg X"), .init("flag", "")])
        #expect(EngineIOQuery(try RequestQuery("sid=")).sid == nil)
        #expect(EngineIOQuery(try RequestQuery("")).parameters.isEmpty)
    }
}
