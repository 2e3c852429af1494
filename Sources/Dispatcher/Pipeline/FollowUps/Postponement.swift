// Carillon · Postponement.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Storage

/// A notification that is to be looked at again, and when.
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
    /// Puts off, and has looked at anew at once whatever waits by quiet hours that its user has changed meanwhile.
    ///
    /// Whoever changes quiet hours stores them and then looks for what waits; here it is put off first, and then the quiet hours are
    /// looked at. So one of the two sees the other, whichever comes first.
    func putOff(_ postponements: [Postponement]) async throws {
        guard !postponements.isEmpty else { return }
        let items = postponements.map { ($0.item, $0.due, $0.reason) }
        let critical = Set(postponements.lazy.filter { $0.notification.lane == .critical }.map(\.notification.id))
        try await self.untilDone("put off") {
            try await self.followUps.put(items, critical: critical, now: self.now())
        }
        PipelineMetrics.postponed.increment(by: items.count)
        let quiet = postponements.filter { $0.reason == Reason.quietHours.rawValue }
        guard !quiet.isEmpty else { return }
        let catalog = self.catalog
        let keys = quiet.map { catalog.wishKey(user: $0.notification.user, type: $0.notification.type) }
        let wishes = try await self.untilDone("look up preferences") { try await self.recipients.wishes(keys) }
        let now = self.now()
        let outdated = zip(quiet, wishes).compactMap { postponement, wishes in
            self.releaseMoment(of: postponement.notification, wishes: wishes, now: now) == postponement.due
                ? nil : (postponement.item, postponement.due)
        }
        guard !outdated.isEmpty else { return }
        try await self.untilDone("look again") { try await self.followUps.hasten(outdated, now: now) }
    }
}
