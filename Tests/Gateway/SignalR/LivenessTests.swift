// Carillon · LivenessTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Protocols

@Suite("SignalR liveness and closing", .timeLimit(.minutes(10)))
struct LivenessTests {
    private static let ping = #"{"type":6}|"#

    @Test("pings after 15 seconds without output")
    func pings() {
        var wire = Wire(now: 1000)
        #expect(wire.connection.tick(now: 15_999).isEmpty)
        #expect(wire.connection.tick(now: 16_000) == [.write(Wire.bytes(Self.ping))])
        #expect(wire.connection.tick(now: 16_001).isEmpty)
        _ = wire.receive(Self.ping, now: 20_000)
        let record = SignalRRecord(target: "x", encodedArguments: [])
        #expect(wire.connection.push(record, now: 30_000) == .write)
        #expect(wire.connection.tick(now: 44_999).isEmpty)
        #expect(wire.connection.tick(now: 45_000) == [.write(Wire.bytes(Self.ping))])
    }

    @Test("closes a client that was silent for 30 seconds and allows it to reconnect; any input counts")
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
    }

    @Test("closes a client whose message does not end within 30 seconds, over any transport", arguments: [false, true])
    func unfinished(hasInherentKeepAlive: Bool) {
        var wire = Wire(hasInherentKeepAlive: hasInherentKeepAlive)
        // Each message takes 29 seconds, and its end comes together with the beginning of the next.
        _ = wire.receive("{", now: 1_000)
        for time in stride(from: Int64(30_000), through: 88_000, by: 29_000) {
            #expect(wire.receive(#""type":1,"target":"A","arguments":[]}|{"#, now: time).targets == ["A"])
            #expect(wire.connection.complete(UInt64(time / 29_000), .void, now: time).isEmpty)
        }
        for time in stride(from: Int64(90_000), to: 118_000, by: 1_000) {
            _ = wire.receive(" ", now: time)
            #expect(wire.connection.tick(now: time).end == nil)
        }
        let actions = wire.connection.tick(now: 118_000)
        #expect(actions.end == .clientTimeout)
        #expect(actions.written.hasSuffix(#","allowReconnect":true}|"#))
    }

    @Test("sends no answer to the client's pings, not even right after the handshake")
    func clientPings() {
        var wire = Wire(version: nil)
        let actions = wire.receive(#"{"protocol":"json","version":1}|"# + Self.ping + Self.ping)
        #expect(actions.count == 2)
        #expect(wire.receive(Self.ping).isEmpty)
    }

    @Test("neither pings nor times out a long-polling client")
    func inherentKeepAlive() {
        var wire = Wire(hasInherentKeepAlive: true)
        #expect(wire.connection.tick(now: 1_000_000).isEmpty)
        #expect(wire.connection.isOpen)
    }

    @Test(
        "writes the server's close",
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

    @Test("ignores input after the client's close", arguments: [#"{"type":7}|"#, #"{"type":7,"error":"x"}|"#])
    func clientCloses(_ close: String) {
        var wire = Wire()
        #expect(wire.receive(close + #"{"type":1,"target":"A","arguments":[]}|"#) == [.end(.client)])
    }

    @Test("ends the connection with its transport without stateful reconnect")
    func lost() {
        var wire = Wire()
        #expect(!wire.connection.canReattach)
        #expect(wire.connection.reattach(now: 1) == nil)
        #expect(wire.connection.transportLost(now: 1) == [.end(.transportLost)])
    }

    @Test(
        "closes on a protocol violation without allowing a reconnect, after handling earlier messages",
        arguments: [
            ("x|", SignalRFault.Code.invalidJSON), ("|", .invalidJSON), (#"{"type":1,"target":"B"}|"#, .invalidMessage),
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

    @Test("reads a record of exactly 32 KiB")
    func longest() {
        var wire = Wire()
        let start = #"{"type":1,"target":"A","arguments":[""#
        let end = #""]}"#
        let count = 32 * 1024 - start.utf8.count - end.utf8.count
        #expect(wire.receive(start + String(repeating: "x", count: count) + end + "|").targets == ["A"])
    }

    @Test("ignores unknown types, and acknowledgements without stateful reconnect")
    func ignored() {
        var wire = Wire()
        #expect(wire.receive(#"{"type":99}|{"type":8,"sequenceId":1}|{"type":9,"sequenceId":500}|"#).isEmpty)
        #expect(wire.connection.isOpen)
    }

    @Test("keeps an idle connection small")
    func size() {
        #expect(MemoryLayout<SignalRStateMachine>.size <= 256)
    }
}

@Suite("SignalR stateful reconnect", .timeLimit(.minutes(10)))
struct StatefulReconnectTests {
    private static func wire(_ configuration: SignalRConfiguration = .standard) -> Wire {
        Wire(configuration: configuration, offersStatefulReconnect: true, version: 2)
    }

    private static func record(_ number: Int) -> SignalRRecord {
        SignalRRecord(target: "n\(number)", encodedArguments: [])
    }

    private static func text(_ number: Int) -> String { Wire.text(Self.record(number).bytes) }

    private static func call(_ target: String) -> String { #"{"type":1,"target":"\#(target)","arguments":[]}|"# }

    private static func sequence(_ number: Int64) -> String { #"{"type":9,"sequenceId":\#(number)}|"# }

    private static func acknowledgement(_ number: Int64) -> String { #"{"type":8,"sequenceId":\#(number)}|"# }

    @Test(
        "applies only if it was negotiated and the handshake has version 2",
        arguments: [(true, 2, true), (true, 1, false), (false, 2, false)])
    func inForce(_ isOffered: Bool, _ version: Int, _ canReattach: Bool) {
        let wire = Wire(offersStatefulReconnect: isOffered, version: version)
        #expect(wire.connection.canReattach == canReattach)
    }

    @Test("resends the oldest unacknowledged number, then the unacknowledged messages")
    func resend() {
        var wire = Self.wire()
        for number in 1...4 { #expect(wire.connection.push(Self.record(number), now: 0) == .write) }
        #expect(wire.receive(Self.acknowledgement(2)).isEmpty)
        #expect(wire.connection.transportLost(now: 10).isEmpty)
        #expect(wire.connection.push(Self.record(5), now: 11) == .held)
        #expect(
            wire.connection.reattach(now: 20)?.written == Self.sequence(3) + Self.text(3) + Self.text(4) + Self.text(5))
        #expect(wire.connection.push(Self.record(6), now: 21) == .write)
    }

    @Test("sends the total plus one if everything is acknowledged", arguments: [0, 3])
    func emptyBuffer(_ count: Int) {
        var wire = Self.wire()
        for number in 0..<count { _ = wire.connection.push(Self.record(number), now: 0) }
        _ = wire.receive(Self.acknowledgement(Int64(count)))
        _ = wire.connection.transportLost(now: 1)
        #expect(wire.connection.reattach(now: 2)?.written == Self.sequence(Int64(count) + 1))
    }

    @Test("accepts a client before its loss was noticed and discards partial input of the old transport")
    func replaced() {
        var wire = Self.wire()
        _ = wire.connection.push(Self.record(1), now: 0)
        _ = wire.receive(#"{"type":1,"tar"#)
        #expect(wire.connection.reattach(now: 1)?.written == Self.sequence(1) + Self.text(1))
        #expect(wire.receive(Self.sequence(1) + Self.call("A")).targets == ["A"])
    }

    @Test("ignores other messages until the client's Sequence")
    func waits() {
        var wire = Self.wire()
        _ = wire.connection.push(Self.record(1), now: 0)
        _ = wire.connection.reattach(now: 1)
        #expect(wire.receive(Self.call("A") + Self.acknowledgement(1) + #"{"type":7}|"#).isEmpty)
        #expect(wire.receive(Self.sequence(1) + Self.call("B")).targets == ["B"])
        #expect(wire.connection.reattach(now: 2)?.written == Self.sequence(1) + Self.text(1))
    }

    @Test("drops messages that were handled and handles the others once")
    func repeats() throws {
        var wire = Self.wire()
        let first = wire.receive(Self.call("A") + #"{"type":6}|"# + Self.call("B") + #"{"type":99}|"#)
        #expect(first.targets == ["A"])
        _ = wire.connection.transportLost(now: 1)
        _ = wire.connection.reattach(now: 2)
        #expect(wire.receive(Self.sequence(2) + Self.call("B") + Self.call("C")).isEmpty)
        let second = wire.connection.complete(try #require(first.calls.first).number, .void, now: 3)
        #expect(second.targets == ["B"])
        let third = wire.connection.complete(try #require(second.calls.first).number, .void, now: 3)
        #expect(third.targets == ["C"])
        #expect(wire.connection.complete(try #require(third.calls.first).number, .void, now: 3).calls.isEmpty)
    }

    @Test(
        "ends the connection on a Sequence below one or beyond what was received",
        arguments: [3, 0, -1, Int64.min, Int64.max])
    func badSequence(_ number: Int64) {
        var wire = Self.wire()
        _ = wire.receive(Self.call("A"))
        _ = wire.connection.reattach(now: 1)
        let actions = wire.receive(Self.sequence(number))
        guard case .fault(let fault) = actions.end else {
            Issue.record("no fault")
            return
        }
        #expect(fault.code == .invalidSequence)
        #expect(actions.written.hasPrefix(#"{"type":7,"error":"#))
    }

    @Test("tolerates acknowledgements of any number", arguments: [Int64.min, -1, 0, 1, 2, 3, Int64.max])
    func acknowledgements(_ number: Int64) {
        var wire = Self.wire()
        for number in 1...2 { _ = wire.connection.push(Self.record(number), now: 0) }
        #expect(wire.receive(Self.acknowledgement(number) + Self.acknowledgement(number)).isEmpty)
        let kept = (Int64(1)...2).filter { $0 > number }
        let expected = Self.sequence(kept.first ?? 3) + kept.map { Self.text(Int($0)) }.joined()
        #expect(wire.connection.reattach(now: 1)?.written == expected)
    }

    @Test("acknowledges received messages once, a second after the first of them")
    func acknowledges() {
        var wire = Self.wire()
        _ = wire.receive(#"{"type":6}|"#, now: 50)
        _ = wire.receive(Self.call("A"), now: 100)
        _ = wire.receive(Self.call("B"), now: 900)
        #expect(wire.connection.tick(now: 1099).isEmpty)
        #expect(wire.connection.tick(now: 1100).written == Self.acknowledgement(2))
        #expect(wire.connection.tick(now: 5000).isEmpty)
        // A repeat means that the acknowledgement was lost.
        _ = wire.connection.reattach(now: 6000)
        _ = wire.receive(Self.sequence(2) + Self.call("B"), now: 6000)
        #expect(wire.connection.tick(now: 7000).written == Self.acknowledgement(2))
    }

    @Test("keeps answers and items for a resend, but not pings, acknowledgements and Close")
    func answers() throws {
        var wire = Self.wire()
        let call = try #require(
            wire.receive(#"{"type":4,"target":"S","arguments":[],"invocationId":"s"}|"#).calls.first)
        _ = wire.connection.tick(now: 1000)
        _ = wire.connection.tick(now: 15_000)
        _ = wire.connection.transportLost(now: 16_000)
        #expect(wire.connection.sendItem(.number("1"), of: call.number, now: 16_001) == [])
        #expect(wire.connection.complete(call.number, .void, now: 16_002).isEmpty)
        let expected =
            Self.sequence(1) + #"{"type":2,"invocationId":"s","item":1}|"# + #"{"type":3,"invocationId":"s"}|"#
        #expect(wire.connection.reattach(now: 17_000)?.written == expected)
    }

    @Test("refuses pushes beyond the buffer's limit until the client acknowledges")
    func bound() {
        var wire = Self.wire(SignalRConfiguration(resendBufferBytes: 100))
        let big = SignalRRecord(target: String(repeating: "x", count: 200), encodedArguments: [])
        #expect(!wire.connection.isBackPressured)
        #expect(wire.connection.push(big, now: 0) == .write)
        #expect(wire.connection.isBackPressured)
        #expect(wire.connection.push(Self.record(2), now: 0) == .refused(.resendBufferFull))
        _ = wire.receive(Self.acknowledgement(1))
        #expect(!wire.connection.isBackPressured)
        #expect(wire.connection.push(Self.record(2), now: 0) == .write)
        #expect(wire.connection.reattach(now: 1)?.written == Self.sequence(2) + Self.text(2))
    }

    @Test("closes a client whose answer does not fit the buffer, and lets it reconnect", arguments: [true, false])
    func overflow(_ isAttached: Bool) throws {
        var wire = Self.wire(SignalRConfiguration(resendBufferBytes: 10))
        let call = try #require(
            wire.receive(#"{"type":1,"target":"A","arguments":[],"invocationId":"1"}|"#).calls.first)
        _ = wire.connection.push(Self.record(1), now: 0)
        if !isAttached { _ = wire.connection.transportLost(now: 0) }
        let actions = wire.connection.complete(call.number, .void, now: 1)
        #expect(actions.end == .tooSlow)
        #expect(actions.written == (isAttached ? #"{"type":7,"allowReconnect":true}|"# : ""))
    }

    @Test("waits 15 seconds for a disconnected client without pings or timeouts")
    func detachedLimit() {
        var wire = Self.wire()
        _ = wire.connection.transportLost(now: 1000)
        #expect(wire.connection.isOpen)
        #expect(wire.receive(Self.call("A"), now: 2000).isEmpty)
        #expect(wire.connection.push(.ping, now: 2000) == .refused(.detached))
        #expect(wire.connection.tick(now: 15_999).isEmpty)
        #expect(wire.connection.tick(now: 16_000) == [.end(.detachedTooLong)])
        #expect(wire.connection.reattach(now: 16_001) == nil)
    }

    @Test("writes nothing when it closes a disconnected client")
    func closedAway() {
        var wire = Self.wire()
        _ = wire.connection.transportLost(now: 1)
        #expect(wire.connection.close(now: 2) == [.end(.server)])
        #expect(!wire.connection.canReattach)
    }
}
