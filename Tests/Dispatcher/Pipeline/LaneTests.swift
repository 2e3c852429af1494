// Carillon · LaneTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Testing

@testable import Pipeline

@Suite(.timeLimit(.minutes(10)))
struct LaneBatchTests {
    /// Returns an entry for so many users; for one in the field `user` if 0.
    private static func entry(_ users: Int) -> StreamEntry {
        let names = (0..<users).map { "\"u\($0)\"" }.joined(separator: ",")
        let audience = users == 0 ? ("user", "u") : ("users", "[\(names)]")
        let fields = [audience, ("type", "t"), ("title", "a, b, c")]
        return StreamEntry(id: "1-1", fields: fields.map { (name: $0.0, value: Array($0.1.utf8)[...]) })
    }

    @Test(
        "splits a batch by recipients, and keeps an entry together",
        arguments: [
            ([], []),
            ([0, 0, 0], [0..<3]),
            ([1_000, 1_000], [0..<2]),
            ([1_000, 1_000, 0], [0..<2, 2..<3]),
            ([0, 1_000, 1_000, 1_000, 1_000], [0..<2, 2..<4, 4..<5]),
            ([5_000, 0, 5_000], [0..<1, 1..<2, 2..<3]),
            ([5_000], [0..<1]),
        ] as [([Int], [Range<Int>])]
    )
    func parts(users: [Int], expected: [Range<Int>]) {
        #expect(LaneBatch.parts(of: users.map(Self.entry), recipients: 2_000) == expected)
    }

    @Test("a deleted entry counts as one recipient")
    func deleted() {
        let entries = [StreamEntry(id: "1-1", fields: nil), Self.entry(1_999), Self.entry(0)]
        #expect(LaneBatch.parts(of: entries, recipients: 2_000) == [0..<2, 2..<3])
    }
}

@Suite("The Redis that a lane is read from")
struct LaneSourceTests {
    @Test("entries are sure from the start of the first Redis, then from the moment of each fail-over")
    func failover() {
        var source = LaneReader.Source()
        source.note(RedisRun(id: "master", startedAt: 1_000, now: 50_000))
        #expect(source.firstSure == 1_000)
        source.note(RedisRun(id: "master", startedAt: 1_000, now: 60_000))
        #expect(source.firstSure == 1_000, "the connection broke, and Redis kept its data")
        // It has run longer than it has been the master.
        source.note(RedisRun(id: "replica", startedAt: 2_000, now: 70_000))
        #expect(source.firstSure == 70_000)
        source.note(RedisRun(id: "replica", startedAt: 2_000, now: 80_000))
        #expect(source.firstSure == 70_000, "the connection broke after the fail-over")
    }
}

struct LaneTurnsTests {
    /// Returns the order of turns; each lane has so many full batches, and then none.
    private static func turns(_ full: [Lane: Int], limit: Int = 1_000) -> [Lane] {
        var left = full
        var turns = LaneTurns()
        var order: [Lane] = []
        while order.count < limit, let lane = turns.next() {
            order.append(lane)
            let count = left[lane, default: 0]
            left[lane] = count - 1
            turns.note(lane, isFull: count > 0)
        }
        return order
    }

    @Test("with nothing due, each lane is tried once")
    func nothing() {
        #expect(Self.turns([:]) == [.critical, .normal, .bulk])
    }

    @Test("tries the most urgent lane again after each full batch")
    func urgentFirst() {
        let turns = Self.turns([.bulk: 2]).filter { $0 != .normal }
        #expect(turns == [.critical, .bulk, .critical, .bulk, .critical, .bulk])
    }

    @Test("lanes that all have more get turns by their weights")
    func weights() {
        let turns = Self.turns([.critical: 1_000, .normal: 1_000, .bulk: 1_000], limit: 210)
        for lane in Lane.allCases {
            #expect(turns.filter { $0 == lane }.count == lane.weight * 10)
        }
    }

    @Test("ends when no lane has more")
    func ends() {
        let turns = Self.turns([.critical: 40, .normal: 9, .bulk: 3])
        #expect(turns.count < 1_000)
        #expect(turns.filter { $0 == .critical }.count >= 40)
        #expect(turns.filter { $0 == .bulk }.count >= 3)
    }
}

@Suite("An organisation's share")
struct OrgWindowTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    /// Returns how many of some turns an organisation gets.
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

    @Test("an organisation has the least share, or the average of the others")
    func share() {
        var window = OrgWindow(leastShare: 10)
        let alone = Self.turns(&window, "flood", of: 50)
        // A second organisation may have as much as the first.
        let second = Self.turns(&window, "b", of: 50)
        let again = Self.turns(&window, "flood", of: 50)
        #expect(alone == 10)
        #expect(second == 50)
        #expect(again == 0)
    }

    @Test("forgets jobs after a minute, step by step")
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

    @Test("a clock that is set back neither stops the window nor fills it for ever")
    func clock() {
        var window = OrgWindow(leastShare: 10)
        let ahead = Self.turns(&window, "a", of: 20, after: 20)
        let little = Self.turns(&window, "a", after: 5)
        let lot = Self.turns(&window, "a", of: 20, after: -3_600)
        #expect(ahead == 10)
        #expect(little == 0)
        #expect(lot == 10)
    }

    @Test("organisations differ by code points")
    func names() {
        var window = OrgWindow(leastShare: 1)
        let turns = ["\u{E9}", "e\u{301}", "\u{E9}"].map { Self.turns(&window, $0) }
        #expect(turns == [1, 1, 0])
    }
}
