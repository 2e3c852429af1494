// Carillon · CallTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Protocols

@Suite("SignalR calls", .timeLimit(.minutes(10)))
struct CallTests {
    private static func invocation(_ target: String, id: String? = nil, type: Int = 1, streams: String = "") -> String {
        let id = id.map { #","invocationId":"\#($0)""# } ?? ""
        return #"{"type":\#(type),"target":"\#(target)","arguments":[1]\#(id)\#(streams)}|"#
    }

    @Test("answers a call under its client's id")
    func answers() throws {
        var wire = Wire()
        let call = try #require(wire.receive(Self.invocation("Add", id: "a")).calls.first)
        #expect(call.invocation.arguments == [.number("1")])
        #expect(call.invocation.invocationID == "a")
        let actions = wire.connection.complete(call.number, .result(.number("3")), now: 1)
        #expect(actions == [.write(Wire.bytes(#"{"type":3,"invocationId":"a","result":3}|"#))])
        #expect(wire.connection.complete(call.number, .void, now: 1).isEmpty)
    }

    @Test("writes no answer without an id, not even an error")
    func oneWay() throws {
        var wire = Wire()
        let call = try #require(wire.receive(Self.invocation("Send")).calls.first)
        #expect(wire.connection.complete(call.number, .error("no"), now: 1).isEmpty)
        #expect(wire.receive(Self.invocation("Next")).targets == ["Next"])
    }

    @Test("runs one invocation at a time and queues the others in order")
    func order() throws {
        var wire = Wire()
        let first = wire.receive(Self.invocation("A", id: "1") + Self.invocation("B") + Self.invocation("C", id: "3"))
        #expect(first.targets == ["A"])
        #expect(wire.receive(Self.invocation("D", id: "4")).calls.isEmpty)
        var running = try #require(first.calls.first)
        var written = ""
        for expected in ["B", "C", "D"] {
            let actions = wire.connection.complete(running.number, .void, now: 1)
            #expect(actions.targets == [expected])
            #expect(actions.calls.first?.invocation.arguments == [.number("1")])
            written += actions.written
            running = try #require(actions.calls.first)
        }
        let last = wire.connection.complete(running.number, .void, now: 1)
        written += last.written
        #expect(last.calls.isEmpty)
        #expect(written == ["1", "3", "4"].map { #"{"type":3,"invocationId":"\#($0)"}|"# }.joined())
        #expect(wire.receive(Self.invocation("E")).targets == ["E"])
    }

    @Test("answers each of several invocations with the same id")
    func sameID() throws {
        var wire = Wire()
        let first = try #require(
            wire.receive(Self.invocation("A", id: "1") + Self.invocation("B", id: "1")).calls.first)
        let second = try #require(wire.connection.complete(first.number, .void, now: 1).calls.first)
        #expect(second.number != first.number)
        #expect(wire.connection.complete(second.number, .void, now: 1).written == #"{"type":3,"invocationId":"1"}|"#)
    }

    @Test("ends the connection at too many queued invocations and stops reading at half of them")
    func waitingBound() throws {
        var wire = Wire(configuration: SignalRConfiguration(maximumWaitingInvocations: 4))
        let first = try #require(wire.receive(Self.invocation("A")).calls.first)
        #expect(wire.receive(Self.invocation("B")).isEmpty)
        #expect(!wire.connection.isCongested)
        #expect(wire.receive(Self.invocation("C")).isEmpty)
        #expect(wire.connection.isCongested)
        #expect(wire.connection.complete(first.number, .void, now: 1).targets == ["B"])
        #expect(!wire.connection.isCongested)
        #expect(wire.receive(Self.invocation("D") + Self.invocation("E") + Self.invocation("F")).isEmpty)
        let actions = wire.receive(Self.invocation("G"))
        #expect(
            actions.written
                == #"{"type":7,"error":"Connection closed with an error. Too many invocations are waiting."}|"#)
        guard case .fault(let fault) = actions.end else {
            Issue.record("no fault")
            return
        }
        #expect(fault.code == .tooManyInvocations)
        #expect(wire.connection.complete(first.number + 1, .void, now: 1).isEmpty)
    }

    @Test("limits the bytes of queued invocations")
    func waitingBytes() {
        let record = Self.invocation("A")
        var wire = Wire(configuration: SignalRConfiguration(maximumWaitingBytes: 2 * (record.utf8.count - 1)))
        _ = wire.receive(record + record + record)
        #expect(wire.connection.isOpen)
        _ = wire.receive(record)
        #expect(wire.connection.isClosed)
    }

    @Test("does not count silence while reading is paused")
    func congestedSilence() throws {
        var wire = Wire(configuration: SignalRConfiguration(maximumWaitingInvocations: 2))
        let first = try #require(wire.receive(Self.invocation("A") + Self.invocation("B")).calls.first)
        #expect(wire.connection.tick(now: 29_000).written == #"{"type":6}|"#)
        #expect(wire.connection.tick(now: 40_000).isEmpty)
        _ = wire.connection.complete(first.number, .void, now: 40_000)
        #expect(wire.connection.tick(now: 69_999).end == nil)
        #expect(wire.connection.tick(now: 70_000).end == .clientTimeout)
    }

    @Test("runs streams in parallel with the invocation and each other")
    func streams() {
        var wire = Wire()
        let actions = wire.receive(
            Self.invocation("A", id: "1") + Self.invocation("B", id: "2") + Self.invocation("S", id: "3", type: 4)
                + Self.invocation("S", id: "4", type: 4))
        #expect(actions.targets == ["A", "S", "S"])
        let calls = actions.calls
        let item = wire.connection.sendItem(.number("5"), of: calls[2].number, now: 1)
        #expect(item?.written == #"{"type":2,"invocationId":"4","item":5}|"#)
        #expect(wire.connection.sendItem(.null, of: calls[0].number, now: 1) == nil)
        let end = wire.connection.complete(calls[1].number, .void, now: 1)
        #expect(end == [.write(Wire.bytes(#"{"type":3,"invocationId":"3"}|"#))])
        #expect(wire.connection.sendItem(.null, of: calls[1].number, now: 1) == nil)
        let fault = wire.connection.complete(calls[2].number, .error("x"), now: 1)
        #expect(fault.written == #"{"type":3,"invocationId":"4","error":"x"}|"#)
        #expect(wire.connection.complete(calls[0].number, .void, now: 1).targets == ["B"])
    }

    @Test("sends only the completion of a cancelled stream")
    func cancellation() {
        var wire = Wire()
        let calls = wire.receive(
            Self.invocation("S", id: "s", type: 4) + Self.invocation("S", id: "t", type: 4)
        ).calls
        let (cancelled, other) = (calls[0].number, calls[1].number)
        let cancel = #"{"type":5,"invocationId":"s"}|"#
        #expect(wire.receive(cancel + cancel).isEmpty)
        #expect(wire.connection.sendItem(.null, of: cancelled, now: 1) == nil)
        #expect(wire.connection.sendItem(.null, of: other, now: 1)?.isEmpty == false)
        #expect(wire.connection.complete(cancelled, .void, now: 1).written == #"{"type":3,"invocationId":"s"}|"#)
        #expect(wire.receive(cancel + #"{"type":5,"invocationId":"unknown"}|"#).isEmpty)
        #expect(wire.connection.isOpen)
    }

    @Test("ends the connection at too many streams")
    func streamBound() throws {
        var wire = Wire(configuration: SignalRConfiguration(maximumStreams: 2))
        let first = try #require(wire.receive(Self.invocation("S", id: "1", type: 4)).calls.first)
        #expect(wire.receive(Self.invocation("S", id: "2", type: 4)).targets == ["S"])
        _ = wire.connection.complete(first.number, .void, now: 1)
        #expect(wire.receive(Self.invocation("S", id: "3", type: 4)).targets == ["S"])
        let refused = wire.receive(Self.invocation("S", id: "4", type: 4))
        #expect(
            refused.written == #"{"type":7,"error":"Connection closed with an error. Too many streams are open."}|"#)
        #expect(wire.connection.isClosed)
    }

    @Test("ignores what the client's streams contain, and results that the server did not ask for")
    func uploads() {
        var wire = Wire()
        #expect(wire.receive(Self.invocation("Up", id: "1", streams: #","streamIds":["u"]"#)).targets == ["Up"])
        let ignored = [
            #"{"type":2,"invocationId":"u","item":7}|"#, #"{"type":3,"invocationId":"u"}|"#,
            #"{"type":3,"invocationId":"u","error":"x"}|"#, #"{"type":3,"invocationId":"9","result":"Ann"}|"#,
        ]
        for message in ignored { #expect(wire.receive(message).isEmpty) }
        #expect(wire.connection.isOpen)
    }
}
