// Carillon · PollingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Protocols

@Suite("SignalR long polling and event stream", .timeLimit(.minutes(10)))
struct PollingTests {
    private static func begun(bufferBytes: Int = 1_000) -> SignalRPollingState {
        var polling = SignalRPollingState(bufferBytes: bufferBytes, now: 0)
        _ = polling.poll(1, now: 0)
        return polling
    }

    private static func body(_ actions: [SignalRPollingAction], of poll: UInt64) -> String? {
        for case .answer(poll, let response) in actions where response.status == 200 { return Wire.text(response.body) }
        return nil
    }

    private static func status(_ actions: [SignalRPollingAction], of poll: UInt64) -> Int? {
        for case .answer(poll, let response) in actions { return response.status }
        return nil
    }

    private static func end(_ actions: [SignalRPollingAction]) -> SignalRPollingAction.End? {
        guard case .end(let end) = actions.last else { return nil }
        return end
    }

    @Test("answers the parked GET with 401 when the credential expires and keeps output for the next one")
    func refusal() {
        var polling = Self.begun()
        #expect(polling.refuse(now: 1).isEmpty, "no GET waits")
        #expect(polling.isAbandoned, "the next one may be refused elsewhere")
        _ = polling.poll(2, now: 10)
        #expect(!polling.isAbandoned)
        #expect(Self.status(polling.refuse(now: 20), of: 2) == 401)
        #expect(polling.isAbandoned)
        #expect(polling.write([1]).isEmpty)
        #expect(polling.flush(now: 30).isEmpty)
        #expect(Self.body(polling.poll(3, now: 40), of: 3) == "\u{1}")
        #expect(!polling.isAbandoned)
        _ = polling.poll(4, now: 50)
        _ = polling.refuse(now: 60)
        #expect(polling.tick(now: 15_059).isEmpty)
        #expect(Self.end(polling.tick(now: 15_060)) == .silent)
    }

    @Test("answers the first GET at once without content, even if output waits")
    func first() {
        var polling = SignalRPollingState(bufferBytes: 1_000, now: 0)
        #expect(polling.write([1]).isEmpty)
        let actions = polling.poll(1, now: 5)
        #expect(actions == [.answer(poll: 1, SignalRResponse(status: 200))])
        #expect(Self.body(polling.poll(2, now: 6), of: 2) == "\u{1}")
    }

    @Test("parks a GET until there is output, and output until there is a GET")
    func waiting() {
        var polling = Self.begun()
        #expect(polling.poll(2, now: 1).isEmpty)
        #expect(polling.flush(now: 1).isEmpty)
        #expect(polling.write(Wire.bytes("a|")).isEmpty)
        #expect(polling.write(Wire.bytes("b|")).isEmpty)
        let answer = polling.flush(now: 2)
        #expect(answer.count == 1)
        #expect(Self.body(answer, of: 2) == "a|b|")
        #expect(polling.flush(now: 2).isEmpty)
        _ = polling.write(Wire.bytes("c|"))
        #expect(polling.flush(now: 3).isEmpty)
        #expect(Self.body(polling.poll(3, now: 4), of: 3) == "c|")
    }

    @Test("parks a GET for 40 seconds")
    func timeout() {
        var polling = Self.begun()
        _ = polling.poll(2, now: 1000)
        #expect(polling.tick(now: 40_999).isEmpty)
        #expect(polling.tick(now: 41_000) == [.answer(poll: 2, SignalRResponse(status: 200))])
        #expect(polling.tick(now: 41_001).isEmpty)
        #expect(!polling.isAbandoned)
        #expect(polling.poll(3, now: 42_000).isEmpty)
    }

    @Test("ends the connection before a client gives up a GET whose answer was lost")
    func lostAnswer() {
        var polling = Self.begun()
        _ = polling.poll(2, now: 1000)
        // At the last moment; the client repeats the GET 100 s after it sent it.
        _ = polling.write(Wire.bytes("a|"))
        #expect(Self.body(polling.tick(now: 41_000), of: 2) == "a|")
        #expect(Self.end(polling.tick(now: 100_000)) == .silent)
        #expect(Self.status(polling.poll(3, now: 101_000), of: 3) == 404)
        #expect(polling.recordsProven == 0)
    }

    @Test("releases an older GET with 204 when a newer one arrives")
    func newer() {
        var polling = Self.begun()
        _ = polling.poll(2, now: 1)
        let actions = polling.poll(3, now: 2)
        #expect(Self.status(actions, of: 2) == 204)
        #expect(Self.status(actions, of: 3) == nil)
        _ = polling.write(Wire.bytes("a|"))
        #expect(Self.body(polling.flush(now: 3), of: 3) == "a|")
    }

    @Test("proves receipt of an answer by the next GET")
    func proof() {
        var polling = Self.begun()
        _ = polling.poll(2, now: 1)
        _ = polling.write(Wire.bytes("a|"))
        _ = polling.write(Wire.bytes("b|"))
        #expect(polling.recordsTaken == 2)
        #expect(polling.recordsAnswered == 0)
        _ = polling.flush(now: 2)
        _ = polling.write(Wire.bytes("c|"))
        #expect(polling.recordsTaken == 3)
        #expect(polling.recordsAnswered == 2)
        #expect(polling.recordsProven == 0)
        _ = polling.poll(3, now: 3)
        #expect(polling.recordsAnswered == 3)
        #expect(polling.recordsProven == 2)
        _ = polling.poll(4, now: 4)
        #expect(polling.recordsProven == 3)
    }

    @Test("answers with at most 64 KB, or with one record that is longer, and keeps the rest")
    func pieces() {
        var polling = Self.begun(bufferBytes: 1_000_000)
        let lengths = [40, 40, 20, 40, 100, 1].map { $0 * 1024 }
        for length in lengths { _ = polling.write([UInt8](repeating: 0x61, count: length - 1) + [0x1E]) }
        var (number, proven): (UInt64, UInt64) = (2, 0)
        for records in [1, 2, 1, 1, 1] {
            let expected = lengths[Int(proven)..<Int(proven) + records].reduce(0, +)
            let body = Self.body(polling.poll(number, now: 1), of: number)
            #expect(body?.utf8.count == expected && body?.last == "|")
            #expect(polling.recordsProven == proven)
            (number, proven) = (number + 1, proven + UInt64(records))
            #expect(polling.recordsAnswered == proven)
        }
        #expect(polling.poll(number, now: 1).isEmpty)
        #expect(polling.recordsProven == polling.recordsTaken)
    }

    @Test("ends a connection after 15 seconds without a GET since its start, an answer or a loss")
    func silence() {
        var unused = SignalRPollingState(bufferBytes: 1_000, now: 1000)
        #expect(unused.tick(now: 15_999).isEmpty)
        #expect(unused.tick(now: 16_000) == [.end(.silent)])
        var polling = Self.begun()
        _ = polling.poll(2, now: 14_000)
        _ = polling.tick(now: 104_000)
        #expect(polling.tick(now: 118_999).isEmpty)
        _ = polling.poll(3, now: 118_999)
        _ = polling.pollLost(3, now: 130_000)
        #expect(polling.tick(now: 144_999).isEmpty)
        #expect(polling.tick(now: 145_000) == [.end(.silent)])
        #expect(polling.tick(now: 200_000).isEmpty)
    }

    @Test("delivers the last output, then answers 204")
    func closing() {
        var polling = Self.begun()
        _ = polling.write(Wire.bytes("bye|"))
        #expect(polling.close(now: 1).isEmpty)
        _ = polling.write(Wire.bytes("late|"))
        #expect(Self.body(polling.poll(2, now: 2), of: 2) == "bye|")
        let last = polling.poll(3, now: 3)
        #expect(Self.status(last, of: 3) == 204)
        #expect(Self.end(last) == .closed)
        #expect(Self.status(polling.poll(4, now: 4), of: 4) == 404)
    }

    @Test("answers a parked GET at once when the connection ends")
    func closingParked() {
        var polling = Self.begun()
        _ = polling.poll(2, now: 1)
        #expect(polling.close(now: 2) == [.answer(poll: 2, SignalRResponse(status: 204)), .end(.closed)])
        var talking = Self.begun()
        _ = talking.poll(2, now: 1)
        _ = talking.write(Wire.bytes("bye|"))
        let actions = talking.close(now: 2)
        #expect(Self.body(actions, of: 2) == "bye|")
        #expect(Self.end(actions) == nil)
    }

    @Test("ends on DELETE and releases a parked GET")
    func delete() {
        var polling = Self.begun()
        _ = polling.poll(2, now: 1)
        #expect(polling.delete() == [.answer(poll: 2, SignalRResponse(status: 204)), .end(.deleted)])
        #expect(polling.delete().isEmpty)
        #expect(polling.write([1]).isEmpty)
        #expect(polling.recordsTaken == 0)
    }

    @Test("ends the connection if an unproven answer was lost, but not if a parked GET was")
    func lost() {
        var polling = Self.begun()
        _ = polling.poll(2, now: 1)
        #expect(polling.pollLost(2, now: 2).isEmpty)
        #expect(polling.isAbandoned)
        _ = polling.write(Wire.bytes("a|"))
        #expect(polling.flush(now: 3).isEmpty)
        #expect(Self.body(polling.poll(3, now: 4), of: 3) == "a|")
        #expect(!polling.isAbandoned)
        #expect(polling.pollLost(1, now: 4).isEmpty)
        _ = polling.poll(4, now: 5)
        #expect(polling.pollLost(3, now: 5).isEmpty)
        _ = polling.write(Wire.bytes("b|"))
        _ = polling.flush(now: 6)
        #expect(polling.pollLost(4, now: 7) == [.end(.responseLost)])
        #expect(polling.recordsProven == 1)
    }

    @Test("ends the connection at a browser's repeat of a GET whose answer contained records")
    func repeated() {
        /// Polls three times, with records after the second poll; returns the end and the proven
        /// records.
        func outcome(_ marks: [String?], after delay: Int64, hasRecords: Bool = true) -> String {
            var polling = SignalRPollingState(bufferBytes: 1_000, now: 0)
            _ = polling.poll(1, mark: PollMark(marks[0]), now: 0)
            _ = polling.poll(2, mark: PollMark(marks[1]), now: 1)
            if hasRecords { _ = polling.write(Wire.bytes("a|")) }
            _ = polling.flush(now: 2)
            let actions = polling.poll(3, mark: PollMark(marks[2]), now: 1 + delay)
            guard let end = Self.end(actions) else { return "open, \(polling.recordsProven) proven" }
            return "\(end.rawValue) \(Self.status(actions, of: 3) ?? 0), \(polling.recordsProven) proven"
        }
        #expect(outcome(["1", "2", "2"], after: 3_000) == "responseLost 404, 0 proven")
        // A fast client may poll twice with one mark, and the network may delay the second poll.
        #expect(outcome(["1", "2", "2"], after: 2_999) == "open, 1 proven")
        let others: [[String?]] = [
            ["1", "2", "3"], ["1", "2", nil], ["1", nil, "1"], [nil, nil, nil], ["1", "1", "1"],
        ]
        for marks in others { #expect(outcome(marks, after: 10_000) == "open, 1 proven", "\(marks)") }
        #expect(outcome(["1", "2", "2"], after: 10_000, hasRecords: false) == "open, 0 proven")
    }

    @Test("limits the waiting output")
    func bound() {
        var polling = Self.begun(bufferBytes: 10)
        #expect(polling.write([UInt8](repeating: 1, count: 11)).isEmpty)
        #expect(polling.write([1]) == [.end(.overflow)])
        #expect(Self.status(polling.poll(2, now: 1), of: 2) == 404)
    }

    @Test("runs a connection over polls from handshake to close")
    func together() throws {
        var wire = Wire(hasInherentKeepAlive: true, version: nil)
        var polling = Self.begun()
        _ = polling.poll(2, now: 1)
        for case .write(let bytes) in wire.receive(#"{"protocol":"json","version":1}|"#, now: 2) {
            _ = polling.write(bytes)
        }
        #expect(Self.body(polling.flush(now: 2), of: 2) == "{}|")
        _ = polling.poll(3, now: 3)
        let call = try #require(
            wire.receive(#"{"type":1,"target":"Echo","arguments":["x"],"invocationId":"0"}|"#, now: 4).calls.first)
        for case .write(let bytes) in wire.connection.complete(call.number, .result(.string("x")), now: 4) {
            _ = polling.write(bytes)
        }
        for case .write(let bytes) in wire.connection.close(now: 4) { _ = polling.write(bytes) }
        let answer = polling.close(now: 4)
        #expect(Self.body(answer, of: 3) == #"{"type":3,"invocationId":"0","result":"x"}|{"type":7}|"#)
        #expect(Self.end(polling.poll(4, now: 5)) == .closed)
        #expect(polling.recordsProven == polling.recordsTaken)
    }
}
