// Carillon · CircuitBreaker.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A circuit breaker: opens when calls fail, then lets two calls probe whether the provider is
/// back.
///
/// Pure: it takes the time as a parameter and does no I/O.
struct CircuitBreaker: Sendable {
    enum State: Sendable, Equatable {
        case closed
        /// No calls before `until`.
        case open(until: Timestamp)
        /// Two calls at a time, until one succeeds.
        case probing
    }

    enum Admission: Sendable, Equatable {
        case yes
        case no(until: Timestamp)
    }

    /// The meaning of a call's result for the provider as a whole.
    enum Verdict: Sendable, Equatable {
        /// It answers, even if it refuses the one message.
        case works
        /// No answer, or an answer such as 503.
        case fails
        /// It rejects our configuration.
        case misconfigured
        /// It asks the app's account to pause.
        case slowDown(Duration)
    }

    /// Failures and successes are counted per window.
    private static let window: Duration = .seconds(10)
    /// Fewer failures in a window do not open the breaker.
    private static let leastFailures = 10
    private static let shortestPause: Duration = .seconds(1)
    private static let longestPause: Duration = .seconds(30)
    /// An operator needs at least this long to fix a configuration.
    private static let configurationPause: Duration = .seconds(60)
    private static let probes = 2
    /// This many calls in flight open the breaker after ``silence`` without an answer, before they
    /// time out.
    private static let silentCalls = 32
    private static let silence: Duration = .seconds(12)
    /// How long a call waits when the limit of calls in flight is reached.
    private static let crowdedPause: Duration = .milliseconds(250)
    /// The clock has stepped back if it is further behind the latest time than this.
    private static let step: Duration = .seconds(5)
    /// An idle breaker forgets its state after this long.
    static let memory: Duration = .seconds(600)

    private(set) var state = State.closed
    private(set) var inFlight = 0
    private var windowStart = Timestamp(microseconds: 0)
    private var failures = 0
    private var successes = 0
    /// How often it opened since the last success.
    private var openings = 0
    private var probing = 0
    /// The start of the current silence: the last answer, or a later moment at which the calls in
    /// flight became one, or half of ``silentCalls``.
    private var heardAt: Timestamp?
    private var answeredAt: Timestamp?
    private var openedAt: Timestamp?
    /// The time of the last attempt to call.
    private var wantedAt: Timestamp?
    /// The latest time that a caller passed.
    private var latest = Timestamp(microseconds: 0)

    /// Admits a call, which is in flight from then on, or says when to ask again.
    ///
    /// - Parameters:
    ///   - limit: the most calls in flight. If it is lower than ``silentCalls``, that many silent
    ///     calls open the breaker.
    ///   - extra: how far beyond `limit` this call may go.
    ///   - isCrowded: whether other calls leave no room for this one.
    mutating func admit(now: Timestamp, limit: Int = .max, extra: Int = 0, isCrowded: Bool = false) -> Admission {
        // Silence first: a provider that hangs is at its limit too.
        if let until = self.pauseEnd(now: now, limit: limit) { return .no(until: until) }
        if isCrowded || self.state == .closed && self.inFlight - extra >= limit {
            return .no(until: now + Self.crowdedPause)
        }
        if self.state == .probing {
            guard self.probing < Self.probes else { return .no(until: now + Self.shortestPause) }
            self.probing += 1
            // A small step back of the clock would make the probe look older than the opening.
            if let openedAt, now <= openedAt { self.openedAt = now - .microseconds(1) }
        }
        self.inFlight += 1
        // Otherwise a few hanging calls would make the next burst look silent from its start.
        if self.inFlight == 1 || self.inFlight == min(Self.silentCalls, limit) / 2 { self.heardAt = now }
        return .yes
    }

    /// Whether the provider has not answered for ``memory``, or for ``silence`` with calls in
    /// flight.
    func isSilent(at now: Timestamp) -> Bool {
        guard let answeredAt, now - answeredAt < Self.memory else { return true }
        return self.inFlight > 0 && self.heardAt.map { now - $0 > Self.silence } ?? false
    }

    /// The end of the current pause; nil if calls may be made.
    private mutating func pauseEnd(now: Timestamp, limit: Int) -> Timestamp? {
        self.notice(now)
        self.wantedAt = now
        if case .open(let until) = self.state {
            guard until <= now else { return until }
            self.state = .probing
            self.probing = 0
        }
        if self.state == .closed, self.inFlight >= min(Self.silentCalls, limit), let heardAt,
            now - heardAt > Self.silence
        {
            self.open(now: now)
            if case .open(let until) = self.state { return until }
        }
        return nil
    }

    /// Records the result of an admitted call.
    ///
    /// - Parameter start: when it was admitted; nil for just now. A call that began before the
    ///   breaker opened is no probe, and its failure does not open it again.
    mutating func record(_ verdict: Verdict, since start: Timestamp? = nil, now: Timestamp) {
        self.notice(now)
        self.inFlight = max(0, self.inFlight - 1)
        if let start, let openedAt, start <= openedAt {
            switch verdict {
            case .works, .fails: return
            case .misconfigured, .slowDown: break
            }
        } else if self.state == .probing {
            self.probing = max(0, self.probing - 1)
        }
        if now - self.windowStart > Self.window {
            self.windowStart = now
            self.failures = 0
            self.successes = 0
        }
        if verdict != .fails {
            self.heardAt = now
            self.answeredAt = now
        }
        switch verdict {
        case .works:
            self.successes += 1
            guard self.state == .probing else { return }
            self.state = .closed
            self.openings = 0
            self.failures = 0
        case .fails:
            self.failures += 1
            let isMostly = self.failures >= Self.leastFailures && self.failures >= self.successes
            if self.state == .probing || self.state == .closed && isMostly { self.open(now: now) }
        case .misconfigured: self.pause(until: now + Self.configurationPause, now: now)
        case .slowDown(let duration): self.pause(until: now + duration, now: now)
        }
    }

    /// Opens the breaker until `moment`, unless it is open for longer already.
    ///
    /// - Returns: whether it was not open before.
    mutating func hold(until moment: Timestamp, now: Timestamp) -> Bool {
        self.notice(now)
        // An end further ahead was noted before the clock stepped back.
        guard moment > now, moment - now <= AccountPauses.longest + Self.step else { return false }
        let wasOpen = self.isOpen(at: now)
        self.pause(until: moment, now: now)
        return !wasOpen
    }

    /// Ends a pause that lasts until `moment` or less, so that calls probe; a longer one has
    /// another reason and stays.
    ///
    /// - Returns: whether it was open until now.
    mutating func lift(until moment: Timestamp, now: Timestamp) -> Bool {
        guard case .open(let until) = self.state, until > now, until <= moment else { return false }
        self.state = .probing
        self.probing = 0
        return true
    }

    /// Whether it opened after a call was admitted at `start`, and has not closed since.
    func isPaused(since start: Timestamp) -> Bool {
        switch self.state {
        case .closed: false
        case .open: true
        // Probes were admitted after it opened.
        case .probing: self.openedAt.map { start < $0 } ?? false
        }
    }

    func isOpen(at moment: Timestamp) -> Bool {
        guard case .open(let until) = self.state else { return false }
        return until > moment && !self.hasSteppedBack(to: moment)
    }

    /// Whether the clock stepped back; a pause would last longer by the step.
    private func hasSteppedBack(to now: Timestamp) -> Bool { self.latest - now > Self.step }

    /// Records the time, and starts over if the clock has stepped back.
    private mutating func notice(_ now: Timestamp) {
        guard self.hasSteppedBack(to: now) else {
            self.latest = max(self.latest, now)
            return
        }
        let inFlight = self.inFlight
        self = CircuitBreaker()
        self.inFlight = inFlight
        self.heardAt = now
        self.answeredAt = now
        self.latest = now
    }

    /// The state to show: probing once a pause is over, closed once nothing was called for
    /// ``memory``.
    ///
    /// - Parameter last: the time of the last look. A pause that ended since then is shown once, so
    ///   that one shorter than the interval between looks is not missed.
    func state(at moment: Timestamp, since last: Timestamp? = nil) -> State {
        if !self.isInUse(at: moment) || self.hasSteppedBack(to: moment) { return .closed }
        if case .open(let until) = self.state, until <= last ?? moment { return .probing }
        return self.state
    }

    /// Whether calls are in flight, were wanted within ``memory``, or a pause is not over.
    func isInUse(at moment: Timestamp) -> Bool {
        if self.inFlight > 0 || self.isOpen(at: moment) { return true }
        var last = self.wantedAt
        if case .open(let until) = self.state { last = max(last ?? until, until) }
        return last.map { moment - $0 < Self.memory } ?? false
    }

    /// Ends an admitted call that was not made.
    ///
    /// - Parameter start: when it was admitted; nil for just now.
    mutating func withdraw(since start: Timestamp? = nil) {
        self.inFlight = max(0, self.inFlight - 1)
        if let start, let openedAt, start <= openedAt { return }
        if self.state == .probing { self.probing = max(0, self.probing - 1) }
    }

    private mutating func open(now: Timestamp) {
        let pause = min(Self.longestPause, Self.shortestPause * (1 << min(self.openings, 10)))
        self.openings += 1
        self.pause(until: now + pause, now: now)
    }

    private mutating func pause(until moment: Timestamp, now: Timestamp) {
        if case .open(let until) = self.state, until >= moment { return }
        self.state = .open(until: moment)
        self.openedAt = now
        self.failures = 0
        self.successes = 0
    }
}
