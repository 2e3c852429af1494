// Carillon · ChannelDirectory.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// The current provider channels by provider and app; replaced when credentials change.
package final class ChannelDirectory: Sendable {
    /// A channel and its rate limit.
    package struct Entry: Sendable {
        package let channel: any ProviderChannel
        /// The app's setting for the rate limit that all dispatchers share for the account; nil
        /// means no limit.
        ///
        /// The effective limit belongs to the account, because its apps may have different
        /// settings: see ``ChannelDirectory/messagesPerSecond(of:)``.
        let messagesPerSecond: Int?
        private let proof = CredentialProof()

        package init(_ channel: any ProviderChannel, messagesPerSecond: Int? = nil) {
            self.channel = channel
            self.messagesPerSecond = messagesPerSecond
        }

        /// Judges the reply to a message to `device`.
        ///
        /// An answer that needs proof (``AnswerRule/needsProof``) is a partial configuration fault
        /// until the provider has accepted a message to a device with these credentials, in its
        /// environment of APNs. Otherwise credentials of a wrong project, or a wrong environment,
        /// would switch off every device.
        ///
        /// A relay's refusal of a recipient is a partial configuration fault until the relay has
        /// accepted a mail. After that the fault is the recipient's, and a retry would not help.
        package func judged(_ reply: ProviderReply, of device: Device) -> ProviderReply {
            let environment = self.channel.provider == .apns ? device.environment : .production
            let isProven = self.proof.isGiven(in: environment)
            switch reply.result {
            // Topics prove nothing: every project has them.
            case .answered(.accepted) where !device.isTopic:
                if !isProven { self.proof.give(in: environment) }
                return reply
            case .answered(.deadToken(let reason, _)) where !isProven && self.needsProof(reason):
                let answer = ProviderAnswer.configuration(reason: reason, concernsAll: false)
                return ProviderReply(.answered(answer), transcript: reply.transcript)
            case .answered(.configuration(let reason, concernsAll: false))
            where isProven && self.channel.provider == .email:
                return ProviderReply(.answered(.refused(reason: reason)), transcript: reply.transcript)
            default: return reply
            }
        }

        private func needsProof(_ reason: String) -> Bool {
            let rules = ProviderKinds.kind(of: self.channel.provider)?.rules ?? []
            return rules.contains { $0.reason == reason && $0.needsProof }
        }
    }

    /// Whether the provider has accepted a message to a device since the credentials were loaded,
    /// for each environment.
    private final class CredentialProof: Sendable {
        private let production = Atomic(false)
        private let sandbox = Atomic(false)

        func isGiven(in environment: ProviderEnvironment) -> Bool {
            switch environment {
            case .production: self.production.load(ordering: .relaxed)
            case .sandbox: self.sandbox.load(ordering: .relaxed)
            }
        }

        func give(in environment: ProviderEnvironment) {
            switch environment {
            case .production: self.production.store(true, ordering: .relaxed)
            case .sandbox: self.sandbox.store(true, ordering: .relaxed)
            }
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
        var entries: [Provider: [String: Entry]] = [:]
        /// The lowest rate of an account's apps, by provider and account.
        var rates: [Provider: [String: Int]] = [:]
        /// The apps that the last call of ``ChannelDirectory/retain(_:)`` left out.
        var missing: [Provider: Set<String>] = [:]

        mutating func countRates(of provider: Provider) {
            var rates: [String: Int] = [:]
            for entry in (self.entries[provider] ?? [:]).values {
                guard let rate = entry.messagesPerSecond else { continue }
                let account = entry.channel.account
                rates[account] = min(rates[account] ?? rate, rate)
            }
            self.rates[provider] = rates
        }
    }

    private let table: Mutex<Table>
    /// The providers of this process, fixed at its start.
    package let providers: Set<Provider>

    package init(_ entries: [Entry]) {
        var table = Table()
        for entry in entries { table.entries[entry.channel.provider, default: [:]][entry.channel.app] = entry }
        let providers = Set(table.entries.keys)
        for provider in providers { table.countRates(of: provider) }
        self.providers = providers
        self.table = Mutex(table)
    }

    /// Returns the channel of an app; nil if it has none.
    func entry(_ provider: Provider, app: String) -> Entry? {
        self.table.withLock { $0.entries[provider]?[app] }
    }

    /// Returns the channel for a device; nil if its app has none.
    ///
    /// An e-mail address belongs to no app: without a channel of its app, the first app's channel
    /// is used.
    package func entry(for device: Device) -> Entry? {
        guard device.provider == .email else { return self.entry(device.provider, app: device.app) }
        return self.table.withLock { table in
            let apps = table.entries[.email] ?? [:]
            return apps[device.app] ?? apps.min { $0.key < $1.key }?.value
        }
    }

    /// Whether a device can be sent to.
    package func serves(_ device: Device) -> Bool {
        self.entry(for: device) != nil
    }

    /// Whether the provider has any channel.
    package func has(_ provider: Provider) -> Bool {
        self.table.withLock { $0.entries[provider]?.isEmpty == false }
    }

    /// Whether several apps use the provider.
    package func isShared(_ provider: Provider) -> Bool {
        self.table.withLock { ($0.entries[provider]?.count ?? 0) > 1 }
    }

    /// The provider's apps, sorted.
    package func apps(of provider: Provider) -> [String] {
        self.table.withLock { ($0.entries[provider] ?? [:]).keys.sorted() }
    }

    /// The provider's apps that share the account, sorted.
    package func apps(of provider: Provider, account: String) -> [String] {
        self.table.withLock { table in
            (table.entries[provider] ?? [:]).filter { $0.value.channel.account == account }.keys.sorted()
        }
    }

    /// Returns the rate limit that all dispatchers share for the account; nil means no limit.
    ///
    /// It is the lowest rate of the account's apps and also applies to those without one. They all
    /// take from one bucket; if each filled it at its own rate, faster apps would starve slower
    /// ones.
    package func messagesPerSecond(of entry: Entry) -> Int? {
        self.table.withLock { $0.rates[entry.channel.provider]?[entry.channel.account] }
    }

    /// The accounts whose apps set different rates, sorted.
    package var rateConflicts: [RateConflict] {
        let entries = self.table.withLock { table in table.entries.values.flatMap { Array($0.values) } }
        let accounts = Dictionary(grouping: entries.filter { $0.messagesPerSecond != nil }) { entry in
            [entry.channel.provider.rawValue, entry.channel.account]
        }
        let conflicts = accounts.values.compactMap { entries -> RateConflict? in
            guard let first = entries.first else { return nil }
            var rates: [String: Int] = [:]
            for entry in entries { rates[entry.channel.app] = entry.messagesPerSecond }
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
    package func replace(with entry: Entry) -> Bool {
        guard self.providers.contains(entry.channel.provider) else { return false }
        self.table.withLock { table in
            table.entries[entry.channel.provider, default: [:]][entry.channel.app] = entry
            table.countRates(of: entry.channel.provider)
        }
        return true
    }

    /// Removes the channels of apps that are missing in two calls in a row.
    ///
    /// A single call removes none, because the file of the apps may be half copied.
    ///
    /// - Parameter apps: the apps that have settings, by provider.
    /// - Returns: the removed channels, by provider and app.
    package func retain(_ apps: [Provider: Set<String>]) -> [(provider: Provider, app: String)] {
        self.table.withLock { table in
            var removed: [(provider: Provider, app: String)] = []
            for (provider, entries) in table.entries {
                let missing = Set(entries.keys).subtracting(apps[provider] ?? [])
                for app in missing.intersection(table.missing[provider] ?? []) {
                    table.entries[provider]?[app] = nil
                    removed.append((provider, app))
                }
                table.missing[provider] = missing
                table.countRates(of: provider)
            }
            return removed
        }
    }
}
