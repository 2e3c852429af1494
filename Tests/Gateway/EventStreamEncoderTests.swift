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
    func fields() {
        let whole = EventStreamEncoder.event(
            data: Array("{}".utf8), name: "unread", id: 10, retryMilliseconds: 3000)
        #expect(Self.text(whole) == "id: 10\nevent: unread\nretry: 3000\ndata: {}\n\n")
        #expect(Self.text(EventStreamEncoder.event(id: 7)) == "id: 7\n\n")
        #expect(Self.text(EventStreamEncoder.event(retryMilliseconds: 0)) == "retry: 0\n\n")
    }

    @Test("writes the chosen line ends")
    func lineEnds() {
        let bytes = EventStreamEncoder.event(data: Array("a\nb".utf8), lineEnd: .carriageReturnLineFeed)
        #expect(Self.text(bytes) == "data: a\r\ndata: b\r\n\r\n")
    }

    @Test("writes a comment without text")
    func comments() {
        #expect(Self.text(EventStreamEncoder.comment()) == ":\n\n")
        #expect(Self.text(EventStreamEncoder.comment(lineEnd: .carriageReturnLineFeed)) == ":\r\n\r\n")
    }
}
