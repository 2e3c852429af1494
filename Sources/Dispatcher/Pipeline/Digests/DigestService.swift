// Carillon · DigestService.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import CoreMetrics
import Decision
import Logging
import Model
import ServiceLifecycle
import Stores
import Streams

/// Flushes digests whose windows are over, each exactly once however many dispatchers there are: the summary's id is made of
/// the window's.
package struct DigestService: Service {
    private static let interval: Duration = .milliseconds(500)
    private static let hold: Duration = .seconds(30)
    private static let batchSize = 128
    private static let toldAtOnce = 1_000
    /// How long the job ids of items are remembered.
    private static let memory: Duration = .seconds(90 * 24 * 3_600)

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        var round = 0
        while goesOn {
            do {
                while try await self.flush() == Self.batchSize, goesOn {}
                if round % 120 == 0 { try await self.forget() }
                round += 1
            } catch {
                self.dispatcher.logger.warning("digests cannot be flushed", metadata: ["error": "\(error)"])
            }
            // PostgreSQL tells nobody that a window is over, so it is asked, by index.
            await pause(for: Self.interval)
        }
    }

    private func flush() async throws -> Int {
        let now = self.dispatcher.now()
        let due = try await self.dispatcher.digests.take(now: now, until: now + Self.hold, limit: Self.batchSize)
        guard !due.isEmpty else { return 0 }
        let summaries = due.filter { $0.count > 0 }
        try await self.send(summaries, now: now)
        try await self.dispatcher.untilDone("remove digests") {
            try await self.dispatcher.digests.remove(due.map(\.id))
        }
        PipelineMetrics.summaries.increment(by: summaries.count)
        return due.count
    }

    /// Stores summaries as any other notifications are stored, by what their users want now, and sends them on their way.
    private func send(_ due: [DigestStore.Due], now: Timestamp) async throws {
        guard !due.isEmpty else { return }
        let catalog = self.dispatcher.catalog
        let keys = due.map { catalog.wishKey(user: $0.user, type: $0.type, needsLocale: true) }
        let wishes = try await self.dispatcher.untilDone("look up preferences") {
            try await self.dispatcher.recipients.wishes(keys)
        }
        let decided = zip(due, wishes).map { digest, wish in
            let summary = Self.summary(of: digest, catalog, locale: wish.settings.locale, now: now)
            return self.dispatcher.decideStoring(summary, catalog, wishes: wish, now: now)
        }
        let outcomes = try await self.dispatcher.untilDone("store digests") {
            try await self.dispatcher.notifications.store(decided, areRepeats: true)
        }
        var open: [StoredBatch.Open] = []
        var told: [LifecycleEvent] = []
        for ((notification, wish), outcome) in zip(zip(decided, wishes), outcomes) {
            if case .stored = outcome, let kind = LifecycleEvent.Kind(ending: notification.status) {
                told += self.dispatcher.event(kind, of: notification, reason: notification.statusReason)
            }
            if var item = StoredBatch.Open(notification, outcome) {
                item.wishes = wish
                open.append(item)
            }
        }
        try await Router(dispatcher: self.dispatcher).route(open)
        await self.dispatcher.tell(told)
        let windows = zip(due, decided).map { ($0.id, (due: $0, summary: $1)) }
        try await self.tell(Dictionary(uniqueKeysWithValues: windows), catalog)
    }

    /// Tells upstream apps of each item which summary stands for it.
    private func tell(
        _ windows: [NotificationID: (due: DigestStore.Due, summary: Notification)],
        _ catalog: Catalog
    ) async throws {
        guard self.dispatcher.events.isOn else { return }
        let now = self.dispatcher.now()
        var last: DigestStore.Held?
        while goesOn {
            let page = try await self.dispatcher.digests.held(
                in: Array(windows.keys), after: last, limit: Self.toldAtOnce)
            await self.dispatcher.tell(
                page.compactMap { item in
                    guard let (due, summary) = windows[item.window] else { return nil }
                    let label = NotificationLabel(
                        id: item.id, user: due.user, type: due.type, category: catalog[due.type]?.category,
                        org: due.org,
                        job: item.job)
                    return LifecycleEvent(.summarised, label, at: now, reason: summary.id.description)
                }
            )
            last = page.last
            if page.count < Self.toldAtOnce { return }
        }
    }

    private static func summary(
        of digest: DigestStore.Due,
        _ catalog: Catalog,
        locale: String?,
        now: Timestamp
    ) -> Notification {
        let type = catalog[digest.type] ?? NotificationType(name: digest.type)
        let origin = EntryDigest(
            stream: "digest",
            entry: "\(digest.id.milliseconds)-0",
            fields: [("id", Array(digest.id.description.utf8)[...])]
        )
        var content = JobContent(type: type.name)
        if digest.count == 1, let only = digest.first.first {
            (content.title, content.body, content.data) = (only.title, only.body, only.data)
        } else {
            let text = SummaryText(
                count: digest.count, lines: digest.first, type: type.name, catalog: catalog, locale: locale)
            (content.title, content.body) = (text.title, text.body)
            content.data = SummaryText.data(count: digest.count, notifications: digest.first.map(\.id))
        }
        var summary = NotificationDraft(content, type: type, lane: digest.lane, createdAt: now)
            .notification(id: NotificationID(origin: origin, user: digest.user), user: digest.user)
        summary.org = digest.org
        summary.jobEntry = "digest/\(digest.id)"
        return summary
    }

    private func forget() async throws {
        let before = try await self.dispatcher.notifications.clock() + (.zero - Self.memory)
        while try await self.dispatcher.digests.forget(before: before, limit: 1_000) == 1_000, goesOn {}
    }
}
