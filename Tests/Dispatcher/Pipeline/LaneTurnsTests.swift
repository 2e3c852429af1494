// Carillon · LaneTurnsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct LaneTurnsTests {
    /// The order in which lanes are visited, given the number of full batches of each.
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

    @Test("visits each lane once when nothing is due")
    func nothing() {
        #expect(Self.turns([:]) == [.critical, .normal, .bulk])
    }

    @Test("returns to the most urgent lane after each full batch")
    func urgentFirst() {
        let turns = Self.turns([.bulk: 2]).filter { $0 != .normal }
        #expect(turns == [.critical, .bulk, .critical, .bulk, .critical, .bulk])
    }

    @Test("shares turns by weight when all lanes are full")
    func weights() {
        let turns = Self.turns([.critical: 1_000, .normal: 1_000, .bulk: 1_000], limit: 210)
        for lane in Lane.allCases {
            #expect(turns.filter { $0 == lane }.count == lane.weight * 10)
        }
    }

    @Test("ends when all lanes are empty")
    func ends() {
        let turns = Self.turns([.critical: 40, .normal: 9, .bulk: 3])
        #expect(turns.count < 1_000)
        #expect(turns.filter { $0 == .critical }.count >= 40)
        #expect(turns.filter { $0 == .bulk }.count >= 3)
    }
}
