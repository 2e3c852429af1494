// Carillon · DigestService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage

/// Flushes digests whose windows are over.
///
/// However many dispatchers run, a window's summary is stored once: only the dispatcher with the
/// latest claim can store it, and a repeat has the same id.
package struct DigestService: Service {
    private static let interval: Duration = .milliseconds(500)
    private static let hold: Duration = .seconds(30)
    /// The delay of a window that exceeds the time limit even alone, for example behind a lock.
    private static let setback: Duration = .seconds(600)
    private static let batchSize = 128
    private static let eventsAtOnce = 1_000

    private let dispatcher: Dispatcher
    /// The time limit of a claim of several windows, waiting for an idle connection included.
    ///
    /// A claim locks its windows, and the intake waits for them.
    private let claimLimit: Duration

    package init(dispatcher: Dispatcher) {
        self.init(dispatcher: dispatcher, claimLimit: .seconds(2))
    }

    init(dispatcher: Dispatcher, claimLimit: Duration) {
        self.dispatcher = dispatcher
        self.claimLimit = claimLimit
    }

    package func run() async throws {
        // Halved while a batch exceeds the time limit. A window that exceeds it alone is put off.
        var size = Self.batchSize
        await self.dispatcher.untilShutdown("cannot flush digests; retrying") {
            do {
                var isFull = false
                repeat {
                    // A single window gets the whole time limit, because it cannot be halved.
                    isFull = try await self.flush(atMost: size, within: size > 1 ? self.claimLimit : nil) == size
                    size = min(size * 2, Self.batchSize)
                } while isFull && isRunning
            } catch let error as PostgresError
                where error.code == .timeout || error.code == .unavailable || error.isStatementTimeout
            {
                size = max(size / 2, 1)
                throw error
            }
        } wait: {
            await self.dispatcher.wait(for: self.dispatcher.alarms.digests, atLeast: Self.interval)
        }
    }

    /// Flushes a batch of windows.
    ///
    /// - Parameter time: the time limit of the claim; nil means the pool's.
    /// - Returns: how many there were.
    func flush(atMost limit: Int = Self.batchSize, within time: Duration? = nil) async throws -> Int {
        // First, so that nothing is claimed while all masters are away.
        let absent = try await AbsentParts.find(self.dispatcher)
        let now = self.dispatcher.now()
        let fence = self.dispatcher.fence(for: Self.hold)
        let claimed = try await self.claim(now: now, limit: limit, within: time)
        guard !claimed.isEmpty else { return 0 }
        // The windows of absent masters are due again after `hold`.
        let due = claimed.filter { !absent.contains($0.user) }
        guard let sent = try await self.send(due, now: now, within: fence) else {
            self.dispatcher.logger.warning(
                "lost the claim on digests; those that are left are due again", metadata: ["count": "\(due.count)"])
            return claimed.count
        }
        try await self.reportEvents(of: due, summaries: sent)
        let suppressed = sent.filter { $0.value.status == .suppressed }.map(\.key)
        try await self.dispatcher.retrying("remove digests") {
            try await self.dispatcher.database.digests.remove(due.map(\.id), suppressed: suppressed)
        }
        return claimed.count
    }

    /// Claims windows; puts off a single window that outlasts the time limit, so that it does not
    /// hold up the others.
    private func claim(
        now: Timestamp,
        limit: Int,
        within time: Duration?
    ) async throws(PostgresError) -> [DigestStore.Due] {
        let store = self.dispatcher.database.digests
        do throws(PostgresError) {
            return try await store.claim(now: now, until: now + Self.hold, limit: limit, timeout: time)
        } catch {
            // Without an answer, this process may have stalled, which says nothing about the
            // window.
            guard limit == 1, error.isStatementTimeout else { throw error }
            if let window = try await store.putOff(now: now, until: now + Self.setback) {
                self.dispatcher.logger.warning(
                    "a digest outlasts the time limit; retrying in ten minutes",
                    metadata: ["digest.id": "\(window)", "error": "\(error)"])
            }
            throw error
        }
    }

    /// Stores and routes summaries like any other notifications, by current preferences.
    ///
    /// A window without items has no summary, but the store makes its end final as well.
    ///
    /// - Returns: the summaries by window; nil if nothing is stored, because the claim has ended.
    private func send(
        _ windows: [DigestStore.Due],
        now: Timestamp,
        within fence: Fence
    ) async throws -> [NotificationID: Notification]? {
        guard !windows.isEmpty else { return [:] }
        let due = windows.filter { $0.count > 0 }
        let catalog = await self.dispatcher.catalog(forTypes: due.map(\.type))
        let keys = due.map { catalog.preferenceKey(user: $0.user, type: $0.type, needsLocale: true) }
        let preferences = try await self.dispatcher.retrying("look up preferences") {
            try await self.dispatcher.database.recipients.preferences(keys)
        }
        let decided = zip(due, preferences).map { digest, preference in
            var summary = self.summary(of: digest, catalog, locale: preference.settings.locale, now: now)
            if let type = catalog[summary.type] {
                self.dispatcher.decideStoring(&summary, type, preferences: preference, now: now)
            }
            return RoutedNotification(summary, .arrived, preferences: preference)
        }
        guard fence.isOpen else { return nil }
        let stored = try await self.dispatcher.retrying("store digests") {
            try await self.dispatcher.database.notifications.storeDigests(
                decided.map(\.notification), windows: windows.map(\.id), claimedUntil: now + Self.hold)
        }
        // Another dispatcher has claimed a window since, or a window is gone.
        guard let batch = stored else { return nil }
        var open: [RoutedNotification] = []
        var unowned: [Notification] = []
        var lifecycle: [LifecycleEvent] = []
        var summaries: [Notification] = []
        for (item, outcome) in zip(decided, batch.outcomes) {
            summaries.append(Self.stored(item.notification, outcome))
            // A lone item keeps its job's id, which may have been cancelled just now.
            lifecycle += self.dispatcher.events(of: item.notification, stored: outcome)
            if let item = item.toRoute(after: outcome) { open.append(item) }
            if outcome.isUnowned { unowned.append(item.notification) }
        }
        let router = Router(dispatcher: self.dispatcher)
        open.append(contentsOf: try await router.unowned(among: unowned))
        try await router.route(open, catalog: catalog, within: fence)
        try await router.publish(batch.replacements)
        await self.dispatcher.report(lifecycle + self.dispatcher.events(of: batch.replacements))
        return Dictionary(uniqueKeysWithValues: zip(due.map(\.id), summaries))
    }

    /// Returns a summary with the status of its row: an earlier attempt may have stored it with
    /// another status.
    private static func stored(_ summary: Notification, _ outcome: NotificationStore.Outcome) -> Notification {
        guard case .known(_, _, let status, _) = outcome, status != summary.status else { return summary }
        var summary = summary
        summary.status = status
        summary.statusReason = nil
        return summary
    }

    /// Reports the event of each item: the summary that replaces it, or why there is none.
    private func reportEvents(of due: [DigestStore.Due], summaries: [NotificationID: Notification]) async throws {
        guard self.dispatcher.events.isOn else { return }
        let now = self.dispatcher.now()
        let windows = Dictionary(uniqueKeysWithValues: due.map { ($0.id, $0) })
        var last: DigestStore.Held?
        // Also during a shutdown, because the windows are removed next.
        while true {
            let page = try await self.dispatcher.database.digests.held(
                in: due.map(\.id), after: last, limit: Self.eventsAtOnce)
            await self.dispatcher.report(
                page.compactMap { item in
                    guard let window = windows[item.window],
                        let end = Self.end(of: item, summary: summaries[item.window])
                    else { return nil }
                    let label = NotificationLabel(
                        id: item.id, user: window.user, type: window.type, category: item.category, org: window.org,
                        job: item.job)
                    return LifecycleEvent(end.kind, label, at: now, reason: end.reason)
                }
            )
            last = page.last
            if page.count < Self.eventsAtOnce { return }
        }
    }

    /// Returns the event of an item; nil if its end is unknown.
    private static func end(
        of item: DigestStore.Held,
        summary: Notification?
    ) -> (kind: LifecycleEvent.Kind, reason: String?)? {
        switch item.fate {
        case .cancelled: return (kind: .cancelled, reason: nil)
        case .expired: return (kind: .expired, reason: nil)
        case .read: return (kind: .suppressed, reason: DigestStore.Fate.read.rawValue)
        case .alone, .suppressed, nil:
            guard let summary else { return nil }
            guard summary.status != .suppressed else { return (kind: .suppressed, reason: summary.statusReason) }
            return (kind: .summarised, reason: summary.id.description)
        }
    }

    private func summary(
        of digest: DigestStore.Due,
        _ catalog: Catalog,
        locale: String?,
        now: Timestamp
    ) -> Notification {
        let type = catalog[digest.type] ?? NotificationType(name: digest.type)
        let content = self.content(of: digest, type: type, catalog, locale: locale)
        var summary = content.notification(
            id: digest.summary, user: digest.user, type: type, lane: digest.lane, createdAt: now)
        summary.org = digest.org
        summary.jobEntry = digest.alone?.entry ?? "digest/\(digest.id)"
        summary.jobID = digest.alone?.job
        return summary
    }

    /// Returns the content of a summary, or of a lone item as it is.
    private func content(
        of digest: DigestStore.Due,
        type: NotificationType,
        _ catalog: Catalog,
        locale: String?
    ) -> JobContent {
        var content = digest.alone?.content ?? JobContent(type: type.name)
        if digest.count > 1 {
            let text = SummaryText(
                count: digest.count, lines: digest.first, type: type.name, catalog: catalog, locale: locale)
            if let fault = text.fault {
                self.dispatcher.summaryFaults.report(fault, type: type.name, logger: self.dispatcher.logger)
            }
            (content.title, content.body) = (text.title, text.body)
            if digest.channels.contains(.email) { content.extras.platform = text.platform }
            content.data = SummaryText.data(
                count: digest.count, notifications: digest.first.map(\.id),
                hidesButtons: catalog.actions(of: type.name) != nil)
        }
        // Without its own lane, the summary would take the type's if that is more urgent.
        content.lane = digest.lane
        content.channels = digest.channels
        content.delivery = digest.delivery
        content.severity = digest.severity
        content.expiresAt = digest.expiresAt
        content.keepUntil = digest.keepUntil
        return content
    }
}

/// Gathers notifications in digests before they are stored.
struct DigestIntake: Sendable {
    let dispatcher: Dispatcher

    /// Gathers notifications.
    ///
    /// Halves a batch that PostgreSQL refuses until the bad item is alone, and a batch that
    /// outlasts its time limit until it does not.
    ///
    /// - Returns: an outcome for each. Only single and cancelled items are stored as notifications
    ///   now. The bad item counts as single, and its job becomes a dead letter when it is stored.
    func gather(_ items: [DigestStore.Item], now: Timestamp) async throws -> [DigestStore.Outcome] {
        guard !items.isEmpty else { return [] }
        let isFinal = { (error: any Error) in
            JobIntake.isRefusal(error) || items.count > 1 && JobIntake.isTooLong(error)
        }
        do {
            let outcomes = try await self.dispatcher.retrying("gather digests", isFinal: isFinal) {
                try await self.dispatcher.database.digests.gather(items, now: now)
            }
            PipelineMetrics.held.increment(by: outcomes.count { $0 == .held })
            return outcomes
        } catch let error as PostgresError where isFinal(error) {
            guard items.count > 1 else { return [.single] }
            let middle = items.count / 2
            return try await self.gather(Array(items[..<middle]), now: now)
                + self.gather(Array(items[middle...]), now: now)
        }
    }
}

extension Catalog {
    /// Returns the digest of a job's notifications; nil if it names none, or its type has no
    /// window.
    func digest(of content: JobContent) -> (key: String, rule: DigestRule)? {
        guard let key = content.digest, let rule = self[content.type]?.digest else { return nil }
        return (key, rule)
    }
}
