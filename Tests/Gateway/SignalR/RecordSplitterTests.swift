// Carillon · RecordSplitterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Support
import Testing

@Suite("SignalR records", .timeLimit(.minutes(10)))
struct RecordSplitterTests {
    private static func split(_ pieces: [String], maximumBytes: Int = 8) -> (records: [String], isTooLong: Bool) {
        var splitter = SignalRRecordSplitter(maximumBytes: maximumBytes)
        var records: [String] = []
        var isTooLong = false
        for piece in pieces {
            let batch = splitter.split(Wire.bytes(piece))
            records += batch.records.map { Wire.text($0) }
            isTooLong = isTooLong || batch.isTooLong
            #expect(splitter.pendingBytes <= maximumBytes)
        }
        return (records, isTooLong)
    }

    @Test(
        "Many records in a piece, and one over many pieces",
        arguments: [
            (["a|bc|"], ["a", "bc"]),
            (["a|b", "c", "|d"], ["a", "bc"]),
            (["", "a", "", "|"], ["a"]),
            (["|", "||"], ["", "", ""]),
            (["12345678|"], ["12345678"]),
            (["1234", "5678", "|1"], ["12345678"]),
        ]
    )
    func pieces(_ pieces: [String], _ records: [String]) {
        let result = Self.split(pieces)
        #expect(result.records == records)
        #expect(!result.isTooLong)
    }

    @Test(
        "A record that is too long ends it, and those before it count",
        arguments: [
            (["123456789|"], []),
            (["a|123456789|b|"], ["a"]),
            (["123456789"], []),
            (["1234", "56789"], []),
            (["1234", "56789|", "b|"], []),
        ]
    )
    func tooLong(_ pieces: [String], _ records: [String]) {
        let result = Self.split(pieces)
        #expect(result.records == records)
        #expect(result.isTooLong)
    }

    @Test("However it is cut, the records are the same", arguments: 0..<50 as Range<UInt64>)
    func cuts(_ seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let records = (0..<30).map { _ in String(repeating: "x", count: Int.random(in: 0...8, using: &generator)) }
        var rest = Substring(records.map { $0 + "|" }.joined())
        var pieces: [String] = []
        while !rest.isEmpty {
            let count = Int.random(in: 1...12, using: &generator)
            pieces.append(String(rest.prefix(count)))
            rest = rest.dropFirst(count)
        }
        #expect(Self.split(pieces).records == records)
    }
}
