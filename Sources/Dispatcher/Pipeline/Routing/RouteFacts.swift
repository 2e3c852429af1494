// Carillon · RouteFacts.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import Storage

/// The facts for the decisions about a batch, looked up for all of it at once.
struct RouteFacts: Sendable {
    private let dispatcher: Dispatcher
    private let catalog: Catalog
    /// The presence of each item's user, in order.
    private var presence: [Presence] = []
    private var devices: [ExactText: [Device]] = [:]
    private var preferences: [RecipientStore.Preferences] = []
    private var caps: [NotificationID: CapScope] = [:]

    init(_ items: [RoutedNotification], catalog: Catalog, dispatcher: Dispatcher) async throws {
        self.dispatcher = dispatcher
        self.catalog = catalog
        let stored = items.filter { $0.progress == .stored }
        var found = try await Self.presence(of: stored.map(\.notification.user), dispatcher)[...]
        let presence: [Presence] = items.map { $0.progress == .stored ? found.popFirst() ?? .unknown : .unknown }
        let mayNeedPush = zip(items, presence).filter { item, presence in
            guard item.notification.channels.contains(.push) else { return false }
            guard case .online = presence else { return true }
            return !item.notification.channels.contains(.inApp)
        }
        self.presence = presence
        self.devices = try await Self.devices(of: mayNeedPush.map(\.0.notification.user), dispatcher)
        self.preferences = try await self.preferences(of: items)
        self.caps = try await self.caps(reachedBy: items)
    }

    /// Returns the presence of each user, in order; unknown if Redis answers with an error.
    static func presence(of users: [String], _ dispatcher: Dispatcher) async throws -> [Presence] {
        guard !users.isEmpty else { return [] }
        var distinct: [String] = []
        var known: [ExactText: Int] = [:]
        let places = users.map { user -> Int in
            let place = known[ExactText(user)] ?? distinct.count
            if place == distinct.count {
                known[ExactText(user)] = place
                distinct.append(user)
            }
            return place
        }
        do {
            let found = try await dispatcher.untilDone(
                "look up presence",
                isFinal: { ($0 as? RedisError)?.code == .server }
            ) {
                try await dispatcher.presence.lookUp(distinct)
            }
            return places.map { found[$0] }
        } catch let error as RedisError where error.code == .server {
            dispatcher.logger.error("presence unknown; notifications go out as push", metadata: ["error": "\(error)"])
            return Array(repeating: .unknown, count: users.count)
        }
    }

    private static func devices(of users: [String], _ dispatcher: Dispatcher) async throws -> [ExactText: [Device]] {
        guard !users.isEmpty else { return [:] }
        let distinct = ExactText.distinct(users)
        return try await dispatcher.untilDone("look up devices") {
            try await dispatcher.database.recipients.activeDevices(distinct)
        }
    }

    private func preferences(of items: [RoutedNotification]) async throws -> [RecipientStore.Preferences] {
        let unknown = items.filter { $0.preferences == nil }
        let keys = unknown.map { self.catalog.preferenceKey(user: $0.notification.user, type: $0.notification.type) }
        let found = try await self.dispatcher.untilDone("look up preferences") {
            try await self.dispatcher.database.recipients.preferences(keys)
        }
        var rest = found[...]
        return items.map { $0.preferences ?? rest.popFirst() ?? RecipientStore.Preferences() }
    }

    /// Counts releases against the caps as of now, because they may have been stored long ago.
    mutating func count(releases: [RoutedNotification]) async throws {
        let reached = try await self.caps(reachedBy: releases, recounts: true)
        self.caps.merge(reached) { $1 }
    }

    /// Counts what would interrupt against the caps of its type, category and user; alerts are
    /// exempt.
    ///
    /// - Parameters:
    ///   - items: releases, or a batch: its new notifications count unless quiet hours hold them
    ///     or their users have neither a socket nor a device.
    ///   - recounts: whether the items are releases, which all count as of now.
    private func caps(
        reachedBy items: [RoutedNotification],
        recounts: Bool = false
    ) async throws -> [NotificationID: CapScope] {
        var uses: [UsageCaps.Use] = []
        var scopes: [[CapScope]] = []
        let now = self.dispatcher.now()
        for (index, item) in items.enumerated() where recounts || item.progress == .stored {
            guard item.notification.channels.contains(.push), item.notification.severity != .alert else { continue }
            let caps = self.catalog.caps(ofType: item.notification.type)
            // The notifications that a summary stands for have been counted.
            guard !caps.isEmpty, !ReleaseSummary.isSummary(item.notification) else { continue }
            guard recounts || Self.interruptsNow(self.facts(item, at: index, now: now)) else { continue }
            uses.append(
                UsageCaps.Use(
                    user: item.notification.user, notification: item.notification.id,
                    caps: caps.map { UsageCaps.Cap(name: $0.name, limit: $0.limit) }))
            scopes.append(caps.map(\.scope))
        }
        guard !uses.isEmpty else { return [:] }
        let counted = uses
        let reached = try await self.dispatcher.untilDone("count against caps") {
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

    /// Returns the devices of an item's user, including those that no provider serves.
    func devices(of item: RoutedNotification) -> [Device] { self.devices[ExactText(item.notification.user)] ?? [] }

    /// Returns the facts for the decision about the item at `index`.
    func facts(_ item: RoutedNotification, at index: Int, now: Timestamp) -> DecisionFacts {
        var facts = self.dispatcher.facts(
            item.notification, self.catalog[item.notification.type], self.preferences[index], progress: item.progress,
            now: now)
        facts.isRepeat = item.isRepeat
        facts.presence = self.presence[index]
        facts.deviceCount = self.devices(of: item).count { self.dispatcher.channels.serves($0) }
        facts.cap = self.caps[item.notification.id]
        return facts
    }
}

extension Catalog {
    /// Returns the key of a user's preferences for a type and its category.
    func preferenceKey(user: String, type: String, needsLocale: Bool = false) -> RecipientStore.Key {
        RecipientStore.Key(user: user, type: type, category: self[type]?.category, needsLocale: needsLocale)
    }
}
