// Carillon · ChannelDirectory.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// The ways to providers that there are now, by provider and app; replaced when credentials change.
package final class ChannelDirectory: Sendable {
    /// A channel, and how much it may be used.
    package struct Way: Sendable {
        package let channel: any ProviderChannel
        /// What the app's settings let all dispatchers together send for its account; nil for no bound.
        ///
        /// What counts is the account's, as apps of one account may say different things: see
        /// ``ChannelDirectory/messagesPerSecond(of:)``.
        package let messagesPerSecond: Int?

        package init(_ channel: any ProviderChannel, messagesPerSecond: Int? = nil) {
            self.channel = channel
            self.messagesPerSecond = messagesPerSecond
        }
    }

    /// An account whose apps have different rates.
    package struct RateConflict: Sendable, Equatable {
        package let provider: Provider
        package let account: String
        /// What each app says, by its name; those that say nothing are left out.
        package let rates: [String: Int]

        package init(provider: Provider, account: String, rates: [String: Int]) {
            self.provider = provider
            self.account = account
            self.rates = rates
        }
    }

    private struct Table {
        var ways: [Provider: [String: Way]] = [:]
        /// The smallest rate of an account's apps, by provider and account.
        var rates: [Provider: [String: Int]] = [:]

        mutating func countRates(of provider: Provider) {
            var rates: [String: Int] = [:]
            for way in (self.ways[provider] ?? [:]).values {
                guard let rate = way.messagesPerSecond else { continue }
                let account = way.channel.account
                rates[account] = min(rates[account] ?? rate, rate)
            }
            self.rates[provider] = rates
        }
    }

    private let table: Mutex<Table>
    /// The providers that this process sends to: those of its start.
    package let providers: Set<Provider>

    package init(_ ways: [Way]) {
        var table = Table()
        for way in ways { table.ways[way.channel.provider, default: [:]][way.channel.app] = way }
        let providers = Set(table.ways.keys)
        for provider in providers { table.countRates(of: provider) }
        self.providers = providers
        self.table = Mutex(table)
    }

    /// The way to a provider for an app; nil if it has none.
    package func way(_ provider: Provider, app: String) -> Way? {
        self.table.withLock { $0.ways[provider]?[app] }
    }

    /// The way to a device; nil if its app has none.
    ///
    /// An e-mail address is no app's: the default one writes to it, or else the first.
    package func way(to device: Device) -> Way? {
        guard device.provider == .email else { return self.way(device.provider, app: device.app) }
        return self.table.withLock { table in
            let apps = table.ways[.email] ?? [:]
            return apps[device.app] ?? apps.min { $0.key < $1.key }?.value
        }
    }

    /// Whether a device can be sent to.
    package func serves(_ device: Device) -> Bool {
        self.way(to: device) != nil
    }

    /// Whether there is a way to a provider.
    package func has(_ provider: Provider) -> Bool {
        self.table.withLock { $0.ways[provider]?.isEmpty == false }
    }

    /// Whether several apps use a provider.
    package func isShared(_ provider: Provider) -> Bool {
        self.table.withLock { ($0.ways[provider]?.count ?? 0) > 1 }
    }

    /// The apps of a provider, in order.
    package func apps(of provider: Provider) -> [String] {
        self.table.withLock { ($0.ways[provider] ?? [:]).keys.sorted() }
    }

    /// The apps of a provider whose messages count against one account, in order.
    package func apps(of provider: Provider, account: String) -> [String] {
        self.table.withLock { table in
            (table.ways[provider] ?? [:]).filter { $0.value.channel.account == account }.keys.sorted()
        }
    }

    /// What all dispatchers together send for the account of a way at most: the smallest rate of the account's apps, which
    /// holds for those of them that have none too; nil for no bound.
    ///
    /// They take their turns out of one bucket. Were each to fill it by a rate of its own, those with a higher one would keep
    /// it too low for the others for ever.
    package func messagesPerSecond(of way: Way) -> Int? {
        self.table.withLock { $0.rates[way.channel.provider]?[way.channel.account] }
    }

    /// The accounts whose apps have different rates, in order.
    package var rateConflicts: [RateConflict] {
        let ways = self.table.withLock { table in table.ways.values.flatMap { Array($0.values) } }
        let accounts = Dictionary(grouping: ways.filter { $0.messagesPerSecond != nil }) { way in
            [way.channel.provider.rawValue, way.channel.account]
        }
        let conflicts = accounts.values.compactMap { ways -> RateConflict? in
            guard let first = ways.first else { return nil }
            var rates: [String: Int] = [:]
            for way in ways { rates[way.channel.app] = way.messagesPerSecond }
            guard Set(rates.values).count > 1 else { return nil }
            return RateConflict(
                provider: first.channel.provider, account: first.channel.account, rates: rates)
        }
        return conflicts.sorted { ($0.provider.rawValue, $0.account) < ($1.provider.rawValue, $1.account) }
    }

    /// Puts another way in the place of the app's.
    ///
    /// - Returns: false if this process does not send to the provider, so that its work would wait for nobody; nothing is put
    ///   in then.
    @discardableResult
    package func replace(with way: Way) -> Bool {
        guard self.providers.contains(way.channel.provider) else { return false }
        self.table.withLock { table in
            table.ways[way.channel.provider, default: [:]][way.channel.app] = way
            table.countRates(of: way.channel.provider)
        }
        return true
    }

    /// Takes an app's way away.
    package func remove(_ provider: Provider, app: String) {
        self.table.withLock { table in
            table.ways[provider]?[app] = nil
            table.countRates(of: provider)
        }
    }
}
