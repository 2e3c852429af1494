// Carillon · BadgeBoardTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct BadgeBoardTests {
    private static func device(_ number: UInt64) -> NotificationID {
        NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0000 + number)
    }

    @Test("rejects a badge count only when a newer version was sent to the same device")
    func newest() {
        let board = BadgeBoard()
        #expect(board.isNewest(5, for: Self.device(1)))
        #expect(!board.isNewest(4, for: Self.device(1)))
        #expect(board.isNewest(5, for: Self.device(1)), "the same version is not stale")
        #expect(board.isNewest(6, for: Self.device(1)))
        #expect(!board.isNewest(5, for: Self.device(1)))
        #expect(board.isNewest(1, for: Self.device(2)))
    }

    @Test("remembers 100,000 devices, then forgets all, so that a stale count may pass once")
    func bound() {
        let board = BadgeBoard()
        for number in UInt64(0)..<100_000 where !board.isNewest(10, for: Self.device(number)) {
            Issue.record("\(number) is not new")
        }
        #expect(!board.isNewest(9, for: Self.device(0)))
        #expect(board.isNewest(10, for: Self.device(100_000)))
        #expect(board.isNewest(9, for: Self.device(0)))
        #expect(!board.isNewest(8, for: Self.device(0)))
    }
}
