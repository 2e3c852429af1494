// Carillon · SteadyClockTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct SteadyClockTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    @Test("advances without an answer and takes an answer as of the middle of the round trip")
    func goesOn() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        #expect(clock.now(at: begin + .seconds(10)) == Self.start + .seconds(10))
        let asked = begin + .seconds(20)
        let ahead = clock.set(Self.start + .seconds(3_620), asked: asked, answered: asked + .milliseconds(200))
        #expect(ahead == .milliseconds(3_599_900))
        #expect(clock.now(at: asked + .milliseconds(100)) == Self.start + .seconds(3_620))
        #expect(clock.now(at: asked + .milliseconds(1_100)) == Self.start + .seconds(3_621))
    }

    @Test("ignores an answer that took too long")
    func late() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        #expect(clock.set(Self.start + .seconds(99), asked: begin, answered: begin + .seconds(1)) == nil)
        #expect(clock.now(at: begin + .seconds(1)) == Self.start + .seconds(1))
    }

    @Test("follows the other clock when it is set back")
    func back() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        clock.set(Self.start + .seconds(-3_600), asked: begin, answered: begin)
        #expect(clock.now(at: begin) == Self.start + .seconds(-3_600))
    }
}
