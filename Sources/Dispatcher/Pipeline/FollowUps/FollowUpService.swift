// Carillon · FollowUpService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage

/// Handles follow-ups that are due: the end of quiet hours, an attention call, a delayed e-mail.
///
/// Any dispatcher may claim a follow-up; unless it is done within 30 s, it is due again.
package struct FollowUpService: Service {
    private static let interval: Duration = .milliseconds(250)
    private static let hold: Duration = .seconds(30)
    private static let batchSize = 1_024
    /// A batch of at least this size may have left due follow-ups: of one user, or of users who did
    /// not fit.
    private static let full = FollowUpStore.userLimit

    /// A follow-up to handle, and the facts of its notification.
    private struct Present {
        let item: FollowUpStore.Item
        let facts: FollowUpStore.Facts

        /// The notification as a repeat, because a dispatcher that died may have pushed it; the
        /// attempts show whether it did.
        var routed: RoutedNotification {
            RoutedNotification(
                self.facts.notification, .due(self.item.kind), unread: self.facts.unread, isRepeat: true)
        }
    }

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        await self.dispatcher.untilShutdown("cannot handle follow-ups; retrying") {
            while try await self.follow() >= Self.full, isRunning {}
        } wait: {
            await self.dispatcher.wait(for: self.dispatcher.alarms.followUps, atLeast: Self.interval)
        }
    }

    /// Claims and handles a batch of follow-ups.
    ///
    /// - Returns: how many there were.
    func follow() async throws -> Int {
        // First, so that nothing is claimed while all masters are away.
        let absent = try await AbsentParts.find(self.dispatcher)
        let now = self.dispatcher.now()
        let until = now + Self.hold
        let fence = self.dispatcher.fence(for: Self.hold)
        let claimed = try await self.dispatcher.database.followUps.claim(
            now: now, until: until, limit: Self.batchSize)
        guard !claimed.isEmpty else { return 0 }
        // The follow-ups of absent masters are due again after `hold`.
        let reachable = claimed.filter { !absent.contains($0.item.user) }
        let present = reachable.compactMap { Self.present($0) }
        var (plan, releases, handedOn) = try await self.plan(present)
        // Another dispatcher may have claimed them; otherwise they are due again.
        guard fence.isOpen,
            try await ReleaseSummary(dispatcher: self.dispatcher).add(
                releases, to: &plan, claimedUntil: until, within: fence)
        else {
            self.dispatcher.logger.warning(
                "lost the claim on follow-ups; they are due again", metadata: ["count": "\(claimed.count)"])
            return claimed.count
        }
        try await Router(dispatcher: self.dispatcher).carryOut(plan)
        await self.dispatcher.report(plan.lifecycle)
        try await self.dispatcher.database.followUps.remember(
            handedOn, claimedUntil: until, now: self.dispatcher.now())
        // Follow-ups that were enqueued or postponed have another due time by now, and stay.
        try await self.dispatcher.database.followUps.remove(reachable.map(\.item), claimedUntil: until)
        PipelineMetrics.followed.increment(by: reachable.count)
        return claimed.count
    }

    /// Returns a follow-up that is still to be handled; nil if nothing is left to do.
    private static func present(_ due: FollowUpStore.Due) -> Present? {
        guard !due.wasHandedOn, let facts = due.facts else { return nil }
        return due.item.kind.isOver(facts.notification) ? nil : Present(item: due.item, facts: facts)
    }

    /// Decides about follow-ups.
    ///
    /// - Returns: the plan without the releases to push; these releases; and the follow-ups whose
    ///   deliveries go to a provider's stream.
    private func plan(
        _ present: [Present]
    ) async throws -> (RoutePlan, releases: [ReleaseSummary.Release], handedOn: [FollowUpStore.Item]) {
        let catalog = await self.dispatcher.catalog(forTypes: present.map(\.facts.notification.type))
        var facts = try await RouteFacts(present.map(\.routed), catalog: catalog, dispatcher: self.dispatcher)
        try await self.countCaps(present, &facts)
        var plan = RoutePlan(for: self.dispatcher)
        var releases: [ReleaseSummary.Release] = []
        var handedOn: [FollowUpStore.Item] = []
        for (index, one) in present.enumerated() {
            let known = facts.facts(at: index, now: self.dispatcher.now())
            let devices = facts.devices(at: index)
            let kind = one.item.kind
            let refusal = self.refusal(one, known)
            if let refusal, !kind.wasReleased(one.facts.notification) {
                plan.add(refusal, of: kind, one.facts.notification, at: known.now)
                continue
            }
            let steps = refusal == nil || devices.served.isEmpty ? decide(known) : [.push]
            // The sender refuses a cancelled one and leaves it to its withdrawal; no summary may
            // count it.
            if kind == .release, steps == [.push], refusal == nil, !one.facts.isCancelled {
                releases.append(ReleaseSummary.Release(item: facts.items[index], facts: known, devices: devices))
            } else {
                let before = plan.deliveries.count
                plan.add(steps, facts.items[index], known, devices)
                // A released notification's status already says that it waits for its provider.
                if kind != .release, plan.deliveries.count > before { handedOn.append(one.item) }
            }
        }
        plan.omitRecorded(try await self.recorded(plan.postponed))
        return (plan, releases, handedOn)
    }

    /// Counts against the caps only the releases that would be pushed, so that others use up no
    /// cap.
    private func countCaps(_ present: [Present], _ facts: inout RouteFacts) async throws {
        var interrupting: [Int] = []
        for (index, one) in present.enumerated() where one.item.kind == .release && !one.facts.isCancelled {
            let known = facts.facts(at: index, now: self.dispatcher.now())
            if self.refusal(one, known) == nil, decide(known) == [.push] { interrupting.append(index) }
        }
        try await facts.countAgainstCaps(interrupting)
    }

    /// Returns the notifications whose postponement stays the same, for example because changed
    /// settings or zone rules do not affect them.
    private func recorded(_ postponed: [Postponement]) async throws -> Set<NotificationID> {
        let again = postponed.filter { $0.reason == Reason.quietHours.rawValue }.map { (item: $0.item, due: $0.due) }
        return try await self.dispatcher.retrying("look up postponements") {
            try await self.dispatcher.database.followUps.recorded(again, now: self.dispatcher.now())
        }
    }

    /// Returns why the gate would refuse a follow-up's delivery; nil if it would not.
    private func refusal(_ one: Present, _ facts: DecisionFacts) -> GateRefusal? {
        let isAttention = one.item.kind == .attention
        var gateFacts = GateFacts(
            one.item.kind == .email ? .email : isAttention ? .attention : .reach,
            of: one.facts.notification,
            type: self.dispatcher.catalog[one.facts.notification.type],
            preference: facts.preference,
            settings: facts.settings,
            isReplaced: one.facts.isReplaced
        )
        // For other purposes, the sender checks each device's attempts.
        gateFacts.wasAccepted = isAttention && one.facts.wasAccepted
        return gate(gateFacts, now: facts.now)
    }
}

/// A follow-up to store.
struct Postponement: Sendable {
    let notification: Notification
    let kind: FollowUp
    let due: Timestamp
    let reason: String

    var item: FollowUpStore.Item {
        FollowUpStore.Item(user: self.notification.user, notification: self.notification.id, kind: self.kind)
    }
}

extension Dispatcher {
    /// Stores follow-ups, and makes those due again whose user has changed quiet hours meanwhile.
    ///
    /// A call that changes quiet hours stores them first, and then looks for follow-ups. This
    /// stores the follow-ups first, and then looks at quiet hours. So one of the two sees the
    /// other.
    ///
    /// - Parameter recorded: the notifications whose postponement the audit has already.
    func postpone(_ postponements: [Postponement], recorded: Set<NotificationID> = []) async throws {
        guard !postponements.isEmpty else { return }
        let items = postponements.map { ($0.item, $0.due, $0.reason) }
        let critical = Set(postponements.lazy.filter { $0.notification.lane == .critical }.map(\.notification.id))
        try await self.retrying("store follow-ups") {
            try await self.database.followUps.postpone(items, critical: critical, recorded: recorded, now: self.now())
        }
        PipelineMetrics.postponed.increment(by: items.count)
        let quiet = postponements.filter { $0.reason == Reason.quietHours.rawValue }
        guard !quiet.isEmpty else { return }
        let catalog = self.catalog
        let keys = quiet.map { catalog.preferenceKey(user: $0.notification.user, type: $0.notification.type) }
        let preferences = try await self.retrying("look up preferences") {
            try await self.database.recipients.preferences(keys)
        }
        let now = self.now()
        let outdated = zip(quiet, preferences).compactMap { postponement, preferences in
            self.releaseMoment(of: postponement.notification, preferences: preferences, now: now) == postponement.due
                ? nil : (postponement.item, postponement.due)
        }
        guard !outdated.isEmpty else { return }
        try await self.retrying("make follow-ups due again") {
            try await self.database.followUps.makeDue(outdated, now: now)
        }
    }
}
