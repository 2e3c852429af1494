// Carillon · FollowUpService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage

/// Looks again at what was put off when its time has come: the end of quiet hours, an idle user's time to read, an
/// e-mail's turn.
///
/// Any dispatcher may; what one takes comes up again after half a minute unless it is done with by then.
package struct FollowUpService: Service {
    private static let interval: Duration = .milliseconds(250)
    private static let hold: Duration = .seconds(30)
    private static let batchSize = 1_024
    /// Who finds so much may have left some: of a user, or of users who did not fit.
    private static let full = FollowUpStore.userLimit

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        while goesOn {
            do {
                while try await self.follow() >= Self.full, goesOn {}
            } catch {
                self.dispatcher.logger.warning("follow-ups cannot be looked at", metadata: ["error": "\(error)"])
            }
            // PostgreSQL tells nobody that a moment has come, so it is asked, by index.
            await pause(for: Self.interval)
        }
    }

    /// Takes what is due and does it.
    ///
    /// - Returns: how many there were.
    func follow() async throws -> Int {
        let now = self.dispatcher.now()
        let until = now + Self.hold
        let fence = self.dispatcher.fence(for: Self.hold)
        let taken = try await self.dispatcher.followUps.take(now: now, until: until, limit: Self.batchSize)
        guard !taken.isEmpty else { return 0 }
        var present: [(item: FollowUpStore.Item, stand: FollowUpStore.Facts)] = []
        for due in taken where !due.wasHandedOn {
            if let stand = due.facts { present.append((due.item, stand)) }
        }
        let items = present.map { item, stand in
            // Pushed before, perhaps, by one who died before it could say so: the attempts are looked at.
            RouteItem(
                notification: stand.notification, unread: stand.unread, isRepeat: true, progress: .due(item.kind))
        }
        let router = Router(dispatcher: self.dispatcher)
        var facts = try await RouteFacts(items, catalog: self.dispatcher.catalog, dispatcher: self.dispatcher)
        // Not what is not pushed anyway, as it would take the place of others.
        var interrupting: [RouteItem] = []
        for (index, item) in items.enumerated() where item.progress == .due(.release) {
            let known = facts.facts(item, at: index)
            guard self.refusal(item, present[index].1, known) == nil, decide(known) == [.push] else { continue }
            interrupting.append(item)
        }
        try await facts.count(releases: interrupting)
        var plan = RoutePlan()
        var releases: [ReleaseSummary.Release] = []
        var handedOn: [FollowUpStore.Item] = []
        for (index, item) in items.enumerated() {
            let known = facts.facts(item, at: index)
            let devices = facts.devices(of: item)
            let kind = present[index].item.kind
            if let refusal = self.refusal(item, present[index].stand, known) {
                self.settle(item.notification, refusal, kind, in: &plan)
                continue
            }
            let steps = decide(known)
            if kind == .release, steps == [.push] {
                releases.append(ReleaseSummary.Release(item: item, facts: known, devices: devices))
            } else {
                let before = plan.deliveries.count
                router.add(steps, item, known, devices: devices, to: &plan)
                // A release's notification says itself that it waits for its provider.
                if kind != .release, plan.deliveries.count > before { handedOn.append(present[index].item) }
            }
        }
        // Another dispatcher may have taken them; if not, they come up again.
        guard fence.isOpen else { return taken.count }
        try await ReleaseSummary(dispatcher: self.dispatcher).add(releases, to: &plan)
        try await router.carryOut(plan)
        await self.dispatcher.tell(plan.told)
        try await self.dispatcher.followUps.remember(handedOn, takenUntil: until, now: now)
        // What was handed on, or put off again, has another moment by now, and stays.
        try await self.dispatcher.followUps.remove(taken.map(\.item), takenUntil: until)
        PipelineMetrics.followed.increment(by: taken.count)
        return taken.count
    }

    /// The gate, before anything is handed to a provider's stream.
    private func refusal(_ item: RouteItem, _ stand: FollowUpStore.Facts, _ facts: DecisionFacts) -> GateRefusal? {
        let notification = item.notification
        let isMail = item.progress == .due(.email)
        let isAttention = item.progress == .due(.attention)
        var gateFacts = GateFacts(
            status: notification.status,
            isRead: notification.readAt != nil,
            isDeleted: notification.deletedAt != nil,
            isReplaced: stand.isReplaced,
            expiresAt: notification.expiresAt,
            isDeviceActive: true,
            isOptedOut: facts.settings.isOptedOut || (isMail ? facts.preference.email : facts.preference.push) == false,
            isRequired: facts.type.isRequired,
            // Each device's own attempts are looked at when its turn comes.
            wasAccepted: isAttention && stand.wasAccepted
        )
        gateFacts.purpose = isMail ? .email : isAttention ? .attention : .reach
        return gate(gateFacts, now: facts.now)
    }

    /// What waited for a release that is not needed any more rests in the inbox; what had nothing but its e-mail is over.
    private func settle(
        _ notification: Notification,
        _ refusal: GateRefusal,
        _ kind: FollowUp,
        in plan: inout RoutePlan
    ) {
        let waitsForRelease = kind == .release && notification.status == .deferred
        let waitsForMail =
            kind == .email && notification.status == .pending && !notification.channels.contains(.inApp)
            && notification.statusReason != "queued"
        guard waitsForRelease || waitsForMail else { return }
        let rests = notification.channels.contains(.inApp)
        let status: NotificationStatus = refusal == .expired ? .expired : rests ? .sent : .suppressed
        plan.mark(notification, status, reason: refusal.rawValue, via: status == .sent ? "inbox" : nil)
        guard self.dispatcher.events.isOn, let told = LifecycleEvent.Kind(ending: status) else { return }
        let channel: DeliveryChannel? = status == .sent ? .inApp : nil
        plan.tell(told, notification, at: self.dispatcher.now(), channel: channel, reason: refusal.rawValue)
    }
}
