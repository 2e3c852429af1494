// Carillon · LivenessTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@Suite("SignalR liveness and closing", .timeLimit(.minutes(10)))
struct LivenessTests {
    private static let ping = #"{"type":6}|"#

    @Test("The server pings when it has sent nothing for 15 seconds")
    func pings() {
        var wire = Wire(now: 1000)
        #expect(wire.connection.nextDeadline == 16_000)
        #expect(wire.connection.tick(now: 15_999).isEmpty)
        #expect(wire.connection.tick(now: 16_000) == [.write(Wire.bytes(Self.ping))])
        #expect(wire.connection.tick(now: 16_001).isEmpty)
        _ = wire.receive(Self.ping, now: 20_000)
        let record = SignalRRecord(target: "x", encodedArguments: [])
        #expect(wire.connection.push(record, now: 30_000) == .write)
        #expect(wire.connection.tick(now: 44_999).isEmpty)
        #expect(wire.connection.tick(now: 45_000) == [.write(Wire.bytes(Self.ping))])
    }

    @Test("A client that is silent for 30 seconds is told to come back; anything it sends counts")
    func silence() {
        var wire = Wire()
        for time in stride(from: Int64(10_000), through: 50_000, by: 10_000) {
            _ = wire.receive(time == 50_000 ? #"{"type":1"# : Self.ping, now: time)
            _ = wire.connection.tick(now: time)
        }
        #expect(wire.connection.tick(now: 79_999).end == nil)
        let actions = wire.connection.tick(now: 80_000)
        #expect(actions.end == .clientTimeout)
        #expect(actions.written.hasPrefix(#"{"type":7,"error":"Connection closed with an error."#))
        #expect(actions.written.hasSuffix(#","allowReconnect":true}|"#))
        #expect(wire.connection.tick(now: 200_000).isEmpty)
        #expect(wire.connection.nextDeadline == nil)
    }

    @Test("Pings of the client's get no answer, the first right after the handshake")
    func clientPings() {
        var wire = Wire(version: nil)
        let actions = wire.receive(#"{"protocol":"json","version":1}|"# + Self.ping + Self.ping)
        #expect(actions.count == 2)
        #expect(wire.receive(Self.ping).isEmpty)
    }

    @Test("Long polling has neither pings nor silence")
    func inherentKeepAlive() {
        var wire = Wire(hasInherentKeepAlive: true)
        #expect(wire.connection.nextDeadline == nil)
        #expect(wire.connection.tick(now: 1_000_000).isEmpty)
        #expect(wire.connection.isOpen)
    }

    @Test(
        "The server closes",
        arguments: [
            (nil, false, #"{"type":7}|"#), (nil, true, #"{"type":7,"allowReconnect":true}|"#),
            ("Kicked.", false, #"{"type":7,"error":"Kicked."}|"#),
            ("Draining.", true, #"{"type":7,"error":"Draining.","allowReconnect":true}|"#),
        ] as [(String?, Bool, String)]
    )
    func closing(_ error: String?, _ allowReconnect: Bool, _ written: String) {
        var wire = Wire()
        let actions = wire.connection.close(error: error, allowReconnect: allowReconnect, now: 1)
        #expect(actions == [.write(Wire.bytes(written)), .end(.server)])
        #expect(wire.connection.isClosed)
        #expect(wire.connection.close(now: 2).isEmpty)
        #expect(wire.receive(Self.ping).isEmpty)
        #expect(wire.connection.transportLost(now: 2).isEmpty)
        let record = SignalRRecord(target: "x", encodedArguments: [])
        #expect(wire.connection.push(record, now: 2) == .refused(.notOpen))
    }

    @Test("The client closes; what follows is not read", arguments: [#"{"type":7}|"#, #"{"type":7,"error":"x"}|"#])
    func clientCloses(_ close: String) {
        var wire = Wire()
        #expect(wire.receive(close + #"{"type":1,"target":"A","arguments":[]}|"#) == [.end(.client)])
    }

    @Test("Without stateful reconnect the connection ends with its transport")
    func lost() {
        var wire = Wire()
        #expect(!wire.connection.canReattach)
        #expect(wire.connection.reattach(now: 1) == nil)
        #expect(wire.connection.transportLost(now: 1) == [.end(.transportLost)])
    }

    @Test(
        "What breaks the protocol closes without leave to come back, and what came before it is done",
        arguments: [
            (#"{"type":3,"invocationId":"1","result":1,"error":"x"}|"#, SignalRFault.Code.invalidMessage),
            ("x|", .invalidJSON), ("|", .invalidJSON), (#"{"type":1,"target":"B"}|"#, .invalidMessage),
            (#"{"type":1,"target":"B","arguments":["\#(String(repeating: "x", count: 32 * 1024))"]}|"#, .recordTooLong),
        ]
    )
    func broken(_ text: String, _ code: SignalRFault.Code) {
        var wire = Wire()
        let call = #"{"type":1,"target":"A","arguments":[]}|"#
        let actions = wire.receive(call + text + call)
        #expect(actions.targets == ["A"])
        #expect(actions.written.hasPrefix(#"{"type":7,"error":"Connection closed with an error. "#))
        #expect(!actions.written.contains("allowReconnect"))
        guard case .fault(let fault) = actions.end else {
            Issue.record("no fault")
            return
        }
        #expect(fault.code == code)
    }

    @Test("A record of exactly 32 KiB is read")
    func longest() {
        var wire = Wire()
        let start = #"{"type":1,"target":"A","arguments":[""#
        let end = #""]}"#
        let count = 32 * 1024 - start.utf8.count - end.utf8.count
        #expect(wire.receive(start + String(repeating: "x", count: count) + end + "|").targets == ["A"])
    }

    @Test("Unknown types are ignored, and acknowledgements without stateful reconnect")
    func ignored() {
        var wire = Wire()
        #expect(wire.receive(#"{"type":99}|{"type":8,"sequenceId":1}|{"type":9,"sequenceId":500}|"#).isEmpty)
        #expect(wire.connection.isOpen)
    }

    @Test("An idle connection is small")
    func size() {
        #expect(MemoryLayout<SignalRConnection>.size <= 256)
    }
}
