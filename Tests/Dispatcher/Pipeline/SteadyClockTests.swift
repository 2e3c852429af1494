// Carillon · SteadyClockTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct SteadyClockTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    @Test("it goes on by itself, and by another clock's answer from the middle of the question on")
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

    @Test("an answer that took long changes nothing, as nobody knows when it was given")
    func late() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        #expect(clock.set(Self.start + .seconds(99), asked: begin, answered: begin + .seconds(1)) == nil)
        #expect(clock.now(at: begin + .seconds(1)) == Self.start + .seconds(1))
    }

    @Test("the other clock may be put back, too")
    func back() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        clock.set(Self.start + .seconds(-3_600), asked: begin, answered: begin)
        #expect(clock.now(at: begin) == Self.start + .seconds(-3_600))
    }
}
