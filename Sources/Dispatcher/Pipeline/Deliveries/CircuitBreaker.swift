// Carillon · CircuitBreaker.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Whether an app's provider is worth a call: opens when calls fail, and lets single ones probe whether it is back.
///
/// Pure: time comes in, decisions go out.
struct CircuitBreaker: Sendable {
    enum State: Sendable, Equatable {
        case closed
        /// No calls until then.
        case open(until: Timestamp)
        /// A few calls find out.
        case probing
    }

    enum Admission: Sendable, Equatable {
        case yes
        case no(until: Timestamp)
    }

    /// What a call says about the provider as a whole.
    enum Verdict: Sendable, Equatable {
        /// It answers, whatever it says about the one message.
        case works
        /// It gave no answer, or said that it is out of order.
        case fails
        /// It does not accept our configuration.
        case misconfigured
        /// It asks everything of the app's account to wait.
        case slowDown(Duration)
    }

    /// What is counted together.
    private static let window: Duration = .seconds(10)
    /// Fewer failures say nothing.
    private static let leastFailures = 10
    private static let shortestPause: Duration = .seconds(1)
    private static let longestPause: Duration = .seconds(30)
    /// Nobody mends a configuration within seconds.
    private static let configurationPause: Duration = .seconds(60)
    private static let probes = 2
    /// So many calls that have no answer for so long are a failure already.
    private static let silentCalls = 32
    private static let silence: Duration = .seconds(12)
    /// So long a call waits for a place, the shorter one where an answer may make room at any moment.
    private static let crowdedPause: Duration = .milliseconds(500)
    private static let openingPause: Duration = .milliseconds(100)
    /// So long after its last work nothing that is known of a provider counts any more.
    static let memory: Duration = .seconds(600)

    private(set) var state = State.closed
    /// Calls under way.
    private(set) var inFlight = 0
    private var windowStart = Timestamp(microseconds: 0)
    private var failures = 0
    private var successes = 0
    /// How often it opened without a success in between.
    private var openings = 0
    private var probing = 0
    /// When it answered last, or the first of the calls under way began.
    private var heardAt: Timestamp?
    private var answeredAt: Timestamp?
    private var allowance = CallAllowance()
    /// When it opened last.
    private var openedAt: Timestamp?
    /// When somebody wanted to call last.
    private var wantedAt: Timestamp?
    /// Successes of the last one or two spans of ``memory``.
    private var worth = (now: 0, before: 0)
    private var worthStart = Timestamp(microseconds: 0)

    /// Whether a call may be made now; one that may is under way from now on.
    mutating func admit(now: Timestamp) -> Admission {
        if let until = self.pauseEnd(now: now, room: .max) { return .no(until: until) }
        return self.begin(now: now)
    }

    /// The same where others share the places for calls.
    ///
    /// - Parameter strangers: how many calls are under way of those that have answered nothing lately.
    mutating func admit(now: Timestamp, within bounds: CallAllowance.Bounds, strangers: inout Int) -> Admission {
        let isKnown = self.isKnown(at: now)
        let room = self.allowance.room(
            isKnown: isKnown, inFlight: self.inFlight, bounds, strangers: &strangers)
        // Silence first: one that hangs has no room either.
        if let until = self.pauseEnd(now: now, room: room) { return .no(until: until) }
        if self.state == .closed, self.inFlight >= room {
            self.allowance.want(bounds)
            return .no(until: now + (room < bounds.most ? Self.openingPause : Self.crowdedPause))
        }
        if !isKnown, strangers >= bounds.strangers { return .no(until: now + Self.crowdedPause) }
        let admission = self.begin(now: now)
        if !isKnown, admission == .yes { self.allowance.begin(strangers: &strangers) }
        return admission
    }

    /// Gives the place of a call that has ended, or was not made, back to those that share them.
    mutating func giveBack(isAnswered: Bool, _ bounds: CallAllowance.Bounds, strangers: inout Int) {
        self.allowance.end(isAnswered: isAnswered, bounds, strangers: &strangers)
    }

    /// Whether it has answered of late, and does not hang now.
    private func isKnown(at now: Timestamp) -> Bool {
        guard let answeredAt, now - answeredAt < Self.memory else { return false }
        return self.inFlight == 0 || self.heardAt.map { now - $0 <= Self.silence } ?? true
    }

    /// Until when no calls are made; nil if some are.
    ///
    /// - Parameter room: how many may be under way; if that is few, their silence is enough.
    private mutating func pauseEnd(now: Timestamp, room: Int) -> Timestamp? {
        self.wantedAt = now
        if case .open(let until) = self.state {
            guard until <= now else { return until }
            self.state = .probing
            self.probing = 0
        }
        if self.state == .closed, self.inFlight >= min(Self.silentCalls, room), let heardAt,
            now - heardAt > Self.silence
        {
            self.open(now: now)
            if case .open(let until) = self.state { return until }
        }
        return nil
    }

    private mutating func begin(now: Timestamp) -> Admission {
        if self.state == .probing {
            guard self.probing < Self.probes else { return .no(until: now + Self.shortestPause) }
            self.probing += 1
        }
        if self.inFlight == 0 { self.heardAt = now }
        self.inFlight += 1
        return .yes
    }

    /// Notes what came of a call that was admitted.
    ///
    /// - Parameter start: when it was admitted; nil for lately. What began before it opened probes nothing, and its failure
    ///   is one of those that opened it.
    mutating func note(_ verdict: Verdict, since start: Timestamp? = nil, now: Timestamp) {
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
        switch verdict {
        case .works:
            self.heardAt = now
            self.answeredAt = now
            self.successes += 1
            self.countWorth(now)
            guard self.state == .probing else { return }
            self.state = .closed
            self.openings = 0
            self.failures = 0
        case .fails:
            self.failures += 1
            let isMostly = self.failures >= Self.leastFailures && self.failures >= self.successes
            if self.state == .probing || self.state == .closed && isMostly { self.open(now: now) }
        case .misconfigured:
            self.heardAt = now
            self.answeredAt = now
            self.pause(until: now + Self.configurationPause, now: now)
        case .slowDown(let duration):
            self.heardAt = now
            self.answeredAt = now
            self.pause(until: now + duration, now: now)
        }
    }

    /// Opens until a moment that another call was given, by whichever app or dispatcher; a later one of its own stays.
    ///
    /// - Returns: whether calls were not held back before.
    mutating func hold(until moment: Timestamp, now: Timestamp) -> Bool {
        guard moment > now else { return false }
        let wasOpen = self.isOpen(at: now)
        self.pause(until: moment, now: now)
        return !wasOpen
    }

    /// Ends a pause before its time, so that a few calls find out; one until later has another reason and stays.
    ///
    /// - Returns: whether calls were held back until now.
    mutating func lift(until moment: Timestamp, now: Timestamp) -> Bool {
        guard case .open(let until) = self.state, until > now, until <= moment else { return false }
        self.state = .probing
        self.probing = 0
        return true
    }

    /// Whether calls are held back at a moment.
    func isOpen(at moment: Timestamp) -> Bool {
        guard case .open(let until) = self.state else { return false }
        return until > moment
    }

    /// How it stands at a moment, for those who look on: one whose pause is over waits for a call to find out, and what nobody
    /// has wanted for long is not told to be out of use.
    ///
    /// - Parameter last: when they looked last; a pause that has ended since is shown this once, as it may be shorter than the
    ///   time between two looks.
    func state(at moment: Timestamp, since last: Timestamp? = nil) -> State {
        if !self.isInUse(at: moment) { return .closed }
        if case .open(let until) = self.state, until <= last ?? moment { return .probing }
        return self.state
    }

    /// Whether there is or lately was work for it, or it is to be left alone for longer than that.
    func isInUse(at moment: Timestamp) -> Bool {
        if self.inFlight > 0 || self.isOpen(at: moment) { return true }
        var last = self.wantedAt
        if case .open(let until) = self.state { last = max(last ?? until, until) }
        return last.map { moment - $0 < Self.memory } ?? false
    }

    /// How many calls it has answered of late, as far as it was in use: while it is open that stays as it was.
    var answered: Int { self.worth.now + self.worth.before }

    private mutating func countWorth(_ now: Timestamp) {
        let elapsed = now - self.worthStart
        if elapsed >= Self.memory {
            self.worth = (now: 0, before: elapsed < Self.memory * 2 ? self.worth.now : 0)
            self.worthStart = now
        }
        self.worth.now += 1
    }

    /// A call that was admitted was not made.
    ///
    /// - Parameter start: when it was admitted; nil for lately. What began before it opened is no probe.
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
