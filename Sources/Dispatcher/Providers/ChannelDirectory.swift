// Carillon · ChannelDirectory.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
import Synchronization

/// The ways to providers that there are now, by provider and app; replaced when credentials change.
package final class ChannelDirectory: Sendable {
    /// A channel, and how much it may be used.
    package struct Way: Sendable {
        package let channel: any ProviderChannel
        /// What all dispatchers together send at most; nil for no bound.
        package let messagesPerSecond: Int?

        package init(_ channel: any ProviderChannel, messagesPerSecond: Int? = nil) {
            self.channel = channel
            self.messagesPerSecond = messagesPerSecond
        }
    }

    private let ways: Mutex<[Provider: [String: Way]]>
    /// The providers that this process sends to: those of its start.
    package let providers: Set<Provider>

    package init(_ ways: [Way]) {
        var table: [Provider: [String: Way]] = [:]
        for way in ways { table[way.channel.provider, default: [:]][way.channel.app] = way }
        self.providers = Set(table.keys)
        self.ways = Mutex(table)
    }

    /// The way to a provider for an app; nil if it has none.
    package func way(_ provider: Provider, app: String) -> Way? {
        self.ways.withLock { $0[provider]?[app] }
    }

    /// The way to a device; nil if its app has none.
    ///
    /// An e-mail address is no app's: the default one writes to it, or else the first.
    package func way(to device: Device) -> Way? {
        guard device.provider == .email else { return self.way(device.provider, app: device.app) }
        return self.ways.withLock { ways in
            let apps = ways[.email] ?? [:]
            return apps[device.app] ?? apps.min { $0.key < $1.key }?.value
        }
    }

    /// Whether a device can be sent to.
    package func serves(_ device: Device) -> Bool {
        self.way(to: device) != nil
    }

    /// Whether there is a way to a provider.
    package func has(_ provider: Provider) -> Bool {
        self.ways.withLock { $0[provider]?.isEmpty == false }
    }

    /// Whether several apps use a provider.
    package func isShared(_ provider: Provider) -> Bool {
        self.ways.withLock { ($0[provider]?.count ?? 0) > 1 }
    }

    /// The apps of a provider, in order.
    package func apps(of provider: Provider) -> [String] {
        self.ways.withLock { ($0[provider] ?? [:]).keys.sorted() }
    }

    /// The apps of a provider whose messages count against one account, in order.
    package func apps(of provider: Provider, account: String) -> [String] {
        self.ways.withLock { ways in
            (ways[provider] ?? [:]).filter { $0.value.channel.account == account }.keys.sorted()
        }
    }

    /// Puts another way in the place of the app's.
    ///
    /// - Returns: false if this process does not send to the provider, so that its work would wait for nobody; nothing is put
    ///   in then.
    @discardableResult
    package func replace(with way: Way) -> Bool {
        guard self.providers.contains(way.channel.provider) else { return false }
        self.ways.withLock { $0[way.channel.provider, default: [:]][way.channel.app] = way }
        return true
    }

    /// Takes an app's way away.
    package func remove(_ provider: Provider, app: String) {
        self.ways.withLock { _ = $0[provider]?.removeValue(forKey: app) }
    }
}
