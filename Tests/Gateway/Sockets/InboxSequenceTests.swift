// Carillon · InboxSequenceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Sockets

@Suite("Order of one socket's inbox", .timeLimit(.minutes(10)))
struct InboxSequenceTests {
    private static func sequence(at version: Int64) -> InboxSequence {
        var sequence = InboxSequence()
        sequence.reset(to: version)
        return sequence
    }

    @Test("Before the first sync everything is held")
    func beforeSync() {
        var sequence = InboxSequence()
        #expect(sequence.judge(previous: 0, version: 1) == .hold)
        #expect(sequence.last == nil)
        sequence.advance(to: 0)
        #expect(sequence.judge(previous: 0, version: 1) == .send)
    }

    @Test("What is next is sent, what is there is dropped, what is too early is held")
    func judges() {
        let table: [(previous: Int64, version: Int64, verdict: InboxSequence.Verdict, last: Int64)] = [
            (10, 11, .send, 11), (10, 14, .send, 14), (9, 10, .known, 10), (8, 9, .known, 10), (0, 1, .known, 10),
            (9, 11, .send, 11), (11, 12, .hold, 10), (12, 13, .hold, 10),
        ]
        for row in table {
            var sequence = Self.sequence(at: 10)
            #expect(sequence.judge(previous: row.previous, version: row.version) == row.verdict, "\(row)")
            #expect(sequence.last == row.last, "\(row)")
        }
    }

    @Test("Changes in any order are sent once each, in order, when the held are tried again", arguments: 0..<20)
    func anyOrder(seed: Int) {
        var sequence = Self.sequence(at: 0)
        var held: [Int64] = []
        var sent: [Int64] = []
        let order = (Int64(1)...7).sorted { ($0 * 31 + Int64(seed)) * 17 % 13 < ($1 * 31 + Int64(seed)) * 17 % 13 }
        for version in order + order {
            held.append(version)
            // As many rounds as there are held: in each at least one goes, or none ever will.
            for _ in held {
                for candidate in held where sequence.judge(previous: candidate - 1, version: candidate) == .send {
                    sent.append(candidate)
                }
            }
        }
        #expect(sent == Array(1...7))
    }

    @Test("A sync brings forward, never back; a reset may")
    func advances() {
        var sequence = Self.sequence(at: 10)
        sequence.advance(to: 8)
        #expect(sequence.last == 10)
        sequence.advance(to: 12)
        #expect(sequence.last == 12)
        #expect(sequence.judge(previous: 11, version: 12) == .known)
        sequence.reset(to: 3)
        #expect(sequence.judge(previous: 3, version: 4) == .send)
    }
}
