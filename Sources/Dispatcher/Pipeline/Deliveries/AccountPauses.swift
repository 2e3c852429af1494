// Carillon · AccountPauses.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Providers
import Storage
import Synchronization

/// Until when one provider's accounts are left alone, as this process knows, and how much of that other dispatchers know.
///
/// A pause holds up each app of the account by its breaker. Time comes in, what is to be told goes out.
final class AccountPauses: Sendable {
    /// What is hardly later than what others know waits until they are told anyway: each of many calls that are answered at
    /// once asks for a little more.
    private static let grain: Duration = .seconds(1)
    /// How many accounts and services others are told of, as services are what devices say.
    ///
    /// Beyond that each dispatcher goes by what it was told itself.
    static let capacity = 1_000
    /// The longest pause, whatever was asked for.
    ///
    /// A provider that means more says so again, and an answer that is at fault silences nobody for a day. It is the longest
    /// that a provider is known to need, which is Apple.
    static let longest: Duration = .seconds(20 * 60)

    private struct Account: Hashable {
        let name: String
        let service: String?
    }

    private struct Moments {
        var until: Timestamp
        /// Until when others know that they have to wait; nil if they know nothing.
        var told: Timestamp?
        /// Whether Redis was seen to have it: if it is gone from there then, somebody has lifted it.
        var isHeard = false
    }

    private let provider: Provider
    private let health: ProviderHealth
    private let channels: ChannelDirectory
    /// Those that are not over.
    private let moments = Mutex<[Account: Moments]>([:])

    init(_ provider: Provider, health: ProviderHealth, channels: ChannelDirectory) {
        self.provider = provider
        self.health = health
        self.channels = channels
    }

    /// Notes that everything of an account was asked to wait.
    ///
    /// - Returns: what other dispatchers are to be told now, and counts as told; nil if they know nearly as much.
    func note(_ account: String, service: String?, until: Timestamp, now: Timestamp) -> SendingPauses.Pause? {
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
            let isNews = entry.told.map { until - $0 > Self.grain } ?? true
            if isNews { entry.told = until }
            moments[key] = entry
            return isNews
        }
        self.hold(key, until: until, now: now)
        return isNews ? self.pause(key, until) : nil
    }

    /// What other dispatchers do not know yet; it counts as told from now on.
    func untold(now: Timestamp) -> [SendingPauses.Pause] {
        self.moments.withLock { moments in
            Self.forget(&moments, now: now)
            var news: [SendingPauses.Pause] = []
            for (key, entry) in moments where entry.told.map({ $0 < entry.until }) ?? true {
                moments[key]?.told = entry.until
                news.append(self.pause(key, entry.until))
            }
            return news
        }
    }

    /// Notes that others could not be told, so that they are with the next look.
    func takeBack(_ pauses: [SendingPauses.Pause]) {
        self.moments.withLock { moments in
            for pause in pauses where pause.provider == self.provider {
                moments[Account(name: pause.account, service: pause.service)]?.told = nil
            }
        }
    }

    /// Notes all that dispatchers know: a later moment holds here too, an earlier one shortens nothing, and one that they knew
    /// and that is gone before its time was lifted by somebody: calls find out what is so.
    ///
    /// Apps that have come since are held up as well.
    func learn(_ pauses: [SendingPauses.Pause], now: Timestamp) {
        self.lift(but: pauses, now: now)
        for pause in pauses where pause.provider == self.provider && pause.until > now {
            let key = Account(name: pause.account, service: pause.service)
            let until = self.moments.withLock { moments in
                guard moments[key] != nil || moments.count < Self.capacity else { return pause.until }
                var entry = moments[key] ?? Moments(until: pause.until)
                // Redis has whole milliseconds.
                entry.isHeard = pause.until.milliseconds >= entry.until.milliseconds
                entry.until = max(entry.until, pause.until)
                entry.told = max(entry.told ?? pause.until, pause.until)
                moments[key] = entry
                return entry.until
            }
            self.hold(key, until: until, now: now)
        }
    }

    private func lift(but known: [SendingPauses.Pause], now: Timestamp) {
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
    }

    private func hold(_ key: Account, until: Timestamp, now: Timestamp) {
        let apps = self.channels.apps(of: self.provider, account: key.name)
        self.health.hold(apps, service: key.service, until: until, now: now)
    }

    private func pause(_ key: Account, _ until: Timestamp) -> SendingPauses.Pause {
        SendingPauses.Pause(provider: self.provider, account: key.name, service: key.service, until: until)
    }

    private static func forget(_ moments: inout [Account: Moments], now: Timestamp) {
        if moments.contains(where: { $0.value.until <= now }) { moments = moments.filter { $0.value.until > now } }
    }
}
