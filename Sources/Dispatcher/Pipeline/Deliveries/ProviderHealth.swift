// Carillon · ProviderHealth.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Logging
import Model
import Providers
import Synchronization

/// One provider's breakers, an app each, for all that this process sends through it.
final class ProviderHealth: Sendable {
    /// The most calls of one app that are under way while others share the provider.
    private static let share = 384

    private let provider: Provider
    private let logger: Logger
    private let breakers = Mutex<[String: CircuitBreaker]>([:])

    init(_ provider: Provider, logger: Logger) {
        self.provider = provider
        self.logger = logger
    }

    /// Whether a call for an app may be made; one that may must be noted or withdrawn.
    ///
    /// - Parameter isShared: whether other apps use the provider, which one that hangs must leave room.
    func admit(_ app: String, isShared: Bool, now: Timestamp) -> CircuitBreaker.Admission {
        self.breakers.withLock { breakers in
            if isShared, let breaker = breakers[app], breaker.inFlight >= Self.share {
                return .no(until: now + .milliseconds(500))
            }
            return breakers[app, default: CircuitBreaker()].admit(now: now)
        }
    }

    func withdraw(_ app: String) {
        self.breakers.withLock { $0[app]?.withdraw() }
    }

    /// Notes what came of a call; tells once when an app's provider goes out of use or comes back.
    func note(_ reply: ProviderReply, app: String, now: Timestamp) {
        let verdict = CircuitBreaker.Verdict(reply)
        let (before, after) = self.breakers.withLock { breakers in
            var breaker = breakers[app, default: CircuitBreaker()]
            let before = breaker.state
            breaker.note(verdict, now: now)
            breakers[app] = breaker
            return (before, breaker.state)
        }
        guard before != after else { return }
        let metadata: Logger.Metadata = [
            "provider": "\(self.provider.rawValue)", "app": "\(app)", "answer": "\(reply.summary)",
        ]
        switch after {
        case .open(let until) where verdict == .misconfigured:
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

    /// What each app's breaker is doing.
    var states: [(app: String, state: CircuitBreaker.State, inFlight: Int)] {
        self.breakers.withLock { $0.map { ($0.key, $0.value.state, $0.value.inFlight) } }.sorted { $0.app < $1.app }
    }
}

extension CircuitBreaker.Verdict {
    init(_ reply: ProviderReply) {
        switch reply.result {
        case .answered(.accepted), .answered(.deadToken), .answered(.refused), .answered(.staleCredential):
            self = .works
        case .answered(.slowDown(_, let after)): self = .slowDown(after)
        case .answered(.configuration(_, concernsAll: true)), .noCredential: self = .misconfigured
        case .answered(.configuration), .answered(.retryDevice): self = .works
        case .answered(.retry), .unanswered: self = .fails
        }
    }
}

extension ProviderReply {
    /// The answer in a word or two.
    var summary: String {
        switch self.result {
        case .answered(let answer): answer.reason ?? "accepted"
        case .unanswered(let reason, _), .noCredential(let reason): reason
        }
    }
}
