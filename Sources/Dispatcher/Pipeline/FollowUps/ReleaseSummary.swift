// Carillon · ReleaseSummary.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage

/// Pushes what quiet hours held back: one by one, or as one summary if a user would get more than
/// five.
///
/// A summary is a push that counts and names the notifications. A notification is sent alone
///
/// - if its type is required, because a user can refuse summaries;
/// - if it is outside the inbox, because the user could not find it there;
/// - if another dispatcher had released it before it stopped;
/// - if the gate would refuse the user's summary.
struct ReleaseSummary: Sendable {
    /// The most pushes that a user gets at once without a summary.
    static let mostSingle = 5
    /// The most notifications that a summary names.
    private static let mostNamed = 10
    /// The type of summaries, which the catalog may define with its own texts.
    static let type = "summary"
    /// The prefix of a summary's job entry, by which it is known, because jobs may use its type
    /// too.
    private static let entryPrefix = "summary/"

    /// A notification to push.
    struct Release: Sendable {
        let item: RoutedNotification
        let facts: DecisionFacts
        let devices: UserDevices
    }

    let dispatcher: Dispatcher

    /// Adds the pushes to a plan; stores the summaries, which ends their notifications.
    ///
    /// If the dispatcher dies before it pushes a summary, the sweeper finds it without an owner.
    ///
    /// - Parameters:
    ///   - until: the end of the claim on the releases.
    ///   - fence: around the releases.
    /// - Returns: false if another dispatcher may have claimed the releases since; then nothing is
    ///   stored.
    func add(
        _ releases: [Release],
        to plan: inout RoutePlan,
        claimedUntil until: Timestamp,
        within fence: Fence
    ) async throws -> Bool {
        var single: [Release] = []
        var many: [[Release]] = []
        for group in Dictionary(grouping: releases, by: { ExactText($0.item.notification.user) }).values {
            let joint = group.filter { !Self.goesAlone($0) }
            guard joint.count > Self.mostSingle else {
                single += group
                continue
            }
            many.append(joint.sorted { $0.item.notification.id < $1.item.notification.id })
            single += group.filter { Self.goesAlone($0) }
        }
        let preferences = try await self.preferences(of: many.map { $0[0].item.notification.user })
        let all = zip(many, preferences).map { group, preferences in
            (summary: self.summary(of: group, locale: preferences.settings.locale), group: group)
        }
        let areWanted = zip(all, preferences).map { self.isWanted($0.summary, $1) }
        single += zip(many, areWanted).flatMap { group, isWanted in isWanted ? [] : group }
        for one in single { plan.add([.push], one.item, one.facts, one.devices) }
        let wanted = zip(all, areWanted).filter { $1 }.map(\.0)
        // The lookup of preferences may have waited for PostgreSQL.
        guard fence.isOpen else { return false }
        guard !wanted.isEmpty else { return true }
        let summaries = wanted.map(\.summary)
        let items = wanted.flatMap { summary, group in
            group.map { (key: $0.item.notification.key, summary: summary.id) }
        }
        // Tried once: after a commit without an answer, a retry would find no follow-ups.
        let stored = try await self.dispatcher.database.notifications.storeSummaries(
            summaries, endingItems: items, claimedUntil: until, at: self.dispatcher.now())
        guard let outcomes = stored else { return false }
        for ((summary, group), outcome) in zip(wanted, outcomes) {
            if Self.isOpen(outcome) {
                for device in group[0].devices.served {
                    plan.deliver(summary, to: device.id, via: device.provider, isRepeat: true)
                }
                plan.markQueued(summary)
            }
            for one in group {
                plan.addEvent(
                    .summarised, one.item.notification, at: one.facts.now, channel: .push,
                    reason: summary.id.description)
            }
        }
        return true
    }

    /// Whether a notification stands for others that quiet hours held back.
    static func isSummary(_ notification: Notification) -> Bool { notification.jobEntry.hasPrefix(Self.entryPrefix) }

    private static func goesAlone(_ release: Release) -> Bool {
        let notification = release.item.notification
        return release.facts.type.isRequired || !notification.isListed || notification.status != .deferred
    }

    /// Returns the preferences of users about summaries, in order.
    private func preferences(of users: [String]) async throws -> [RecipientStore.Preferences] {
        guard !users.isEmpty else { return [] }
        let catalog = self.dispatcher.catalog
        let keys = users.map { catalog.preferenceKey(user: $0, type: Self.type, needsLocale: true) }
        return try await self.dispatcher.retrying("look up preferences") {
            try await self.dispatcher.database.recipients.preferences(keys)
        }
    }

    /// Whether a summary may be pushed now.
    ///
    /// The catalog or the user may have switched summaries off, and the user's general quiet hours
    /// may last longer than those of the notifications' types.
    private func isWanted(_ summary: Notification, _ preferences: RecipientStore.Preferences) -> Bool {
        let now = self.dispatcher.now()
        var facts = GateFacts(
            .reach,
            of: summary,
            type: self.dispatcher.catalog[summary.type],
            preference: preferences.preference,
            settings: preferences.settings,
            isReplaced: false
        )
        facts.releaseAt = self.dispatcher.releaseMoment(of: summary, preferences: preferences, now: now)
        return gate(facts, now: now) == nil
    }

    private static func isOpen(_ outcome: NotificationStore.Outcome) -> Bool {
        switch outcome {
        case .stored: true
        case .known(_, _, let status, _): status == .pending
        case .duplicate, .conflict, .cancelled, .replaced: false
        }
    }

    /// Returns the summary of a group; its id is derived from the oldest notification's.
    private func summary(of group: [Release], locale: String?) -> Notification {
        let notifications = group.map(\.item.notification)
        let first = notifications[0]
        let type = self.dispatcher.catalog[Self.type] ?? NotificationType(name: Self.type)
        let now = self.dispatcher.now()
        let origin = EntryDigest(
            stream: Self.type,
            entry: "\(first.id.milliseconds)-0",
            fields: [("first", Array(first.id.description.utf8)[...])]
        )
        var summary = Notification(
            id: NotificationID(origin: origin, user: first.user),
            user: first.user,
            type: type.name,
            createdAt: now
        )
        summary.jobEntry = "\(Self.entryPrefix)\(first.id)"
        // A summary across organisations names none.
        let orgs = Set(notifications.map { ExactText($0.org) })
        if orgs.count == 1 { summary.org = first.org }
        let severities = Set(notifications.map(\.severity))
        summary.severity = Severity.allCases.first { severities.contains($0) } ?? .info
        summary.delivery = .push
        summary.lane = notifications.map(\.lane).min() ?? .normal
        summary.channels = [.push]
        let lines = notifications.prefix(Self.mostNamed).map {
            DigestStore.Line(id: $0.id, title: $0.title, body: $0.body, data: $0.data)
        }
        let text = SummaryText(
            count: notifications.count, lines: lines, type: type.name, catalog: self.dispatcher.catalog,
            locale: locale)
        if let fault = text.fault {
            self.dispatcher.summaryFaults.report(fault, type: type.name, logger: self.dispatcher.logger)
        }
        summary.title = text.title
        summary.body = text.body
        summary.category = type.category
        summary.extras.sound = type.sound
        summary.data = SummaryText.data(
            count: notifications.count,
            notifications: notifications.prefix(Self.mostNamed).map(\.id)
        )
        let end = now + type.timeToLive
        summary.expiresAt = min(end, notifications.map { $0.endsAt ?? end }.max() ?? end)
        return summary
    }
}
