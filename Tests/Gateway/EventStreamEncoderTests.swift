// Carillon · EventStreamEncoderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Protocols

@Suite("Server-Sent Events", .timeLimit(.minutes(10)))
struct EventStreamEncoderTests {
    private static func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    @Test(
        "writes each line of the data as a data line",
        arguments: [
            ("x", "data: x\n\n"),
            ("", "data:\n\n"),
            (" x", "data:  x\n\n"),
            ("a\nb", "data: a\ndata: b\n\n"),
            ("a\r\nb\rc\nd", "data: a\ndata: b\ndata: c\ndata: d\n\n"),
            ("a\n\nb", "data: a\ndata:\ndata: b\n\n"),
            ("a\n", "data: a\ndata:\n\n"),
            ("a\r", "data: a\ndata:\n\n"),
            ("\r\n", "data:\ndata:\n\n"),
            ("é\u{2028}☃", "data: é\u{2028}☃\n\n"),
        ]
    )
    func data(_ data: String, _ expected: String) {
        #expect(Self.text(EventStreamEncoder.event(data: Array(data.utf8))) == expected)
    }

    @Test("writes only the given fields, in order")
    func fields() throws {
        let whole = try EventStreamEncoder.event(
            data: Array("{}".utf8), name: "unread", id: "1-0", retryMilliseconds: 3000)
        #expect(Self.text(whole) == "id: 1-0\nevent: unread\nretry: 3000\ndata: {}\n\n")
        let onlyID = try EventStreamEncoder.event(data: nil, id: "7")
        #expect(Self.text(onlyID) == "id: 7\n\n")
        let emptyID = try EventStreamEncoder.event(data: [0x78], id: "", lineEnd: .carriageReturnLineFeed)
        #expect(Self.text(emptyID) == "id:\r\ndata: x\r\n\r\n")
    }

    @Test("writes the chosen line ends")
    func lineEnds() {
        let bytes = EventStreamEncoder.event(data: Array("a\nb".utf8), lineEnd: .carriageReturnLineFeed)
        #expect(Self.text(bytes) == "data: a\r\ndata: b\r\n\r\n")
    }

    @Test(
        "starts each line of a comment with a colon",
        arguments: [
            ("", ":\n\n"), ("alive", ": alive\n\n"), ("a\nb", ": a\n: b\n\n"), ("a\r\ndata: x", ": a\n: data: x\n\n"),
        ]
    )
    func comments(_ text: String, _ expected: String) {
        #expect(Self.text(EventStreamEncoder.comment(text)) == expected)
    }

    @Test("refuses names that could not be read back", arguments: ["a\nb", "a\rb", "a\r\nb", "\n"])
    func lines(_ text: String) {
        #expect(throws: EventStreamFault(.id)) { try EventStreamEncoder.event(data: nil, id: text) }
        #expect(throws: EventStreamFault(.name)) { try EventStreamEncoder.event(data: nil, name: text) }
    }

    @Test("refuses a NUL in an id and a negative retry time")
    func values() throws {
        #expect(throws: EventStreamFault(.id)) { try EventStreamEncoder.event(data: nil, id: "a\u{0}") }
        #expect(throws: EventStreamFault(.retry)) { try EventStreamEncoder.event(data: nil, retryMilliseconds: -1) }
        let named = try EventStreamEncoder.event(data: nil, name: "a\u{0}")
        #expect(Self.text(named) == "event: a\u{0}\n\n")
    }
}
