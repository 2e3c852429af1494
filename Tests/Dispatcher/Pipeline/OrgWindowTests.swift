// Carillon · OrgWindowTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

@Suite("An organisation's share")
struct OrgWindowTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    /// How many of some turns an organisation gets.
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

    @Test("the least share in any case, then as many as the others on average")
    func share() {
        var window = OrgWindow(leastShare: 10)
        let alone = Self.turns(&window, "flood", of: 50)
        // Of another one as much may come as of the first.
        let second = Self.turns(&window, "b", of: 50)
        let again = Self.turns(&window, "flood", of: 50)
        #expect(alone == 10)
        #expect(second == 50)
        #expect(again == 0)
    }

    @Test("a minute later it is forgotten, step by step")
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

    @Test("a clock that is set back, a little or a lot, neither stops the window nor fills it for ever")
    func clock() {
        var window = OrgWindow(leastShare: 10)
        let ahead = Self.turns(&window, "a", of: 20, after: 20)
        let little = Self.turns(&window, "a", after: 5)
        let lot = Self.turns(&window, "a", of: 20, after: -3_600)
        #expect(ahead == 10)
        #expect(little == 0)
        #expect(lot == 10)
    }

    @Test("names that look alike are different organisations")
    func names() {
        var window = OrgWindow(leastShare: 1)
        let turns = ["\u{E9}", "e\u{301}", "\u{E9}"].map { Self.turns(&window, $0) }
        #expect(turns == [1, 1, 0])
    }
}
