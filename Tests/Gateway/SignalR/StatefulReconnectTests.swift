// Carillon · StatefulReconnectTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

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
        "It is in force only if it was negotiated and the handshake is of version 2",
        arguments: [(true, 2, true), (true, 1, false), (false, 2, false)])
    func inForce(_ isOffered: Bool, _ version: Int, _ canReattach: Bool) {
        let wire = Wire(offersStatefulReconnect: isOffered, version: version)
        #expect(wire.connection.canReattach == canReattach)
    }

    @Test("After a loss the oldest unacknowledged number comes first, then what is unacknowledged")
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

    @Test("With nothing unacknowledged it is the total plus one", arguments: [0, 3])
    func emptyBuffer(_ count: Int) {
        var wire = Self.wire()
        for number in 0..<count { _ = wire.connection.push(Self.record(number), now: 0) }
        _ = wire.receive(Self.acknowledgement(Int64(count)))
        _ = wire.connection.transportLost(now: 1)
        #expect(wire.connection.reattach(now: 2)?.written == Self.sequence(Int64(count) + 1))
    }

    @Test("The client may come back before its loss was noticed; pieces of the old transport are forgotten")
    func replaced() {
        var wire = Self.wire()
        _ = wire.connection.push(Self.record(1), now: 0)
        _ = wire.receive(#"{"type":1,"tar"#)
        #expect(wire.connection.reattach(now: 1)?.written == Self.sequence(1) + Self.text(1))
        #expect(wire.receive(Self.sequence(1) + Self.call("A")).targets == ["A"])
    }

    @Test("Until the client's Sequence everything else is ignored")
    func waits() {
        var wire = Self.wire()
        _ = wire.connection.push(Self.record(1), now: 0)
        _ = wire.connection.reattach(now: 1)
        #expect(wire.receive(Self.call("A") + Self.acknowledgement(1) + #"{"type":7}|"#).isEmpty)
        #expect(wire.receive(Self.sequence(1) + Self.call("B")).targets == ["B"])
        #expect(wire.connection.reattach(now: 2)?.written == Self.sequence(1) + Self.text(1))
    }

    @Test("What was handled already is dropped, what was not is handled once")
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
        "A Sequence beyond what was heard, or below one, ends the connection",
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

    @Test("Acknowledgements of any number are borne", arguments: [Int64.min, -1, 0, 1, 2, 3, Int64.max])
    func acknowledgements(_ number: Int64) {
        var wire = Self.wire()
        for number in 1...2 { _ = wire.connection.push(Self.record(number), now: 0) }
        #expect(wire.receive(Self.acknowledgement(number) + Self.acknowledgement(number)).isEmpty)
        let kept = (Int64(1)...2).filter { $0 > number }
        let expected = Self.sequence(kept.first ?? 3) + kept.map { Self.text(Int($0)) }.joined()
        #expect(wire.connection.reattach(now: 1)?.written == expected)
    }

    @Test("What arrived is acknowledged a second after the first of it, once")
    func acknowledges() {
        var wire = Self.wire()
        _ = wire.receive(#"{"type":6}|"#, now: 50)
        #expect(wire.connection.nextDeadline == 15_000)
        _ = wire.receive(Self.call("A"), now: 100)
        #expect(wire.connection.nextDeadline == 1100)
        _ = wire.receive(Self.call("B"), now: 900)
        #expect(wire.connection.tick(now: 1099).isEmpty)
        #expect(wire.connection.tick(now: 1100).written == Self.acknowledgement(2))
        #expect(wire.connection.tick(now: 5000).isEmpty)
        // A repeat means that the acknowledgement was missed.
        _ = wire.connection.reattach(now: 6000)
        _ = wire.receive(Self.sequence(2) + Self.call("B"), now: 6000)
        #expect(wire.connection.tick(now: 7000).written == Self.acknowledgement(2))
    }

    @Test("Answers and items are kept too; pings, acknowledgements and Close are not counted")
    func answers() throws {
        var wire = Self.wire()
        let stream = #"{"type":4,"target":"S","arguments":[],"invocationId":"s"}|"#
        let call = try #require(wire.receive(stream).calls.first)
        _ = wire.connection.tick(now: 1000)
        _ = wire.connection.tick(now: 15_000)
        _ = wire.connection.transportLost(now: 16_000)
        #expect(wire.connection.sendItem(.number("1"), of: call.number, now: 16_001).isEmpty)
        #expect(wire.connection.complete(call.number, .void, now: 16_002).isEmpty)
        let expected =
            Self.sequence(1) + #"{"type":2,"invocationId":"s","item":1}|"# + #"{"type":3,"invocationId":"s"}|"#
        #expect(wire.connection.reattach(now: 17_000)?.written == expected)
    }

    @Test("Beyond the buffer's bound what is pushed is refused until the client acknowledges")
    func bound() {
        var wire = Self.wire(SignalRConfiguration(resendBufferBytes: 100))
        let big = SignalRRecord(target: String(repeating: "x", count: 200), encodedArguments: [])
        #expect(!wire.connection.isBackPressured)
        #expect(wire.connection.push(big, now: 0) == .write)
        #expect(wire.connection.isBackPressured)
        #expect(wire.connection.push(Self.record(2), now: 0) == .refused(.resendBufferFull))
        #expect(
            wire.connection.invokeClient(target: "x", arguments: [], now: 0).admission == .refused(.resendBufferFull))
        _ = wire.receive(Self.acknowledgement(1))
        #expect(!wire.connection.isBackPressured)
        #expect(wire.connection.push(Self.record(2), now: 0) == .write)
        #expect(wire.connection.reattach(now: 1)?.written == Self.sequence(2) + Self.text(2))
    }

    @Test("An answer that the buffer cannot take ends the connection", arguments: [true, false])
    func overflow(_ isAttached: Bool) throws {
        var wire = Self.wire(SignalRConfiguration(resendBufferBytes: 10))
        let call = try #require(
            wire.receive(#"{"type":1,"target":"A","arguments":[],"invocationId":"1"}|"#).calls.first)
        _ = wire.connection.push(Self.record(1), now: 0)
        if !isAttached { _ = wire.connection.transportLost(now: 0) }
        let actions = wire.connection.complete(call.number, .void, now: 1)
        guard case .fault(let fault) = actions.end else {
            Issue.record("no fault")
            return
        }
        #expect(fault.code == .resendBufferFull)
        #expect(actions.written.isEmpty == !isAttached)
    }

    @Test("Away, the client is neither pinged nor silent, and is waited for 15 seconds")
    func detachedLimit() {
        var wire = Self.wire()
        _ = wire.connection.transportLost(now: 1000)
        #expect(wire.connection.isOpen)
        #expect(wire.connection.nextDeadline == 16_000)
        #expect(wire.receive(Self.call("A"), now: 2000).isEmpty)
        #expect(wire.connection.push(SignalRRecord(.ping), now: 2000) == .refused(.detached))
        #expect(wire.connection.tick(now: 15_999).isEmpty)
        #expect(wire.connection.tick(now: 16_000) == [.end(.detachedTooLong)])
        #expect(wire.connection.reattach(now: 16_001) == nil)
    }

    @Test("Closing while the client is away writes nothing")
    func closedAway() {
        var wire = Self.wire()
        _ = wire.connection.transportLost(now: 1)
        #expect(wire.connection.close(now: 2) == [.end(.server)])
        #expect(!wire.connection.canReattach)
    }
}
