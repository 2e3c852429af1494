// Carillon · OrgWindowTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

@Suite("An organisation's share of turns")
struct OrgWindowTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    /// Counts the turns that an organisation is granted.
    private static func turns(
        _ window: inout OrgWindow,
        _ org: String,
        of count: Int = 1,
        after seconds: Int = 0
    ) -> Int {
        var taken = 0
        for _ in 0..<count where window.take(org, at: Self.start + .seconds(seconds)) { taken += 1 }
        return taken
    }

    @Test("grants the minimum, then the average of the others")
    func share() {
        var window = OrgWindow(leastShare: 10)
        let alone = Self.turns(&window, "flood", of: 50)
        // A second organisation gets as many as the first asked for.
        let second = Self.turns(&window, "b", of: 50)
        let again = Self.turns(&window, "flood", of: 50)
        #expect(alone == 10)
        #expect(second == 50)
        #expect(again == 0)
    }

    @Test("forgets turns step by step within a minute")
    func forgetting() {
        var window = OrgWindow(leastShare: 10)
        var taken: [Int] = []
        for second in 0..<10 { taken.append(Self.turns(&window, "a", after: second)) }
        #expect(taken == [Int](repeating: 1, count: 10))
        let soon = Self.turns(&window, "a", after: 20)
        let later = Self.turns(&window, "a", after: 61)
        let afresh = Self.turns(&window, "a", of: 20, after: 200)
        #expect(soon == 0)
        #expect(later == 1)
        #expect(afresh == 10)
    }

    @Test("survives a clock that is set back")
    func clock() {
        var window = OrgWindow(leastShare: 10)
        let ahead = Self.turns(&window, "a", of: 20, after: 20)
        let little = Self.turns(&window, "a", after: 5)
        let lot = Self.turns(&window, "a", of: 20, after: -3_600)
        #expect(ahead == 10)
        #expect(little == 0)
        #expect(lot == 10)
    }

    @Test("tells apart names that look alike")
    func names() {
        var window = OrgWindow(leastShare: 1)
        let turns = ["\u{E9}", "e\u{301}", "\u{E9}"].map { Self.turns(&window, $0) }
        #expect(turns == [1, 1, 0])
    }
}
