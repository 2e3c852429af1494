// Carillon · AccountPauses.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import Providers
import ServiceLifecycle
import Storage
import Synchronization

/// The pauses of one provider's accounts: this dispatcher's own, and those that others share.
///
/// A pause opens the breakers of the account's apps.
final class AccountPauses: Sendable {
    /// An end that is later by less than this waits for the next refresh, because many answers at
    /// once each ask for a slightly later end.
    private static let grain: Duration = .seconds(1)
    /// The most accounts and services with shared pauses; bounded, because devices name services.
    ///
    /// Beyond that, each dispatcher knows only its own pauses.
    static let capacity = 1_000
    /// The longest pause, whatever the provider asks for.
    static let longest = SendingPauses.longest

    private struct Account: Hashable {
        let name: String
        let service: String?
    }

    private struct Moments {
        var until: Timestamp
        /// The end that other dispatchers know; nil for none.
        var sharedUntil: Timestamp?
        /// Whether Redis had it; if it disappears from there early, an operator lifted it.
        var isHeard = false
    }

    private let provider: Provider
    private let health: ProviderHealth
    private let channels: ChannelDirectory
    private let moments = Mutex<[Account: Moments]>([:])

    init(_ provider: Provider, health: ProviderHealth, channels: ChannelDirectory) {
        self.provider = provider
        self.health = health
        self.channels = channels
    }

    /// Records that an account was asked to pause.
    ///
    /// - Returns: the pause to share with other dispatchers now; nil if they know nearly the same.
    func record(_ account: String, service: String?, until: Timestamp, now: Timestamp) -> SendingPauses.Pause? {
        let key = Account(name: account, service: service)
        let until = min(until, now + Self.longest)
        let isNews = self.moments.withLock { moments in
            Self.forget(&moments, now: now)
            var entry = moments[key] ?? Moments(until: until)
            guard until > now, until >= entry.until else { return false }
            guard moments[key] != nil || moments.count < Self.capacity else {
                PipelineMetrics.unsharedPauses.increment()
                return false
            }
            if until > entry.until { entry.isHeard = false }
            entry.until = until
            let isNews = entry.sharedUntil.map { until - $0 > Self.grain } ?? true
            if isNews { entry.sharedUntil = until }
            moments[key] = entry
            return isNews
        }
        self.hold(key, until: until, now: now)
        return isNews ? self.pause(key, until) : nil
    }

    /// Returns the pauses to share, which count as shared from now on.
    func takeUnshared(now: Timestamp) -> [SendingPauses.Pause] {
        self.moments.withLock { moments in
            Self.forget(&moments, now: now)
            var news: [SendingPauses.Pause] = []
            for (key, entry) in moments where entry.sharedUntil.map({ $0 < entry.until }) ?? true {
                moments[key]?.sharedUntil = entry.until
                news.append(self.pause(key, entry.until))
            }
            return news
        }
    }

    /// Marks pauses as not shared, so that the next refresh shares them.
    func unshare(_ pauses: [SendingPauses.Pause]) {
        self.moments.withLock { moments in
            for pause in pauses where pause.provider == self.provider {
                moments[Account(name: pause.account, service: pause.service)]?.sharedUntil = nil
            }
        }
    }

    /// Applies the pauses that dispatchers share.
    ///
    /// The latest end of a pause counts. One that disappeared early was lifted, so its breakers
    /// probe. New apps of the account pause too.
    ///
    /// - Returns: whether a pause was lifted.
    @discardableResult
    func learn(_ pauses: [SendingPauses.Pause], now: Timestamp) -> Bool {
        let isLifted = self.lift(but: pauses, now: now)
        for pause in pauses where pause.provider == self.provider && pause.until > now {
            let key = Account(name: pause.account, service: pause.service)
            let until = self.moments.withLock { moments in
                guard moments[key] != nil || moments.count < Self.capacity else { return pause.until }
                var entry = moments[key] ?? Moments(until: pause.until)
                // Redis stores whole milliseconds.
                entry.isHeard = pause.until.milliseconds >= entry.until.milliseconds
                entry.until = max(entry.until, pause.until)
                entry.sharedUntil = max(entry.sharedUntil ?? pause.until, pause.until)
                moments[key] = entry
                return entry.until
            }
            self.hold(key, until: until, now: now)
        }
        return isLifted
    }

    /// Whether an account pauses, as far as this dispatcher knows.
    var areKnown: Bool { self.moments.withLock { !$0.isEmpty } }

    private func lift(but known: [SendingPauses.Pause], now: Timestamp) -> Bool {
        let kept = Set(
            known.filter { $0.provider == self.provider }.map { Account(name: $0.account, service: $0.service) })
        let lifted = self.moments.withLock { moments in
            Self.forget(&moments, now: now)
            let lifted = moments.filter { $0.value.isHeard && !kept.contains($0.key) }
            for key in lifted.keys { moments[key] = nil }
            return lifted
        }
        for (key, entry) in lifted {
            let apps = self.channels.apps(of: self.provider, account: key.name)
            self.health.lift(apps, service: key.service, until: entry.until, now: now)
        }
        return !lifted.isEmpty
    }

    private func hold(_ key: Account, until: Timestamp, now: Timestamp) {
        let apps = self.channels.apps(of: self.provider, account: key.name)
        self.health.hold(apps, service: key.service, until: until, now: now)
    }

    private func pause(_ key: Account, _ until: Timestamp) -> SendingPauses.Pause {
        SendingPauses.Pause(provider: self.provider, account: key.name, service: key.service, until: until)
    }

    private static func forget(_ moments: inout [Account: Moments], now: Timestamp) {
        let latest = SendingPauses.latestEnd(now: now)
        func isOver(_ until: Timestamp) -> Bool { until <= now || until > latest }
        if moments.contains(where: { isOver($0.value.until) }) {
            moments = moments.filter { !isOver($0.value.until) }
        }
    }
}

/// Shares the pauses of accounts between dispatchers.
package struct AccountPauseService: Service {
    /// The number of intervals between two refreshes while no provider is called.
    private static let idleIntervals = 15

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]
    private let interval: Duration

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
        // 1 s with the usual lease.
        self.interval = dispatcher.clock.lease / 15
    }

    package func run() async throws {
        var calls = 0
        var idle = 0
        while isRunning {
            let total = self.deliveries.reduce(0) { $0 + $1.counts.reduce(0) { $0 + $1.sent } }
            idle += 1
            if total != calls || idle == Self.idleIntervals || self.deliveries.contains(where: \.isBusy) {
                await self.refresh()
                idle = 0
            }
            calls = total
            // A second of further calls matters little to a provider's quota.
            await pause(for: self.interval)
        }
    }

    /// Shares and reads pauses once, in one round trip.
    ///
    /// While Redis is down, each dispatcher knows only its own pauses.
    package func refresh() async {
        let now = self.dispatcher.now()
        let unshared = self.deliveries.flatMap { $0.pauses.takeUnshared(now: now) }
        let shared = self.dispatcher.live.sendingPauses
        do {
            let heard = try await shared.exchange(unshared, of: self.deliveries.map(\.provider), now: now)
            let end = self.dispatcher.now()
            for service in self.deliveries where service.pauses.learn(heard, now: end) {
                self.dispatcher.alarms.retries.schedule(at: end)
            }
        } catch {
            for service in self.deliveries { service.pauses.unshare(unshared) }
            PipelineMetrics.unsharedPauses.increment()
            self.dispatcher.logger.warning(
                "cannot share pauses of accounts; retrying", metadata: ["error": "\(error)"])
        }
    }
}
