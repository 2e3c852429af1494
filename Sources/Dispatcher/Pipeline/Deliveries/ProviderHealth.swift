// Carillon · ProviderHealth.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Metrics
import Providers
import Synchronization

/// One provider's breakers, for each app and each service that its devices name, for all that this process sends.
final class ProviderHealth: Sendable {
    /// How many breakers are kept: services are what devices say, and those that work and are not in use are forgotten.
    private static let capacity = 1_000
    /// How long nothing more is said of an app whose configuration is not accepted for single devices.
    private static let silence: Duration = .seconds(60)

    /// Whether there is any use in looking at a provider's work.
    enum Standing: Equatable {
        case inUse
        /// A few calls find out whether it is back.
        case probing
        /// Not before then.
        case outOfUse(until: Timestamp)
    }

    private struct Scope: Hashable {
        let app: String
        let service: String?
    }

    private struct Ways {
        var breakers: [Scope: CircuitBreaker] = [:]
        /// The calls under way of those that have answered nothing lately.
        var strangers = 0
    }

    private let provider: Provider
    /// What ways go by that share the provider's places.
    private let bounds: CallAllowance.Bounds
    private let logger: Logger
    private let ways = Mutex(Ways())
    /// When it was last said of an app that its configuration is not accepted for single devices.
    private let saidAt = Mutex<[String: Timestamp]>([:])

    /// - Parameter calls: how many to the provider are under way at most.
    init(_ provider: Provider, calls: Int, logger: Logger) {
        self.provider = provider
        self.bounds = CallAllowance.Bounds(calls: calls)
        self.logger = logger
    }

    /// Whether a call for an app may be made; one that may must be noted or withdrawn.
    ///
    /// - Parameter isShared: whether other apps use the provider, which those that hang must leave room.
    func admit(_ app: String, service: String? = nil, isShared: Bool, now: Timestamp) -> CircuitBreaker.Admission {
        let scope = Scope(app: app, service: service)
        return self.ways.withLock { ways in
            if ways.breakers.count >= Self.capacity, ways.breakers[scope] == nil {
                ways.breakers = ways.breakers.filter { $0.value.inFlight > 0 || $0.value.isOpen(at: now) }
            }
            guard isShared || service != nil else {
                return ways.breakers[scope, default: CircuitBreaker()].admit(now: now)
            }
            return ways.breakers[scope, default: CircuitBreaker()]
                .admit(now: now, within: self.bounds, strangers: &ways.strangers)
        }
    }

    /// How a provider stands that these apps use: as the best of their breakers.
    func standing(of apps: [String], now: Timestamp) -> Standing {
        self.ways.withLock { ways in
            var earliest: Timestamp?
            var isProbing = false
            for app in apps {
                switch ways.breakers[Scope(app: app, service: nil)]?.state {
                case nil, .closed: return .inUse
                case .open(let until) where until > now: earliest = min(earliest ?? until, until)
                case .open, .probing: isProbing = true
                }
            }
            guard let earliest, !isProbing else { return isProbing ? .probing : .inUse }
            return .outOfUse(until: earliest)
        }
    }

    /// Gives the place of a call back that was not made.
    ///
    /// - Parameter start: when the call was admitted; nil for lately.
    func withdraw(_ app: String, service: String? = nil, since start: Timestamp? = nil) {
        let scope = Scope(app: app, service: service)
        self.ways.withLock { ways in
            ways.breakers[scope]?.withdraw(since: start)
            ways.breakers[scope]?.giveBack(isAnswered: false, self.bounds, strangers: &ways.strangers)
        }
    }

    /// Notes what came of a call, or that it was not made; tells once when an app's provider goes out of use or comes back,
    /// and once a minute when it does not accept our configuration for single devices, which puts it out of use for nobody.
    ///
    /// - Parameter start: when the call was admitted.
    func note(
        _ reply: ProviderReply, app: String, service: String? = nil, since start: Timestamp? = nil, now: Timestamp
    ) {
        guard let verdict = CircuitBreaker.Verdict(reply) else {
            return self.withdraw(app, service: service, since: start)
        }
        let scope = Scope(app: app, service: service)
        let (before, after) = self.ways.withLock { ways in
            var breaker = ways.breakers[scope, default: CircuitBreaker()]
            let before = breaker.state
            breaker.note(verdict, since: start, now: now)
            breaker.giveBack(isAnswered: verdict != .fails, self.bounds, strangers: &ways.strangers)
            ways.breakers[scope] = breaker
            return (before, breaker.state)
        }
        let isToldApart = reply.concernsConfigurationInPart && self.isTimeToSay(app, now: now)
        guard before != after || isToldApart else { return }
        var metadata: Logger.Metadata = [
            "provider": "\(self.provider.rawValue)", "app": "\(app)", "answer": "\(reply.summary)",
        ]
        if let service { metadata["service"] = "\(service)" }
        if isToldApart {
            self.countMisconfigured(app)
            self.logger.error(
                "provider does not accept our configuration for some devices; their work is tried as often as is beside",
                metadata: metadata.merging(["tries": "\(self.tries)"]) { $1 })
        }
        guard before != after else { return }
        switch after {
        case .open(let until) where verdict == .misconfigured:
            self.countMisconfigured(app)
            self.logger.error(
                "provider does not accept our configuration; its work is kept",
                metadata: metadata.merging(["until": "\(until.rfc3339)"]) { $1 })
        case .open(let until):
            self.logger.warning(
                "provider is out of use; its work is kept",
                metadata: metadata.merging(["until": "\(until.rfc3339)"]) { $1 })
        case .closed where before == .probing: self.logger.notice("provider is back", metadata: metadata)
        case .closed, .probing: break
        }
    }

    /// Lets calls for apps wait until a moment that one of their account was given, here or in another dispatcher; tells once
    /// when that puts an app's provider out of use.
    func hold(_ apps: [String], service: String? = nil, until moment: Timestamp, now: Timestamp) {
        for app in apps {
            let isNews = self.ways.withLock {
                $0.breakers[Scope(app: app, service: service), default: CircuitBreaker()].hold(until: moment, now: now)
            }
            guard isNews else { continue }
            var metadata: Logger.Metadata = [
                "provider": "\(self.provider.rawValue)", "app": "\(app)", "until": "\(moment.rfc3339)",
            ]
            if let service { metadata["service"] = "\(service)" }
            self.logger.warning(
                "provider is out of use, as it asked another of the account to wait; its work is kept",
                metadata: metadata)
        }
    }

    /// How often work is tried, by its lane, for whoever reads the log.
    private var tries: String {
        Lane.allCases.map { lane in
            let policy = RetryPolicy.of(lane, self.provider)
            return "\(lane.rawValue) " + (policy.endsByExpiry ? "until it expires, else " : "") + "\(policy.tries)"
        }.joined(separator: ", ")
    }

    /// Lets calls for apps find out how the provider is, as a pause of their account until a moment was lifted.
    func lift(_ apps: [String], service: String? = nil, until moment: Timestamp, now: Timestamp) {
        for app in apps {
            let isNews = self.ways.withLock {
                $0.breakers[Scope(app: app, service: service)]?.lift(until: moment, now: now) ?? false
            }
            guard isNews else { continue }
            var metadata: Logger.Metadata = [
                "provider": "\(self.provider.rawValue)", "app": "\(app)", "until": "\(moment.rfc3339)",
            ]
            if let service { metadata["service"] = "\(service)" }
            self.logger.notice("a provider's pause was lifted", metadata: metadata)
        }
    }

    private func isTimeToSay(_ app: String, now: Timestamp) -> Bool {
        self.saidAt.withLock { saidAt in
            // Calls end in any order, so that a moment may be a little earlier than the last.
            if let last = saidAt[app], max(now - last, last - now) < Self.silence { return false }
            saidAt[app] = now
            return true
        }
    }

    private func countMisconfigured(_ app: String) {
        Counter(
            label: "carillon.provider.misconfigured",
            dimensions: [("provider", self.provider.rawValue), ("app", app)]
        ).increment()
    }

    /// How the ways to the provider stand for one app.
    struct Overview: Equatable {
        var state: CircuitBreaker.State = .closed
        /// Calls under way.
        var inFlight = 0
        /// How many of several services are out of use.
        var servicesOut = 0
    }

    /// How the provider stands for each of these apps.
    ///
    /// Where devices name services, those in use count by what they have answered of late: one user's dead service does not put
    /// the app out of use, one that most of the messages go to does. Where none has answered anything each counts the same.
    ///
    /// - Parameter last: when that was asked last.
    func overviews(of apps: [String], now: Timestamp, since last: Timestamp? = nil) -> [String: Overview] {
        let known = self.ways.withLock { ways in
            Dictionary(grouping: ways.breakers.filter { $0.value.isInUse(at: now) }) { $0.key.app }
        }
        var overviews: [String: Overview] = [:]
        for app in apps {
            var overview = Overview()
            let ways = known[app] ?? []
            let isAnyKnown = ways.contains { $0.value.answered > 0 }
            var (all, out, probing) = (0, 0, 0)
            var earliest: Timestamp?
            for (scope, breaker) in ways {
                let weight = isAnyKnown ? breaker.answered : 1
                all += weight
                overview.inFlight += breaker.inFlight
                switch breaker.state(at: now, since: last) {
                case .closed: break
                case .probing: probing += weight
                case .open(let until):
                    out += weight
                    if scope.service != nil { overview.servicesOut += 1 }
                    if weight > 0 { earliest = min(earliest ?? until, until) }
                }
            }
            if let earliest, out * 2 > all {
                overview.state = .open(until: earliest)
            } else if (out + probing) * 2 > all {
                overview.state = .probing
            }
            overviews[app] = overview
        }
        return overviews
    }

    /// How many breakers are remembered.
    var count: Int { self.ways.withLock { $0.breakers.count } }
}

extension CircuitBreaker.Verdict {
    /// Nil if the provider was not called, so that nothing is known of it.
    init?(_ reply: ProviderReply) {
        switch reply.result {
        case .answered(.accepted), .answered(.deadToken), .answered(.refused), .answered(.staleCredential):
            self = .works
        case .answered(.slowDown(_, let after)): self = .slowDown(min(after, AccountPauses.longest))
        case .answered(.configuration(_, concernsAll: true)), .noCredential: self = .misconfigured
        case .answered(.configuration), .answered(.retryDevice): self = .works
        case .answered(.retry), .unanswered: self = .fails
        case .unsendable, .noTurn: return nil
        }
    }
}

extension ProviderReply {
    /// Whether our configuration is not accepted for this device, while it may be for others.
    fileprivate var concernsConfigurationInPart: Bool {
        if case .answered(.configuration(_, concernsAll: false)) = self.result { true } else { false }
    }

    /// The answer in a word or two.
    var summary: String {
        switch self.result {
        case .answered(let answer): answer.reason ?? "accepted"
        case .unanswered(let reason, _), .noCredential(let reason), .unsendable(let reason): reason
        case .noTurn: "no_turn"
        }
    }
}
