// Carillon · RouteFacts.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import Storage

/// A notification on its way, and how far it has come.
struct RouteItem: Sendable {
    let notification: Notification
    let unread: Int32
    let isRepeat: Bool
    /// What the user wants of it; nil if that is not known yet.
    var wishes: RecipientStore.Wishes?
    let progress: DecisionFacts.Progress

    /// Whether a delivery of it may wait for its next try already.
    var mayWait: Bool {
        switch self.progress {
        case .arrived, .due(.release): false
        case .unproven: self.notification.statusReason == "queued"
        case .stored, .due(.attention), .due(.email): self.isRepeat
        }
    }
}

/// What decisions about a batch rest on, looked up for all of it at once.
struct RouteFacts: Sendable {
    private let dispatcher: Dispatcher
    private let catalog: Catalog
    private var presence: [ExactText: Presence] = [:]
    private var devices: [ExactText: [Device]] = [:]
    private var wishes: [RecipientStore.Wishes] = []
    private var caps: [NotificationID: CapScope] = [:]

    init(_ items: [RouteItem], catalog: Catalog, dispatcher: Dispatcher) async throws {
        self.dispatcher = dispatcher
        self.catalog = catalog
        let stored = items.filter { $0.progress == .stored }
        self.presence = try await Self.presence(of: stored.map(\.notification.user), dispatcher)
        let presence = self.presence
        let mayNeedPush = items.filter { item in
            guard item.notification.channels.contains(.push) else { return false }
            guard case .online = presence[ExactText(item.notification.user)] else { return true }
            return !item.notification.channels.contains(.inApp)
        }
        self.devices = try await Self.devices(of: mayNeedPush.map(\.notification.user), dispatcher)
        self.wishes = try await self.wishes(of: items)
        self.caps = try await self.caps(reachedBy: stored)
    }

    /// The presence of users; unknown where Redis answers with an error.
    static func presence(of users: [String], _ dispatcher: Dispatcher) async throws -> [ExactText: Presence] {
        guard !users.isEmpty else { return [:] }
        let distinct = ExactText.distinct(users)
        do {
            let found = try await dispatcher.untilDone(
                "look up presence",
                isFinal: { ($0 as? RedisError)?.code == .server }
            ) {
                try await dispatcher.presence.lookUp(distinct)
            }
            return Dictionary(uniqueKeysWithValues: zip(distinct.map { ExactText($0) }, found))
        } catch let error as RedisError where error.code == .server {
            dispatcher.logger.error("presence unknown", metadata: ["error": "\(error)"])
            return [:]
        }
    }

    private static func devices(of users: [String], _ dispatcher: Dispatcher) async throws -> [ExactText: [Device]] {
        guard !users.isEmpty else { return [:] }
        let distinct = ExactText.distinct(users)
        return try await dispatcher.untilDone("look up devices") {
            try await dispatcher.recipients.activeDevices(distinct)
        }
    }

    private func wishes(of items: [RouteItem]) async throws -> [RecipientStore.Wishes] {
        let unknown = items.filter { $0.wishes == nil }
        let keys = unknown.map { self.catalog.wishKey(user: $0.notification.user, type: $0.notification.type) }
        let found = try await self.dispatcher.untilDone("look up preferences") {
            try await self.dispatcher.recipients.wishes(keys)
        }
        var rest = found[...]
        return items.map { $0.wishes ?? rest.popFirst() ?? RecipientStore.Wishes() }
    }

    /// Counts what is released against caps anew, as of now: whatever it was counted with when it was stored may be long ago.
    mutating func count(releases: [RouteItem]) async throws {
        let reached = try await self.caps(reachedBy: releases, isAnew: true)
        self.caps.merge(reached) { $1 }
    }

    /// Counts what would interrupt against the caps of its type, its category and its user; alerts always may.
    private func caps(
        reachedBy items: [RouteItem],
        isAnew: Bool = false
    ) async throws -> [NotificationID: CapScope] {
        var uses: [UsageCaps.Use] = []
        var scopes: [[CapScope]] = []
        for item in items where item.notification.channels.contains(.push) && item.notification.severity != .alert {
            let caps = self.catalog.caps(ofType: item.notification.type)
            guard !caps.isEmpty else { continue }
            uses.append(
                UsageCaps.Use(
                    user: item.notification.user, notification: item.notification.id,
                    caps: caps.map { UsageCaps.Cap(name: $0.name, limit: $0.limit) }))
            scopes.append(caps.map(\.scope))
        }
        guard !uses.isEmpty else { return [:] }
        let counted = uses
        let now = self.dispatcher.now()
        let reached = try await self.dispatcher.untilDone("count against caps") {
            try await self.dispatcher.live.usageCaps
                .use(counted, now: now, isAnew: isAnew)
        }
        var result: [NotificationID: CapScope] = [:]
        for (index, number) in reached.enumerated() where number != nil {
            result[uses[index].notification] = scopes[index][number ?? 0]
        }
        return result
    }

    /// The devices of an item's user, also those of providers that are not configured.
    func devices(of item: RouteItem) -> [Device] { self.devices[ExactText(item.notification.user)] ?? [] }

    func presence(of item: RouteItem) -> Presence { self.presence[ExactText(item.notification.user)] ?? .unknown }

    /// What the decision about the item at `index` rests on.
    func facts(_ item: RouteItem, at index: Int) -> DecisionFacts {
        let notification = item.notification
        // A type that has left the catalog since keeps what its notifications were stored with.
        let type = self.catalog[notification.type] ?? NotificationType(name: notification.type)
        var facts = DecisionFacts(
            notification: notification,
            type: type,
            progress: item.progress,
            now: self.dispatcher.now()
        )
        self.dispatcher.apply(self.wishes[index], to: &facts)
        facts.isRepeat = item.isRepeat
        facts.presence = self.presence(of: item)
        facts.deviceCount = self.devices(of: item).count { self.dispatcher.channels.serves($0) }
        facts.cap = self.caps[notification.id]
        return facts
    }
}

extension Catalog {
    /// Under which type and category a user's wishes for a type are found.
    func wishKey(user: String, type: String, needsLocale: Bool = false) -> RecipientStore.Key {
        RecipientStore.Key(user: user, type: type, category: self[type]?.category, needsLocale: needsLocale)
    }
}
