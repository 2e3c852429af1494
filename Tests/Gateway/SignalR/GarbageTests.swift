// Carillon · GarbageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Protocols

@Suite("SignalR with random input", .timeLimit(.minutes(10)))
struct GarbageTests {
    private static let seeds = [
        #"{"type":1,"target":"A","arguments":[1,"é☃",{"a":[null]}],"invocationId":"1"}"#,
        #"{"type":1,"target":"B","arguments":[],"streamIds":["u"],"headers":{"k":"v"}}"#,
        #"{"type":4,"target":"S","arguments":[],"invocationId":"2"}"#, #"{"type":2,"invocationId":"u","item":1}"#,
        #"{"type":3,"invocationId":"1","result":1}"#, #"{"type":3,"invocationId":"u","error":"x"}"#,
        #"{"type":5,"invocationId":"2"}"#, #"{"type":6}"#, #"{"type":7,"error":"x","allowReconnect":true}"#,
        #"{"type":8,"sequenceId":1}"#, #"{"type":9,"sequenceId":1}"#, #"{"protocol":"json","version":2}"#,
    ]

    private static func mutated(_ generator: inout SeededGenerator) -> [UInt8] {
        var bytes = Wire.bytes((Self.seeds.randomElement(using: &generator) ?? "") + "|")
        for _ in 0..<Int.random(in: 0...3, using: &generator) {
            let index = Int.random(in: 0..<bytes.count, using: &generator)
            switch Int.random(in: 0...3, using: &generator) {
            case 0: bytes[index] = UInt8.random(in: 0...255, using: &generator)
            case 1: bytes.insert(UInt8.random(in: 0...255, using: &generator), at: index)
            case 2 where bytes.count > 1: bytes.remove(at: index)
            default: bytes.insert(contentsOf: Array("9223372036854775807".utf8), at: index)
            }
        }
        return bytes
    }

    @Test(
        "ends once and never traps on any input", arguments: 0..<200 as Range<UInt64>)
    func everything(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let configuration = SignalRConfiguration(
            maximumMessageBytes: 300, maximumWaitingInvocations: 5, maximumWaitingBytes: 600, maximumStreams: 3,
            resendBufferBytes: 400)
        var wire = Wire(configuration: configuration, offersStatefulReconnect: true, version: seed % 4 == 0 ? nil : 2)
        var now: Int64 = 0
        var ends = 0
        var calls: [UInt64] = []
        for _ in 0..<300 {
            now += Int64.random(in: 0...2000, using: &generator)
            let wasClosed = wire.connection.isClosed
            var actions: [SignalRAction] = []
            switch Int.random(in: 0...11, using: &generator) {
            case 0...4: actions = wire.connection.receive(Self.mutated(&generator), now: now)
            case 5:
                let text = (Self.seeds.dropLast(3).randomElement(using: &generator) ?? "") + "|"
                actions = wire.receive(text, now: now)
            case 6: actions = wire.connection.tick(now: now)
            case 7:
                let call = calls.randomElement(using: &generator) ?? .random(in: 0...9, using: &generator)
                actions = wire.connection.complete(call, .result(.null), now: now)
            case 8:
                let call = calls.randomElement(using: &generator) ?? 0
                actions = wire.connection.sendItem(.null, of: call, now: now) ?? []
            case 9: _ = wire.connection.push(SignalRRecord(target: "x", encodedArguments: []), now: now)
            case 10: actions = wire.connection.transportLost(now: now)
            default: actions = (wire.connection.reattach(now: now) ?? []) + wire.receive(Self.seeds[10] + "|", now: now)
            }
            if wasClosed { #expect(actions.isEmpty) }
            calls += actions.calls.map(\.number)
            ends += actions.count { if case .end = $0 { true } else { false } }
            #expect(actions.end != nil || !wire.connection.isClosed || wasClosed)
        }
        #expect(ends == (wire.connection.isClosed ? 1 : 0))
    }

    @Test("gives the same result however the input is cut", arguments: 0..<100 as Range<UInt64>)
    func cuts(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let text =
            #"{"protocol":"json","version":1}|"#
            + (0..<20).map { #"{"type":4,"target":"S\#($0)é","arguments":[],"invocationId":"\#($0)"}|"# }.joined()
        let bytes = Wire.bytes(text)
        var whole = Wire(version: nil)
        var cut = Wire(version: nil)
        var actions: [SignalRAction] = []
        var start = 0
        while start < bytes.count {
            let end = min(bytes.count, start + .random(in: 1...60, using: &generator))
            actions += cut.connection.receive(Array(bytes[start..<end]), now: 0)
            start = end
        }
        #expect(actions == whole.connection.receive(bytes, now: 0))
        #expect(actions.calls.count == 20)
    }

    @Test(
        "neither loses nor repeats messages over a lossy line with stateful reconnect",
        arguments: 0..<100 as Range<UInt64>)
    func lossy(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var wire = Wire(offersStatefulReconnect: true, version: 2)
        // The client's side: the messages it has received, and where it resumes.
        var received: [String] = []
        var next = 1
        var line: [UInt8] = []
        func hear(_ bytes: [UInt8]) {
            for record in Wire.text(bytes).split(separator: "|") {
                guard let message = try? SignalRDecoder.message(Array(record.utf8)) else { continue }
                switch message {
                case .sequence(let number):
                    #expect(number <= next)
                    next = Int(number)
                case .invocation(let invocation):
                    if next > received.count { received.append(invocation.target) }
                    next += 1
                default: break
                }
            }
        }
        for number in 0..<60 {
            let record = SignalRRecord(target: "n\(number)", encodedArguments: [])
            if wire.connection.push(record, now: 0) == .write { line += record.bytes }
            switch Int.random(in: 0...5, using: &generator) {
            case 0:
                line = []
                _ = wire.connection.transportLost(now: 0)
            case 1:
                line = []
                for case .write(let bytes) in wire.connection.reattach(now: 0) ?? [] { line += bytes }
                _ = wire.receive(#"{"type":9,"sequenceId":1}|"#)
            case 2:
                hear(line)
                line = []
                _ = wire.receive(#"{"type":8,"sequenceId":\#(received.count)}|"#)
            default: break
            }
        }
        line = []
        for case .write(let bytes) in wire.connection.reattach(now: 0) ?? [] { line += bytes }
        hear(line)
        #expect(received == (0..<60).map { "n\($0)" })
    }

    @Test("never traps on random requests and polls", arguments: 0..<100 as Range<UInt64>)
    func polls(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var polling = SignalRPollingState(bufferBytes: 50, now: 0)
        var open: Set<UInt64> = []
        var now: Int64 = 0
        for number in 1...200 as ClosedRange<UInt64> {
            now += Int64.random(in: 0...20_000, using: &generator)
            var actions: [SignalRPollingAction] = []
            switch Int.random(in: 0...9, using: &generator) {
            case 0...3:
                open.insert(number)
                actions = polling.poll(number, now: now)
            case 4, 5: actions = polling.write([1, 2, 3])
            case 6: actions = polling.flush(now: now)
            case 7: actions = polling.tick(now: now)
            case 8:
                guard let poll = open.randomElement(using: &generator) else { break }
                open.remove(poll)
                actions = polling.pollLost(poll, now: now)
            default: if number > 150 { actions = polling.close(now: now) }
            }
            for case .answer(let poll, _) in actions { #expect(open.remove(poll) != nil, "a GET is answered once") }
            #expect(open.count <= 1)
            #expect(polling.recordsProven <= polling.recordsAnswered)
            #expect(polling.recordsAnswered <= polling.recordsTaken)
        }
        for case .answer(let poll, _) in polling.delete() { open.remove(poll) }
        #expect(open.isEmpty, "each GET is answered")
        let query = String(decoding: (0..<80).map { _ in UInt8.random(in: 32...126, using: &generator) }, as: UTF8.self)
        if let fields = try? RequestQuery(query, ignoresCase: true) {
            _ = SignalRConnectRequest(query: fields, authorization: query)
        }
    }
}
