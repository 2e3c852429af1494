// Carillon · BadgeBoardTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct BadgeBoardTests {
    private static func device(_ number: UInt64) -> NotificationID {
        NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0000 + number)
    }

    @Test("a count is the newest unless the device was sent one of a later version")
    func newest() {
        let board = BadgeBoard()
        #expect(board.record(5, of: "ada", for: Self.device(1)))
        #expect(!board.record(4, of: "ada", for: Self.device(1)))
        #expect(board.record(5, of: "ada", for: Self.device(1)), "the same once more is no older")
        #expect(board.record(6, of: "ada", for: Self.device(1)))
        #expect(!board.record(5, of: "ada", for: Self.device(1)))
        #expect(board.record(1, of: "ada", for: Self.device(2)))
    }

    @Test("a device that another user registers starts over")
    func moved() {
        let board = BadgeBoard()
        #expect(board.record(500, of: "ada", for: Self.device(1)))
        #expect(board.record(3, of: "eve", for: Self.device(1)))
        #expect(!board.record(2, of: "eve", for: Self.device(1)))
        #expect(board.record(4, of: "ada", for: Self.device(1)))
    }

    @Test("remembers 100,000 devices, then starts over")
    func bound() {
        let board = BadgeBoard()
        for number in UInt64(0)..<100_000 where !board.record(10, of: "ada", for: Self.device(number)) {
            Issue.record("\(number) is not new")
        }
        #expect(!board.record(9, of: "ada", for: Self.device(0)))
        #expect(board.record(10, of: "ada", for: Self.device(100_000)))
        #expect(board.record(9, of: "ada", for: Self.device(0)))
        #expect(!board.record(8, of: "ada", for: Self.device(0)))
    }
}
