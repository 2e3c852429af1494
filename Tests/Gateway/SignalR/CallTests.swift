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
    func streams() throws {
        var wire = Wire()
        let actions = wire.receive(
            Self.invocation("A", id: "1") + Self.invocation("S", id: "2", type: 4)
                + Self.invocation("S", id: "3", type: 4))
        #expect(actions.targets == ["A", "S", "S"])
        #expect(actions.calls.map(\.invocation.isStream) == [false, true, true])
        let calls = actions.calls
        let item = wire.connection.sendItem(.number("5"), of: calls[2].number, now: 1)
        #expect(item.written == #"{"type":2,"invocationId":"3","item":5}|"#)
        #expect(wire.connection.sendItem(.null, of: calls[0].number, now: 1).isEmpty)
        let end = wire.connection.complete(calls[1].number, .void, now: 1)
        #expect(end.written == #"{"type":3,"invocationId":"2"}|"#)
        #expect(wire.connection.sendItem(.null, of: calls[1].number, now: 1).isEmpty)
        #expect(
            wire.connection.complete(calls[2].number, .error("x"), now: 1).written
                == #"{"type":3,"invocationId":"3","error":"x"}|"#)
    }

    @Test("sends only the completion of a cancelled stream")
    func cancellation() throws {
        var wire = Wire()
        let call = try #require(wire.receive(Self.invocation("S", id: "s", type: 4)).calls.first)
        let cancel = #"{"type":5,"invocationId":"s"}|"#
        #expect(wire.receive(cancel) == [.cancel(call: call.number)])
        #expect(wire.receive(cancel).isEmpty)
        #expect(wire.connection.sendItem(.null, of: call.number, now: 1).isEmpty)
        #expect(wire.connection.complete(call.number, .void, now: 1).written == #"{"type":3,"invocationId":"s"}|"#)
        #expect(wire.receive(cancel).isEmpty)
        #expect(wire.receive(#"{"type":5,"invocationId":"unknown"}|"#).isEmpty)
        #expect(wire.connection.isOpen)
    }

    @Test("answers a used stream id, and one stream too many, with an error")
    func streamBounds() throws {
        var wire = Wire(configuration: SignalRConfiguration(maximumStreams: 2))
        let first = wire.receive(Self.invocation("S", id: "1", type: 4)).calls
        let again = wire.receive(Self.invocation("S", id: "1", type: 4))
        #expect(again.written == #"{"type":3,"invocationId":"1","error":"Invocation ID '1' is already in use."}|"#)
        #expect(again.calls.isEmpty)
        _ = wire.receive(Self.invocation("S", id: "2", type: 4))
        let third = wire.receive(Self.invocation("S", id: "3", type: 4))
        #expect(
            third.written == #"{"type":3,"invocationId":"3","error":"Too many streams are open on this connection."}|"#)
        _ = wire.connection.complete(try #require(first.first).number, .void, now: 1)
        #expect(wire.receive(Self.invocation("S", id: "3", type: 4)).targets == ["S"])
        #expect(wire.connection.isOpen)
    }

    @Test("ignores what the client's streams contain, and results that the server did not ask for")
    func uploads() throws {
        var wire = Wire()
        let streams = #","streamIds":["u","v"]"#
        let actions = wire.receive(Self.invocation("A") + Self.invocation("Up", id: "1", streams: streams))
        #expect(actions.targets == ["A", "Up"])
        let call = actions.calls[1]
        #expect(call.invocation.streamIDs == ["u", "v"])
        #expect(wire.receive(#"{"type":2,"invocationId":"v","item":7}|{"type":3,"invocationId":"v"}|"#).isEmpty)
        #expect(wire.receive(#"{"type":3,"invocationId":"u","error":"x"}|"#).isEmpty)
        #expect(wire.connection.complete(call.number, .void, now: 1).written == #"{"type":3,"invocationId":"1"}|"#)
        #expect(wire.receive(#"{"type":2,"invocationId":"u","item":9}|"#).isEmpty)
        #expect(wire.receive(#"{"type":3,"invocationId":"9","result":"Ann"}|"#).isEmpty)
        #expect(wire.connection.isOpen)
    }

    @Test("limits the client's streams and ends the connection if no call can be told")
    func uploadBound() {
        var wire = Wire(configuration: SignalRConfiguration(maximumStreams: 2))
        let refused = wire.receive(Self.invocation("Up", id: "1", streams: #","streamIds":["a","b","c"]"#))
        #expect(refused.written.contains("Too many streams"))
        #expect(wire.connection.isOpen)
        let failed = wire.receive(Self.invocation("Up", streams: #","streamIds":["a","b","c"]"#))
        #expect(failed.written.hasPrefix(#"{"type":7,"error":"Connection closed with an error."#))
        #expect(wire.connection.isClosed)
    }
}
