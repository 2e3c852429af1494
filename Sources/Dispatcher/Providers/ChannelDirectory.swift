// Carillon · ChannelDirectory.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// The current provider channels by provider and app; replaced when credentials change.
package final class ChannelDirectory: Sendable {
    /// A channel and its rate limit.
    package struct Way: Sendable {
        package let channel: any ProviderChannel
        /// The app's setting for the rate limit that all dispatchers share for the account; nil
        /// means no limit.
        ///
        /// The effective limit belongs to the account, because its apps may have different
        /// settings: see ``ChannelDirectory/messagesPerSecond(of:)``.
        let messagesPerSecond: Int?

        package init(_ channel: any ProviderChannel, messagesPerSecond: Int? = nil) {
            self.channel = channel
            self.messagesPerSecond = messagesPerSecond
        }
    }

    /// An account whose apps set different rates.
    package struct RateConflict: Sendable, Equatable {
        package let provider: Provider
        package let account: String
        /// The rate of each app by name; apps without a rate are left out.
        package let rates: [String: Int]
    }

    private struct Table {
        var ways: [Provider: [String: Way]] = [:]
        /// The lowest rate of an account's apps, by provider and account.
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
    /// The providers of this process, fixed at its start.
    package let providers: Set<Provider>

    package init(_ ways: [Way]) {
        var table = Table()
        for way in ways { table.ways[way.channel.provider, default: [:]][way.channel.app] = way }
        let providers = Set(table.ways.keys)
        for provider in providers { table.countRates(of: provider) }
        self.providers = providers
        self.table = Mutex(table)
    }

    /// Returns the channel of an app; nil if it has none.
    func way(_ provider: Provider, app: String) -> Way? {
        self.table.withLock { $0.ways[provider]?[app] }
    }

    /// Returns the channel for a device; nil if its app has none.
    ///
    /// An e-mail address belongs to no app: without a channel of its app, the first app's channel
    /// is used.
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

    /// Whether the provider has any channel.
    package func has(_ provider: Provider) -> Bool {
        self.table.withLock { $0.ways[provider]?.isEmpty == false }
    }

    /// Whether several apps use the provider.
    package func isShared(_ provider: Provider) -> Bool {
        self.table.withLock { ($0.ways[provider]?.count ?? 0) > 1 }
    }

    /// The provider's apps, sorted.
    package func apps(of provider: Provider) -> [String] {
        self.table.withLock { ($0.ways[provider] ?? [:]).keys.sorted() }
    }

    /// The provider's apps that share the account, sorted.
    package func apps(of provider: Provider, account: String) -> [String] {
        self.table.withLock { table in
            (table.ways[provider] ?? [:]).filter { $0.value.channel.account == account }.keys.sorted()
        }
    }

    /// Returns the rate limit that all dispatchers share for the account; nil means no limit.
    ///
    /// It is the lowest rate of the account's apps and also applies to those without one. They all
    /// take from one bucket; if each filled it at its own rate, faster apps would starve slower
    /// ones.
    package func messagesPerSecond(of way: Way) -> Int? {
        self.table.withLock { $0.rates[way.channel.provider]?[way.channel.account] }
    }

    /// The accounts whose apps set different rates, sorted.
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

    /// Replaces the channel of an app.
    ///
    /// - Returns: false, without effect, if this process does not send to the provider; the
    ///   deliveries would have no reader.
    @discardableResult
    package func replace(with way: Way) -> Bool {
        guard self.providers.contains(way.channel.provider) else { return false }
        self.table.withLock { table in
            table.ways[way.channel.provider, default: [:]][way.channel.app] = way
            table.countRates(of: way.channel.provider)
        }
        return true
    }

    /// Removes the channel of an app.
    package func remove(_ provider: Provider, app: String) {
        self.table.withLock { table in
            table.ways[provider]?[app] = nil
            table.countRates(of: provider)
        }
    }
}
