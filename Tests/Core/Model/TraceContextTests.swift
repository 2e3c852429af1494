// Carillon · TraceContextTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

struct TraceContextTests {
    private static let trace = "0af7651916cd43dd8448eb211c80319c"
    private static let span = "b7ad6b7169203331"

    @Test("a parsed header is written unchanged")
    func roundTrip() throws {
        for flags in ["00", "01"] {
            let header = "00-\(Self.trace)-\(Self.span)-\(flags)"
            let context = try #require(TraceContext(header))
            #expect(context.traceParent == header)
            #expect(context.isSampled == (flags == "01"))
            #expect(context.traceID == Self.trace)
            #expect(context.spanID == Self.span)
        }
    }

    @Test("ignores what a newer version appends")
    func newer() throws {
        let context = try #require(TraceContext("cc-\(Self.trace)-\(Self.span)-03-what-comes-next"))
        #expect(context.traceParent == "00-\(Self.trace)-\(Self.span)-01")
        #expect(TraceContext("cc-\(Self.trace)-\(Self.span)-01") != nil)
    }

    @Test(
        "refuses headers that the recommendation calls invalid",
        arguments: [
            "", "00", "00-1-2-01", "00-\(trace)-\(span)", "00-\(trace)-\(span)-1", "00-\(trace)-\(span)-01-", "é",
            "00-\(trace)-\(span)-01-more", "ff-\(trace)-\(span)-01", "00-00000000000000000000000000000000-\(span)-01",
            "00-\(trace)-0000000000000000-01", "00-\(trace.uppercased())-\(span)-01", "00_\(trace)_\(span)_01",
            "cc-\(trace)-\(span)-01.more", "0g-\(trace)-\(span)-01",
        ]
    )
    func invalid(header: String) {
        #expect(TraceContext(header) == nil)
    }

    @Test("another span belongs to the same trace")
    func child() throws {
        let context = try #require(TraceContext("00-\(Self.trace)-\(Self.span)-01")).with(span: 0xAB)
        #expect(context.traceParent == "00-\(Self.trace)-00000000000000ab-01")
    }
}
