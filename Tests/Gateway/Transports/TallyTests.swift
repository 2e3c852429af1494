// Carillon · TallyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sockets
import Testing

/// The count of what all connections hold.
@Suite(.timeLimit(.minutes(10)))
struct TallyTests {
    @Test("reports the end of a flood once, and no end of less")
    func ebb() {
        let tally = Tally(limit: 6_400)
        #expect(tally.take(400))
        tally.giveBack(400)
        #expect(!tally.hasEbbed(), "a sixteenth is no flood")
        #expect(tally.take(401))
        #expect(!tally.hasEbbed(), "it goes on")
        tally.giveBack(301)
        #expect(!tally.hasEbbed(), "a sixty-fourth is still held")
        tally.giveBack()
        #expect(tally.hasEbbed())
        #expect(!tally.hasEbbed())
    }
}
