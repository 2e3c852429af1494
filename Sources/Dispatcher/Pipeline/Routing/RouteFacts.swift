// Carillon · RouteFacts.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import Storage

/// The facts for the decisions about a batch, looked up for all of it at once.
struct RouteFacts: Sendable {
    let items: [RoutedNotification]
    private let dispatcher: Dispatcher
    private let catalog: Catalog
    private let hasMailRelay: Bool
    private var presence: [ExactText: Presence] = [:]
    private var devices: [ExactText: UserDevices] = [:]
    /// The preferences of each item's user.
    private var preferences: [RecipientStore.Preferences] = []
    private var caps: [NotificationID: CapScope] = [:]

    init(_ items: [RoutedNotification], catalog: Catalog, dispatcher: Dispatcher) async throws {
        self.items = items
        self.dispatcher = dispatcher
        self.catalog = catalog
        self.hasMailRelay = dispatcher.channels.has(.email)
        let stored = items.filter { $0.progress == .stored }
        self.presence = try await Self.presence(of: stored.map(\.notification.user), dispatcher)
        let mayNeedPush = items.filter { item in
            guard item.notification.channels.contains(.push) else { return false }
            guard case .online = self.presence(of: item) else { return true }
            return !item.notification.channels.contains(.inApp)
        }
        self.devices = try await Self.devices(of: mayNeedPush.map(\.notification.user), dispatcher)
        self.preferences = try await self.lookUpPreferences()
        self.caps = try await self.countedCaps(items.indices.filter { items[$0].progress == .stored })
    }

    /// Returns the presence by user; empty, and so unknown, if Redis answers with an error.
    static func presence(of users: [String], _ dispatcher: Dispatcher) async throws -> [ExactText: Presence] {
        guard !users.isEmpty else { return [:] }
        let distinct = Set(users.lazy.map { ExactText($0) })
        let texts = distinct.map(\.text)
        do {
            let found = try await dispatcher.retrying(
                "look up presence",
                isFinal: { ($0 as? RedisError)?.code == .server }
            ) {
                try await dispatcher.presence.lookUp(texts)
            }
            return Dictionary(uniqueKeysWithValues: zip(distinct, found))
        } catch let error as RedisError where error.code == .server {
            dispatcher.logger.error("presence unknown; notifications go out as push", metadata: ["error": "\(error)"])
            return [:]
        }
    }

    private static func devices(of users: [String], _ dispatcher: Dispatcher) async throws -> [ExactText: UserDevices] {
        guard !users.isEmpty else { return [:] }
        let distinct = ExactText.distinct(users)
        let found = try await dispatcher.retrying("look up devices") {
            try await dispatcher.database.recipients.activeDevices(distinct)
        }
        return found.mapValues { UserDevices($0, servedBy: dispatcher.channels) }
    }

    private func lookUpPreferences() async throws -> [RecipientStore.Preferences] {
        let unknown = self.items.filter { $0.preferences == nil }
        let keys = unknown.map { self.catalog.preferenceKey(user: $0.notification.user, type: $0.notification.type) }
        let found = try await self.dispatcher.retrying("look up preferences") {
            try await self.dispatcher.database.recipients.preferences(keys)
        }
        var rest = found[...]
        return self.items.map { $0.preferences ?? rest.popFirst() ?? RecipientStore.Preferences() }
    }

    /// Counts releases against the caps as of now, because they may have been stored long ago.
    ///
    /// - Parameter releases: the indices of the releases among the items.
    mutating func countAgainstCaps(_ releases: [Int]) async throws {
        let reached = try await self.countedCaps(releases, recounts: true)
        self.caps.merge(reached) { $1 }
    }

    /// Counts, against the caps of type, category and user, the notifications that would interrupt;
    /// alerts are exempt.
    ///
    /// - Parameters:
    ///   - indices: the indices of releases or of new notifications. New ones do not count if quiet
    ///     hours hold them, or if their users have neither a socket nor a device.
    ///   - recounts: whether the items are releases, which all count as of now.
    private func countedCaps(_ indices: [Int], recounts: Bool = false) async throws -> [NotificationID: CapScope] {
        var uses: [UsageCaps.Use] = []
        var scopes: [[CapScope]] = []
        let now = self.dispatcher.now()
        for index in indices {
            let item = self.items[index]
            guard item.notification.channels.contains(.push), item.notification.severity != .alert else { continue }
            let caps = self.catalog.caps(ofType: item.notification.type)
            // The notifications that a summary stands for have been counted.
            guard !caps.isEmpty, !ReleaseSummary.isSummary(item.notification) else { continue }
            guard recounts || Self.interruptsNow(self.facts(at: index, now: now)) else { continue }
            uses.append(
                UsageCaps.Use(
                    user: item.notification.user, notification: item.notification.id,
                    caps: caps.map { UsageCaps.Cap(name: $0.name, limit: $0.limit) }))
            scopes.append(caps.map(\.scope))
        }
        guard !uses.isEmpty else { return [:] }
        let counted = uses
        let reached = try await self.dispatcher.retrying("count against caps") {
            try await self.dispatcher.live.usageCaps
                .use(counted, now: self.dispatcher.now(), recounts: recounts)
        }
        var result: [NotificationID: CapScope] = [:]
        for (index, number) in reached.enumerated() where number != nil {
            result[uses[index].notification] = scopes[index][number ?? 0]
        }
        return result
    }

    private static func interruptsNow(_ facts: DecisionFacts) -> Bool { facts.canInterrupt && facts.quietEnd == nil }

    private func presence(of item: RoutedNotification) -> Presence {
        self.presence[ExactText(item.notification.user), default: .unknown]
    }

    /// Returns the devices of the user of the item at `index`.
    func devices(at index: Int) -> UserDevices {
        self.devices[ExactText(self.items[index].notification.user)]
            ?? UserDevices([], servedBy: self.dispatcher.channels)
    }

    /// Returns the facts for the decision about the item at `index`.
    func facts(at index: Int, now: Timestamp) -> DecisionFacts {
        let item = self.items[index]
        var facts = self.dispatcher.facts(
            item.notification, self.catalog[item.notification.type], self.preferences[index], progress: item.progress,
            now: now)
        facts.isRepeat = item.isRepeat
        facts.presence = self.presence(of: item)
        let devices = self.devices(at: index)
        facts.deviceCount = devices.served.count
        facts.hasUnservedDevice = !devices.unserved.isEmpty
        facts.hasMailRelay = self.hasMailRelay
        facts.cap = self.caps[item.notification.id]
        return facts
    }
}

/// A user's active devices.
struct UserDevices: Sendable {
    /// The devices that a provider serves.
    let served: [Device]
    let unserved: [Device]

    init(_ all: [Device], servedBy channels: ChannelDirectory) {
        let unserved = all.filter { !channels.serves($0) }
        self.unserved = unserved
        // The channels may have changed since, so do not look again.
        self.served = unserved.isEmpty ? all : all.filter { device in !unserved.contains { $0.id == device.id } }
    }
}

extension Catalog {
    /// Returns the key of a user's preferences for a type and its category.
    func preferenceKey(user: String, type: String, needsLocale: Bool = false) -> RecipientStore.Key {
        RecipientStore.Key(user: user, type: type, category: self[type]?.category, needsLocale: needsLocale)
    }
}
