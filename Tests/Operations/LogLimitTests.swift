// Carillon · LogLimitTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations
import Testing

struct LogLimitTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    @Test("lets one line per key and interval through")
    func interval() {
        let limit = LogLimit<String>(every: .seconds(60))
        func isDue(_ key: String, after delay: Duration) -> Bool { limit.isDue(for: key, at: Self.start + delay) }
        #expect(isDue("a", after: .zero))
        #expect(!isDue("a", after: .zero))
        #expect(isDue("b", after: .seconds(59)))
        // Counts from the last line, not from the last call.
        #expect(!isDue("a", after: .seconds(59)))
        #expect(isDue("a", after: .seconds(60)))
        #expect(!isDue("a", after: .seconds(119)))
        #expect(!isDue("b", after: .seconds(118)))
    }

    @Test("a call that ends out of order gets no second line, and a clock that steps back does not end the lines")
    func steps() {
        let limit = LogLimit<String>(every: .seconds(60))
        #expect(limit.isDue(for: "a", at: Self.start))
        #expect(!limit.isDue(for: "a", at: Self.start - .milliseconds(1)))
        #expect(limit.isDue(for: "a", at: Self.start - .seconds(3_600)))
        #expect(!limit.isDue(for: "a", at: Self.start - .seconds(3_541)))
    }

    @Test("at most 1,000 keys have a line per interval, and more do not end the limit of those")
    func bound() {
        let limit = LogLimit<Int>(every: .seconds(60))
        let later = Self.start + .seconds(60)
        for key in 0..<1_000 { #expect(limit.isDue(for: key, at: Self.start)) }
        for key in 1_000..<2_000 { #expect(limit.isDue(for: key, at: later)) }
        for key in 1_000..<2_000 { #expect(!limit.isDue(for: key, at: later)) }
        #expect(!limit.isDue(for: 0, at: later))
        #expect(limit.isDue(for: 0, at: later + .seconds(60)))
    }

    @Test("lets only the first caller through")
    func first() {
        let first = FirstTime()
        #expect([first.take(), first.take(), first.take()] == [true, false, false])
    }
}
