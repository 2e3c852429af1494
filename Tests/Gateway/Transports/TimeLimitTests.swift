// Carillon · TimeLimitTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOEmbedded
import Testing

@testable import Sockets

@Suite("Time limits", .timeLimit(.minutes(10)))
struct TimeLimitTests {
    private let loop = EmbeddedEventLoop()

    @Test("a limit acts once, at the moment that was set last, earlier or later")
    func moves() {
        let limit = TimeLimit(on: self.loop)
        var acts: [String] = []
        limit.set(.seconds(10)) { acts.append("first") }
        self.loop.advanceTime(by: .seconds(5))
        limit.set(.seconds(20)) { acts.append("later") }
        self.loop.advanceTime(by: .seconds(19))
        #expect(acts.isEmpty)
        limit.set(.milliseconds(500)) { acts.append("earlier") }
        self.loop.advanceTime(by: .milliseconds(499))
        #expect(acts.isEmpty)
        self.loop.advanceTime(by: .milliseconds(1))
        #expect(acts == ["earlier"])
        self.loop.advanceTime(by: .seconds(100))
        #expect(acts == ["earlier"])
        limit.set(.seconds(1)) { acts.append("again") }
        self.loop.advanceTime(by: .seconds(1))
        #expect(acts == ["earlier", "again"])
    }

    @Test("a removed limit does nothing, and what it would have used is freed")
    func removed() {
        final class Resource {}
        let limit = TimeLimit(on: self.loop)
        weak var kept: Resource?
        var acts = 0
        do {
            let resource = Resource()
            kept = resource
            limit.set(.seconds(1)) { [resource] in
                _ = resource
                acts += 1
            }
        }
        #expect(kept != nil)
        limit.remove()
        #expect(kept == nil)
        self.loop.advanceTime(by: .seconds(2))
        #expect(acts == 0)
    }
}
