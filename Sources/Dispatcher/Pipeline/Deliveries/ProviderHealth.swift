// Carillon · ProviderHealth.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Metrics
import Operations
import Providers
import Storage
import Synchronization

/// The circuit breakers of one provider: one per app, or per app and push service where devices
/// name services.
final class ProviderHealth: Sendable {
    /// The most breakers kept: devices name services, so idle ones that work are dropped.
    private static let capacity = 1_000
    /// The most push services whose held-back deliveries have sets of their own, because each look
    /// for due deliveries reads every set.
    static let mostServiceSets = 64

    /// The limits of calls in flight where apps or services share a provider.
    ///
    /// One that hangs would otherwise use up the limit until its calls time out.
    private struct Limits {
        /// The limit of all apps and services together.
        let all: Int
        /// The limit of an app or service that answers, without ``reserve(_:)``.
        let answering: Int
        /// The limit of one that does not answer (``CircuitBreaker/isSilent(at:)``).
        let silent: Int
        /// The common limit of all that do not answer.
        let allSilent: Int

        init(calls: Int) {
            self.all = calls
            self.answering = calls * 3 / 4
            self.silent = min(self.answering, max(8, calls / 64))
            self.allSilent = max(self.silent, calls / 10)
        }

        /// Returns how many more calls an app or service that answers may have for an urgent lane:
        /// the permits that ``LanePermits`` reserves.
        func reserve(_ lane: Lane) -> Int { (Lane.bulk.rank - lane.rank) * max(1, self.all / 16) }
    }

    private struct Entry {
        var breaker = CircuitBreaker()
        /// Whether the held-back deliveries of this push service have a set of their own.
        var hasOwnSet = false
        /// This breaker's share of ``Breakers/silentCalls``.
        var silentCalls = 0
    }

    private struct Breakers {
        let limits: Limits
        var all: [BreakerScope: Entry] = [:]
        /// The calls in flight to apps and services that do not answer.
        var silentCalls = 0

        mutating func admit(_ scope: BreakerScope, _ lane: Lane, isShared: Bool, now: Timestamp)
            -> (CircuitBreaker.Admission, before: CircuitBreaker.State, after: CircuitBreaker.State)
        {
            if self.all.count >= ProviderHealth.capacity, self.all[scope] == nil {
                self.all = self.all.filter { $0.value.breaker.inFlight > 0 || $0.value.breaker.isOpen(at: now) }
            }
            var entry = self.all[scope] ?? Entry()
            let before = entry.breaker.state
            let admission: CircuitBreaker.Admission
            if !isShared {
                admission = entry.breaker.admit(now: now, limit: self.limits.all, extra: .max)
            } else if entry.breaker.isSilent(at: now) {
                self.setSilentCalls(entry.breaker.inFlight, of: &entry)
                admission = entry.breaker.admit(
                    now: now, limit: self.limits.silent, isCrowded: self.silentCalls >= self.limits.allSilent)
                self.setSilentCalls(entry.breaker.inFlight, of: &entry)
            } else {
                admission = entry.breaker.admit(
                    now: now, limit: self.limits.answering, extra: self.limits.reserve(lane))
            }
            self.all[scope] = entry
            return (admission, before, entry.breaker.state)
        }

        mutating func record(
            _ verdict: CircuitBreaker.Verdict, _ scope: BreakerScope, since start: Timestamp?, now: Timestamp
        ) -> (before: CircuitBreaker.State, after: CircuitBreaker.State) {
            var entry = self.all[scope] ?? Entry()
            let before = entry.breaker.state
            entry.breaker.record(verdict, since: start, now: now)
            self.setSilentCalls(verdict == .fails ? max(0, entry.silentCalls - 1) : 0, of: &entry)
            if entry.breaker.state == .closed { entry.hasOwnSet = false }
            self.all[scope] = entry
            return (before, entry.breaker.state)
        }

        mutating func withdraw(_ scope: BreakerScope, since start: Timestamp?) {
            guard var entry = self.all[scope] else { return }
            entry.breaker.withdraw(since: start)
            self.setSilentCalls(max(0, entry.silentCalls - 1), of: &entry)
            self.all[scope] = entry
        }

        /// Gives an unavailable service a set of its own, unless too many have one.
        ///
        /// - Returns: whether the service has one.
        mutating func assignOwnSet(to scope: BreakerScope, now: Timestamp) -> Bool {
            guard let entry = self.all[scope], entry.breaker.state != .closed else { return false }
            guard !entry.hasOwnSet else { return true }
            let count = self.all.values.count { $0.hasOwnSet && $0.breaker.isInUse(at: now) }
            guard count < ProviderHealth.mostServiceSets else { return false }
            self.all[scope]?.hasOwnSet = true
            return true
        }

        private mutating func setSilentCalls(_ count: Int, of entry: inout Entry) {
            self.silentCalls += count - entry.silentCalls
            entry.silentCalls = count
        }
    }

    private let provider: Provider
    private let logger: Logger
    private let breakers: Mutex<Breakers>
    /// Limits the reports about a configuration that is rejected for some devices.
    ///
    /// Each push service has its own limit, because a user may register one that always rejects it,
    /// which must not hide another. A thousand of them in a minute would.
    private let reports = LogLimit<BreakerScope>(every: .seconds(60))

    /// - Parameter calls: the most calls to the provider in flight.
    init(_ provider: Provider, calls: Int, logger: Logger) {
        self.provider = provider
        self.logger = logger
        self.breakers = Mutex(Breakers(limits: Limits(calls: calls)))
    }

    /// Admits a call, or says when to ask again; logs when silence opens the breaker.
    ///
    /// An admitted call must be recorded or withdrawn.
    ///
    /// - Parameters:
    ///   - lane: urgent lanes have reserved permits.
    ///   - isShared: whether other apps use the provider.
    func admit(_ scope: BreakerScope, lane: Lane = .bulk, isShared: Bool, now: Timestamp) -> CircuitBreaker.Admission {
        let (admission, before, after) = self.breakers.withLock {
            $0.admit(scope, lane, isShared: isShared || scope.service != nil, now: now)
        }
        if before == .closed, case .open(let until) = after {
            self.logOutage(scope, until: until, answer: "none")
        }
        return admission
    }

    /// Returns the scope in whose set a delivery that was not admitted waits: that of its push
    /// service while the service is unavailable, otherwise that of the app.
    ///
    /// Beyond ``mostServiceSets`` services, it is that of the app too.
    func heldScope(_ scope: BreakerScope, now: Timestamp) -> BreakerScope {
        guard scope.service != nil else { return scope }
        return self.breakers.withLock { $0.assignOwnSet(to: scope, now: now) } ? scope : BreakerScope(scope.app)
    }

    /// Returns the best state of these apps, or of their push service.
    ///
    /// An open breaker that may probe counts as probing, however long ago it opened.
    func state(of apps: [String], service: String? = nil, now: Timestamp) -> CircuitBreaker.State {
        self.breakers.withLock { breakers in
            var earliest: Timestamp?
            var isProbing = false
            for app in apps {
                let breaker = breakers.all[BreakerScope(app, service: service)]?.breaker
                switch breaker?.state {
                case nil, .closed: return .closed
                case .open(let until) where breaker?.isOpen(at: now) == true: earliest = min(earliest ?? until, until)
                case .open, .probing: isProbing = true
                }
            }
            guard let earliest, !isProbing else { return isProbing ? .probing : .closed }
            return .open(until: earliest)
        }
    }

    /// Whether a call that was admitted at `start` must wait, because its breaker has opened since.
    func isPaused(_ scope: BreakerScope, since start: Timestamp) -> Bool {
        self.breakers.withLock { $0.all[scope]?.breaker.isPaused(since: start) ?? false }
    }

    /// Ends an admitted call that was not made.
    ///
    /// - Parameter start: when it was admitted; nil for just now.
    func withdraw(_ scope: BreakerScope, since start: Timestamp? = nil) {
        self.breakers.withLock { $0.withdraw(scope, since: start) }
    }

    /// Records the reply to an admitted call, and logs when that opens or closes a breaker.
    ///
    /// A configuration that is rejected for some devices opens no breaker; it is logged once a
    /// minute for each scope.
    ///
    /// - Parameter start: when the call was admitted.
    func record(_ reply: ProviderReply, _ scope: BreakerScope, since start: Timestamp? = nil, now: Timestamp) {
        guard let verdict = CircuitBreaker.Verdict(reply) else { return self.withdraw(scope, since: start) }
        let (before, after) = self.breakers.withLock { $0.record(verdict, scope, since: start, now: now) }
        let isReported = reply.concernsConfigurationInPart && self.reports.isDue(for: scope, at: now)
        let hasChanged =
            switch (before, after) {
            // Calls that were in flight when it opened get the same answer, which moves the end a
            // little. An end 10 s later is news.
            case (.open(let until), .open(let later)) where until > now && later < until + .seconds(10): false
            default: before != after
            }
        guard hasChanged || isReported else { return }
        var metadata = self.metadata(scope)
        metadata["answer"] = "\(reply.summary)"
        if isReported {
            Self.misconfigured(self.provider, app: scope.app).increment()
            self.logger.error(
                "provider rejected the configuration for some devices; their deliveries retry",
                metadata: metadata.merging(["tries": "\(self.tries)"]) { $1 })
        }
        guard hasChanged else { return }
        switch after {
        case .open(let until) where verdict == .misconfigured:
            Self.misconfigured(self.provider, app: scope.app).increment()
            self.logger.error(
                "provider rejected the credentials or settings; its deliveries wait, retrying every minute",
                metadata: metadata.merging(["until": "\(until.rfc3339)"]) { $1 })
        case .open(let until): self.logOutage(scope, until: until, answer: reply.summary)
        case .closed where before == .probing: self.logger.notice("provider available again", metadata: metadata)
        case .closed, .probing: break
        }
    }

    /// Opens the breakers of an account's apps until `moment`, because one of them was asked to
    /// pause, here or in another dispatcher.
    func hold(_ apps: [String], service: String? = nil, until moment: Timestamp, now: Timestamp) {
        for app in apps {
            let scope = BreakerScope(app, service: service)
            let isNew = self.breakers.withLock { $0.all[scope, default: Entry()].breaker.hold(until: moment, now: now) }
            guard isNew else { continue }
            self.logger.warning(
                "provider unavailable: it asked the account to pause; its deliveries wait",
                metadata: self.metadata(scope).merging(["until": "\(moment.rfc3339)"]) { $1 })
        }
    }

    /// Lets calls of an account's apps probe, because its pause until `moment` was lifted.
    func lift(_ apps: [String], service: String? = nil, until moment: Timestamp, now: Timestamp) {
        for app in apps {
            let scope = BreakerScope(app, service: service)
            let isNew = self.breakers.withLock { $0.all[scope]?.breaker.lift(until: moment, now: now) ?? false }
            guard isNew else { continue }
            self.logger.notice(
                "pause lifted; probing the provider",
                metadata: self.metadata(scope).merging(["until": "\(moment.rfc3339)"]) { $1 })
        }
    }

    private func logOutage(_ scope: BreakerScope, until: Timestamp, answer: String) {
        self.logger.warning(
            "provider unavailable; its deliveries wait",
            metadata: self.metadata(scope).merging(["until": "\(until.rfc3339)", "answer": "\(answer)"]) { $1 })
    }

    private func metadata(_ scope: BreakerScope) -> Logger.Metadata {
        var metadata: Logger.Metadata = ["provider": "\(self.provider.rawValue)", "app": "\(scope.app)"]
        if let service = scope.service { metadata["service"] = "\(service)" }
        return metadata
    }

    /// The tries of each lane, for the log.
    private var tries: String {
        Lane.allCases.map { lane in
            let policy = RetryPolicy.of(lane, self.provider)
            let uncounted = policy.endsByExpiry ? "any number for a day, later " : ""
            return "\(lane.rawValue) \(uncounted)\(policy.tries)"
        }.joined(separator: ", ")
    }

    /// Returns the counter of an app's rejected configuration.
    static func misconfigured(_ provider: Provider, app: String) -> Counter {
        Counter(
            label: "carillon.provider.misconfigured",
            dimensions: [("provider", provider.rawValue), ("app", app)]
        )
    }

    /// The state of a provider for one app, to show.
    struct Overview: Equatable {
        /// The best state of the app's breakers that are in use.
        var state: CircuitBreaker.State = .closed
        var inFlight = 0
        /// The number of push services whose breaker is open.
        var servicesOut = 0
    }

    /// Returns the state of the provider for each of these apps.
    ///
    /// - Parameter last: the time of the last look.
    func overviews(of apps: [String], now: Timestamp, since last: Timestamp? = nil) -> [String: Overview] {
        let known = self.breakers.withLock { breakers in
            Dictionary(grouping: breakers.all.filter { $0.value.breaker.isInUse(at: now) }) { $0.key.app }
        }
        var overviews: [String: Overview] = [:]
        for app in apps {
            var overview = Overview()
            var states: [CircuitBreaker.State] = []
            for (scope, entry) in known[app] ?? [] {
                let state = entry.breaker.state(at: now, since: last)
                states.append(state)
                overview.inFlight += entry.breaker.inFlight
                if case .open = state, scope.service != nil { overview.servicesOut += 1 }
            }
            overview.state = Self.best(of: states)
            overviews[app] = overview
        }
        return overviews
    }

    private static func best(of states: [CircuitBreaker.State]) -> CircuitBreaker.State {
        var best: CircuitBreaker.State?
        for state in states {
            switch (state, best) {
            case (.closed, _): return .closed
            case (.probing, _): best = .probing
            case (.open, nil): best = state
            case (.open(let until), .open(let other)) where until < other: best = state
            case (.open, _): break
            }
        }
        return best ?? .closed
    }

    /// The number of breakers kept.
    var count: Int { self.breakers.withLock { $0.all.count } }
}

extension CircuitBreaker.Verdict {
    /// Nil if the provider was not called.
    init?(_ reply: ProviderReply) {
        switch reply.result {
        case .answered(.accepted), .answered(.deadToken), .answered(.refused), .answered(.staleCredential):
            self = .works
        case .answered(.slowDown(_, let after)): self = .slowDown(min(after, AccountPauses.longest))
        case .answered(.configuration(_, concernsAll: true)), .noCredential: self = .misconfigured
        case .answered(.configuration), .answered(.retryDevice): self = .works
        case .answered(.retry), .unanswered: self = .fails
        case .unsendable, .noTurn, .fenced: return nil
        }
    }
}

extension ProviderReply {
    /// Whether our configuration is rejected for this device, but may be accepted for others.
    fileprivate var concernsConfigurationInPart: Bool {
        if case .answered(.configuration(_, concernsAll: false)) = self.result { true } else { false }
    }

    /// The answer in a word or two.
    var summary: String {
        switch self.result {
        case .answered(let answer): answer.reason ?? "accepted"
        case .unanswered(let reason, _), .noCredential(let reason), .unsendable(let reason): reason
        case .noTurn: "no_turn"
        case .fenced: "fenced"
        }
    }
}
