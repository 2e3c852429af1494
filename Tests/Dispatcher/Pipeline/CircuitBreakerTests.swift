// Carillon · CircuitBreakerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct CircuitBreakerTests {
    private static let start = Timestamp(seconds: 1_000)

    /// Makes calls one after the other, with these results.
    private static func call(
        _ breaker: inout CircuitBreaker,
        _ verdicts: [CircuitBreaker.Verdict],
        at moment: Timestamp = start
    ) {
        for verdict in verdicts where breaker.admit(now: moment) == .yes { breaker.record(verdict, now: moment) }
    }

    @Test("opens after ten failures that are half of the answers")
    func opens() {
        var few = CircuitBreaker()
        Self.call(&few, Array(repeating: .fails, count: 9))
        #expect(few.state == .closed)
        var many = CircuitBreaker()
        Self.call(&many, Array(repeating: .works, count: 40) + Array(repeating: .fails, count: 12))
        #expect(many.state == .closed)
        Self.call(&few, [.fails])
        #expect(few.state == .open(until: Self.start + .seconds(1)))
        #expect(few.admit(now: Self.start) == .no(until: Self.start + .seconds(1)))
    }

    @Test("ignores failures of earlier windows")
    func window() {
        var breaker = CircuitBreaker()
        Self.call(&breaker, Array(repeating: .fails, count: 9))
        Self.call(&breaker, [.fails], at: Self.start + .seconds(11))
        #expect(breaker.state == .closed)
    }

    @Test("two calls probe; a success closes it, a failure keeps it open for longer")
    func probes() {
        var breaker = CircuitBreaker()
        Self.call(&breaker, Array(repeating: .fails, count: 10))
        let later = Self.start + .seconds(1)
        #expect(breaker.admit(now: later) == .yes)
        #expect(breaker.admit(now: later) == .yes)
        #expect(breaker.admit(now: later) != .yes)
        breaker.record(.fails, now: later)
        #expect(breaker.state == .open(until: later + .seconds(2)))
        breaker.record(.fails, now: later)
        let again = later + .seconds(2)
        #expect(breaker.admit(now: again) == .yes)
        breaker.record(.works, now: again)
        #expect(breaker.state == .closed)
        #expect(breaker.inFlight == 0)
    }

    @Test("a call that began before the breaker opened does not count as a probe")
    func late() {
        var breaker = CircuitBreaker()
        for _ in 0..<4 { #expect(breaker.admit(now: Self.start) == .yes) }
        Self.call(&breaker, Array(repeating: .fails, count: 10))
        let later = Self.start + .seconds(1)
        #expect(breaker.admit(now: later) == .yes)
        breaker.record(.fails, since: Self.start, now: later)
        breaker.record(.works, since: Self.start, now: later)
        #expect(breaker.state == .probing)
        #expect(breaker.admit(now: later) == .yes)
        #expect(breaker.admit(now: later) != .yes, "two calls probe, whatever else has ended")
        breaker.record(.works, since: later, now: later)
        #expect(breaker.state == .closed)
        breaker.record(.slowDown(.seconds(60)), since: Self.start, now: later)
        #expect(breaker.state == .open(until: later + .seconds(60)), "a requested pause still counts")
        #expect(breaker.inFlight == 2)
    }

    @Test("a withdrawn probe leaves its place to another")
    func withdrawnProbe() {
        var breaker = CircuitBreaker()
        #expect(breaker.admit(now: Self.start) == .yes)
        Self.call(&breaker, Array(repeating: .fails, count: 10))
        let later = Self.start + .seconds(1)
        for _ in 0..<2 { #expect(breaker.admit(now: later) == .yes) }
        breaker.withdraw(since: Self.start)
        #expect(breaker.admit(now: later) != .yes)
        breaker.withdraw(since: later)
        #expect(breaker.state == .probing)
        #expect(breaker.admit(now: later) == .yes)
        #expect(breaker.inFlight == 2)
    }

    @Test("the pause doubles up to 30 s")
    func longest() {
        var breaker = CircuitBreaker()
        var moment = Self.start
        Self.call(&breaker, Array(repeating: .fails, count: 10))
        for _ in 0..<10 {
            moment = moment + .seconds(30)
            Self.call(&breaker, [.fails], at: moment)
        }
        #expect(breaker.state == .open(until: moment + .seconds(30)))
    }

    @Test("holds until the latest of several moments")
    func hold() {
        var breaker = CircuitBreaker()
        var isNews = breaker.hold(until: Self.start, now: Self.start)
        #expect(!isNews && breaker.state == .closed)
        isNews = breaker.hold(until: Self.start + .seconds(7), now: Self.start)
        #expect(isNews)
        isNews = breaker.hold(until: Self.start + .seconds(9), now: Self.start + .seconds(1))
        #expect(!isNews)
        isNews = breaker.hold(until: Self.start + .seconds(5), now: Self.start + .seconds(2))
        #expect(!isNews)
        #expect(breaker.admit(now: Self.start + .seconds(8)) == .no(until: Self.start + .seconds(9)))
        let end = Self.start + .seconds(9)
        #expect(breaker.admit(now: end) == .yes)
        #expect(breaker.state == .probing)
        breaker.record(.works, since: end, now: end)
        #expect(breaker.state == .closed)
    }

    @Test("opens for a minute on a rejected configuration, and as long as a quota asks")
    func pauses() {
        var configuration = CircuitBreaker()
        Self.call(&configuration, [.misconfigured])
        #expect(configuration.state == .open(until: Self.start + .seconds(60)))
        var quota = CircuitBreaker()
        Self.call(&quota, [.slowDown(.seconds(7))])
        #expect(quota.admit(now: Self.start + .seconds(6)) == .no(until: Self.start + .seconds(7)))
        #expect(quota.admit(now: Self.start + .seconds(7)) == .yes)
    }

    @Test(
        "a pause ends when the clock steps back behind its beginning",
        arguments: [.misconfigured, .slowDown(.seconds(20 * 60))] as [CircuitBreaker.Verdict])
    func clockStepsBack(verdict: CircuitBreaker.Verdict) {
        var breaker = CircuitBreaker()
        let later = Self.start + .seconds(3_600)
        Self.call(&breaker, [verdict], at: later)
        #expect(breaker.isOpen(at: later + .seconds(-1)), "the clock was corrected a little")
        #expect(!breaker.isOpen(at: Self.start))
        #expect(breaker.state(at: Self.start) == .closed)
        #expect(breaker.admit(now: Self.start) == .yes)
        let isHeld = breaker.hold(until: later + .seconds(20 * 60), now: Self.start + .seconds(1))
        #expect(!isHeld, "noted before the step")
    }

    @Test("opens after ten failures although the clock stepped back after many successes")
    func failuresAfterStep() {
        var breaker = CircuitBreaker()
        Self.call(&breaker, Array(repeating: .works, count: 100), at: Self.start + .seconds(3_600))
        Self.call(&breaker, Array(repeating: .fails, count: 10), at: Self.start)
        #expect(breaker.state == .open(until: Self.start + .seconds(1)))
    }

    @Test("a probe counts although the breaker opened before the clock stepped back")
    func clockStepsBackWhileProbing() {
        var breaker = CircuitBreaker()
        let later = Self.start + .seconds(3_600)
        Self.call(&breaker, [.misconfigured], at: later)
        #expect(breaker.admit(now: later + .seconds(60)) == .yes)
        #expect(breaker.state == .probing)
        #expect(breaker.admit(now: Self.start) == .yes)
        breaker.record(.works, since: Self.start, now: Self.start + .seconds(1))
        #expect(breaker.state == .closed)
    }

    @Test("a probe counts although the clock stepped back a little, behind the moment when the breaker opened")
    func smallStepWhileProbing() {
        var breaker = CircuitBreaker()
        Self.call(&breaker, Array(repeating: .fails, count: 10))
        let end = Self.start + .seconds(1)
        #expect(breaker.admit(now: end) == .yes)
        breaker.withdraw(since: end)
        let earlier = Self.start - .seconds(2)
        for _ in 0..<2 { #expect(breaker.admit(now: earlier) == .yes) }
        #expect(breaker.admit(now: earlier) != .yes)
        breaker.withdraw(since: earlier)
        #expect(breaker.admit(now: earlier) == .yes, "a withdrawn probe leaves its place to another")
        breaker.record(.works, since: earlier, now: earlier)
        #expect(breaker.state == .closed)
    }

    @Test("opens when many calls get no answer, before they time out")
    func silence() {
        var breaker = CircuitBreaker()
        for _ in 0..<32 { #expect(breaker.admit(now: Self.start) == .yes) }
        #expect(breaker.admit(now: Self.start + .seconds(12)) == .yes)
        #expect(breaker.admit(now: Self.start + .seconds(13)) != .yes)
        #expect(breaker.inFlight == 33)
    }

    @Test("one call that hangs does not make a later burst silent")
    func hangingCall() {
        var breaker = CircuitBreaker()
        #expect(breaker.admit(now: Self.start) == .yes)
        let burst = Self.start + .seconds(20)
        for _ in 0..<100 { #expect(breaker.admit(now: burst) == .yes) }
        #expect(breaker.admit(now: burst + .seconds(13)) != .yes)
    }

    @Test("a trickle of calls that all hang opens it before they time out")
    func trickle() {
        var breaker = CircuitBreaker()
        for second in stride(from: 0, to: 24, by: 3) {
            #expect(breaker.admit(now: Self.start + .seconds(second), limit: 8) == .yes)
        }
        let end = Self.start + .seconds(25)
        #expect(breaker.admit(now: Self.start + .seconds(24), limit: 8) == .no(until: end))
    }

    @Test("an idle breaker shows as probing, then closed")
    func idle() {
        var breaker = CircuitBreaker()
        #expect(breaker.state(at: Self.start) == .closed)
        #expect(!breaker.isInUse(at: Self.start))
        Self.call(&breaker, Array(repeating: .fails, count: 10))
        let end = Self.start + .seconds(1)
        #expect(breaker.state(at: Self.start) == .open(until: end))
        #expect(breaker.state(at: end) == .probing)
        // The second look shows a pause shorter than the interval between looks; the third does
        // not.
        #expect(breaker.state(at: end + .seconds(4), since: Self.start) == .open(until: end))
        #expect(breaker.state(at: end + .seconds(9), since: end + .seconds(4)) == .probing)
        #expect(breaker.state(at: end + .seconds(599)) == .probing)
        #expect(breaker.state(at: end + .seconds(600)) == .closed)
        // Later calls still begin with two probes.
        let later = end + .seconds(3_600)
        #expect(breaker.admit(now: later) == .yes)
        #expect(breaker.admit(now: later) == .yes)
        #expect(breaker.admit(now: later) != .yes)
        #expect(breaker.state(at: later + .seconds(3_600)) == .probing, "calls are in flight")
        breaker.record(.misconfigured, since: later, now: later)
        breaker.record(.slowDown(.seconds(7_200)), since: later, now: later)
        #expect(breaker.state(at: later + .seconds(7_199)) == .open(until: later + .seconds(7_200)))
    }

    @Test("a withdrawn call is not in flight")
    func withdrawn() {
        var breaker = CircuitBreaker()
        #expect(breaker.admit(now: Self.start) == .yes)
        breaker.withdraw()
        #expect(breaker.inFlight == 0)
    }
}
