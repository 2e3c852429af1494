// Carillon · HandshakeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Testing

@Suite("SignalR handshake", .timeLimit(.minutes(10)))
struct HandshakeTests {
    @Test("Versions 0, 1 and 2 of JSON are spoken, in any order of properties", arguments: [0, 1, 2])
    func versions(_ version: Int) {
        for request in [
            #"{"protocol":"json","version":\#(version)}|"#, #"{"x":[1], "version":\#(version) ,"protocol":"json"}|"#,
        ] {
            var wire = Wire(version: nil)
            #expect(!wire.connection.isOpen)
            let actions = wire.receive(request)
            #expect(actions == [.write(Wire.bytes("{}|")), .opened(version: version)])
            #expect(wire.connection.isOpen)
        }
    }

    @Test(
        "What is not spoken is refused, and the connection ends",
        arguments: [
            (#"{"protocol":"messagepack","version":1}"#, "The protocol 'messagepack' is not supported."),
            (#"{"protocol":"JSON","version":1}"#, "The protocol 'JSON' is not supported."),
            (#"{"protocol":"json","version":3}"#, "The server does not support version 3 of the 'json' protocol."),
            (#"{"protocol":"json","version":-1}"#, "The server does not support version -1 of the 'json' protocol."),
        ]
    )
    func refusals(_ request: String, _ error: String) {
        var wire = Wire(version: nil)
        let actions = wire.receive(request + "|" + #"{"type":6}|"#)
        #expect(actions.written == #"{"error":"\#(error)"}|"#)
        #expect(actions.end == .handshakeRefused(error))
        #expect(wire.connection.isClosed)
        #expect(wire.receive(#"{"protocol":"json","version":1}|"#).isEmpty)
    }

    @Test(
        "What is no handshake is refused",
        arguments: [
            "", "x", "[]", "{}", #"{"protocol":"json"}"#, #"{"version":1}"#, #"{"protocol":1,"version":1}"#,
            #"{"protocol":"json","version":"1"}"#, #"{"protocol":"json","version":1.5}"#, #"{"type":6}"#,
            #"{"protocol":"json","version":99999999999999999999}"#,
        ]
    )
    func malformed(_ request: String) {
        var wire = Wire(version: nil)
        let actions = wire.receive(request + "|")
        #expect(actions.written.hasPrefix(#"{"error":"An unexpected error occurred during connection handshake."#))
        #expect(wire.connection.isClosed)
    }

    @Test("A protocol's name is escaped in the answer")
    func escaping() {
        var wire = Wire(version: nil)
        let actions = wire.receive(#"{"protocol":"a\"\u001e","version":1}|"#)
        #expect(actions.written == #"{"error":"The protocol 'a\"\u001e' is not supported."}|"#)
    }

    @Test("A handshake that is too long is refused")
    func tooLong() {
        var wire = Wire(configuration: SignalRConfiguration(maximumMessageBytes: 64), version: nil)
        let actions = wire.receive(String(repeating: " ", count: 65))
        #expect(actions.written.hasPrefix(#"{"error":"An unexpected error"#))
        #expect(wire.connection.isClosed)
    }

    @Test("What follows the handshake in the same piece are messages; the handshake may come in pieces")
    func rest() {
        var wire = Wire(version: nil)
        #expect(wire.receive(#"{"protocol":"json","#).isEmpty)
        let actions = wire.receive(#""version":1}|{"type":6}|{"type":1,"target":"A","arguments":[]}|{"type":1,"#)
        #expect(actions.prefix(2) == [.write(Wire.bytes("{}|")), .opened(version: 1)])
        #expect(actions.targets == ["A"])
    }

    @Test("A client that is late is told so")
    func timeout() {
        var wire = Wire(version: nil, now: 1000)
        #expect(wire.connection.nextDeadline == 16_000)
        _ = wire.receive("{", now: 15_000)
        #expect(wire.connection.tick(now: 15_999).isEmpty)
        let actions = wire.connection.tick(now: 16_000)
        #expect(actions.written == #"{"error":"Handshake was canceled."}|"#)
        #expect(actions.end == .handshakeTimeout)
        #expect(wire.connection.nextDeadline == nil)
    }

    @Test("Before the handshake nothing can be sent, and closing refuses it")
    func early() {
        var wire = Wire(version: nil)
        let record = SignalRRecord(target: "x", encodedArguments: [])
        #expect(wire.connection.push(record, now: 0) == .refused(.notOpen))
        let actions = wire.connection.close(error: "Going away.", now: 0)
        #expect(actions.written == #"{"error":"Going away."}|"#)
        #expect(actions.end == .server)
    }
}
