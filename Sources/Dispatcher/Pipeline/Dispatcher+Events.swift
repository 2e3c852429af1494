// Carillon · Dispatcher+Events.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Storage

/// What upstream apps are told.
extension Dispatcher {
    /// The event that says what became of a notification; none where events are off.
    func event(
        _ kind: LifecycleEvent.Kind,
        of notification: Notification,
        channel: DeliveryChannel? = nil,
        reason: String? = nil
    ) -> [LifecycleEvent] {
        guard self.events.isOn else { return [] }
        return [LifecycleEvent(kind, notification.label, at: self.now(), channel: channel, reason: reason)]
    }

    /// The events of what newer notifications took the place of, each with the newer one's id.
    func events(of replacements: [NotificationStore.Replacement]) -> [LifecycleEvent] {
        guard self.events.isOn, !replacements.isEmpty else { return [] }
        let now = self.now()
        return replacements.map { LifecycleEvent(.replaced, $0.label, at: now, reason: $0.newest.description) }
    }

    /// The events of what ended as nothing more of it is needed.
    func events(of ended: [EndedNotification]) -> [LifecycleEvent] {
        guard self.events.isOn, !ended.isEmpty else { return [] }
        let now = self.now()
        return ended.compactMap { $0.event(at: now) }
    }

    /// Tells what became of notifications that no entry in hand stands for.
    func tell(_ events: [LifecycleEvent]) async {
        guard self.events.isOn, !events.isEmpty else { return }
        do throws(RedisError) {
            try await self.events.append(events, on: self.redis)
            PipelineMetrics.events.written.increment(by: events.count)
        } catch {
            PipelineMetrics.events.lost.increment(by: events.count)
            self.logger.warning("events lost", metadata: ["count": "\(events.count)", "error": "\(error)"])
        }
    }
}
