// Carillon · JobIntake.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import CoreMetrics
import Decision
import JSON
import Model
import Postgres
import Stores
import Streams

/// The first stage: entries become valid jobs, jobs become stored notifications.
struct JobIntake: Sendable {
    /// A job and the notifications that it asks for.
    private struct Prepared {
        let entry: StreamEntry
        var notifications: [Notification]
    }

    /// Up to this many notifications, a batch is stored before its users' wishes are known.
    private static let smallBatch = 8
    static let conflictReason = "id: was used before with other content; give another id"

    let dispatcher: Dispatcher

    /// Decodes and stores a batch.
    ///
    /// - Parameter areRepeats: whether the entries were handed out before.
    func take(_ batch: LaneBatch, areRepeats: Bool) async throws -> StoredBatch {
        var stored = StoredBatch(group: batch.group)
        stored.finished = batch.entries.map(\.id)
        let now = self.dispatcher.now()
        var prepared: [Prepared] = []
        var broadcasts: [Broadcast] = []
        for entry in batch.entries {
            // An entry that was deleted while it was pending only has to be acknowledged.
            guard let fields = entry.fields else { continue }
            do throws(JobFaults) {
                let job = try JobDecoder.decode(fields) { self.dispatcher.catalog[$0] != nil }
                if let broadcast = self.broadcast(job, entry: entry, batch: batch, now: now) {
                    broadcasts.append(broadcast)
                    continue
                }
                switch job.payload {
                case .event(let name, let arguments) where job.audience == .everyone:
                    stored.eventsForEveryone.append(
                        StoredBatch.EventForEveryone(name: name, arguments: arguments, except: job.except)
                    )
                case .event(let name, let arguments):
                    for user in Self.users(job) {
                        stored.events.append(StoredBatch.Event(user: user, name: name, arguments: arguments))
                    }
                case .notification(let content):
                    let notifications = try self.notifications(
                        job,
                        content,
                        users: Self.users(job),
                        entry: entry,
                        stream: batch.group.stream,
                        lane: batch.lane,
                        now: now
                    )
                    prepared.append(Prepared(entry: entry, notifications: notifications))
                }
            } catch {
                stored.dead.append(self.letter(entry, batch.group.stream, reason: error.description, now: now))
            }
        }
        if try await !self.storeUnlessWished(&prepared, areRepeats: areRepeats, now: now, into: &stored) {
            try await self.storeAsWished(&prepared, areRepeats: areRepeats, now: now, into: &stored)
        }
        for job in prepared where stored.conflicts.contains("\(batch.group.stream)/\(job.entry.id)") {
            stored.dead.append(self.letter(job.entry, batch.group.stream, reason: Self.conflictReason, now: now))
        }
        try await self.store(broadcasts, into: &stored)
        return stored
    }

    private func storeAsWished(
        _ prepared: inout [Prepared],
        areRepeats: Bool,
        now: Timestamp,
        into stored: inout StoredBatch
    ) async throws {
        let keys = prepared.flatMap { $0.notifications.map { (user: $0.user, type: $0.type) } }
        let wishes = try await self.dispatcher.untilDone("look up preferences") {
            try await self.dispatcher.recipients.wishes(keys)
        }
        self.decideStoring(&prepared, wishes: wishes, now: now)
        try await self.store(prepared[...], areRepeats: areRepeats, into: &stored)
    }

    /// Stores a small batch as if its users had said nothing about what they want, which most have not; saves the round
    /// trip that would ask them.
    ///
    /// - Returns: false if it must be done the long way, in which case nothing was stored.
    private func storeUnlessWished(
        _ prepared: inout [Prepared],
        areRepeats: Bool,
        now: Timestamp,
        into stored: inout StoredBatch
    ) async throws -> Bool {
        let count = prepared.reduce(0) { $0 + $1.notifications.count }
        guard count <= Self.smallBatch else { return false }
        let original = prepared
        let nothing = [RecipientStore.Wishes](repeating: RecipientStore.Wishes(), count: count)
        self.decideStoring(&prepared, wishes: nothing, now: now)
        let distinct = Self.distinct(prepared.flatMap(\.notifications), conflicts: &stored.conflicts)
        do {
            let outcomes = try await self.dispatcher.untilDone(
                "store notifications",
                isFinal: { ($0 as? PostgresError)?.isRefusal ?? false }
            ) {
                try await self.dispatcher.notifications.storeUnlessWished(distinct, areRepeats: areRepeats)
            }
            if let outcomes {
                for (notification, outcome) in zip(distinct, outcomes) {
                    self.note(notification, outcome, into: &stored)
                }
                return true
            }
        } catch let error as PostgresError where error.isRefusal {}
        prepared = original
        return false
    }

    private func letter(_ entry: StreamEntry, _ stream: String, reason: String, now: Timestamp) -> DeadLetter {
        DeadLetter(stream: stream, entry: entry.id, reason: reason, at: now, fields: entry.fields ?? [])
    }

    private static func users(_ job: Job) -> [String] {
        guard case .users(let users) = job.audience else { return [] }
        guard !job.except.isEmpty else { return users }
        let except = Set(job.except.map { ExactText($0) })
        return users.filter { !except.contains(ExactText($0)) }
    }

    func notifications(
        _ job: Job,
        _ content: JobContent,
        users: [String],
        entry: StreamEntry,
        stream: String,
        lane: Lane,
        now: Timestamp
    ) throws(JobFaults) -> [Notification] {
        guard let type = self.dispatcher.catalog[content.type] else {
            throw JobFaults([JobFault("type", "is not in the catalog")])
        }
        let digest = EntryDigest(stream: stream, entry: entry.id, fields: entry.fields ?? [])
        let milliseconds = Int64(entry.id.prefix { $0 != "-" }) ?? now.milliseconds
        let createdAt = min(Timestamp(milliseconds: milliseconds), now)
        return users.map { user in
            var notification = Notification(
                id: NotificationID(origin: digest, user: user),
                user: user,
                type: type.name,
                createdAt: createdAt
            )
            notification.jobEntry = "\(stream)/\(entry.id)"
            notification.org = job.org
            notification.jobID = job.id
            notification.severity = content.severity ?? type.severity
            notification.delivery = content.delivery ?? type.delivery
            notification.lane = Lane.mostUrgent(content.lane ?? type.lane, lane)
            notification.channels = content.channels ?? .all
            notification.title = content.title
            notification.body = content.body
            notification.data = content.data
            notification.extras = content.extras
            notification.extras.sound = content.extras.sound ?? type.sound
            notification.category = content.category ?? type.category
            notification.entityType = content.entityType
            notification.entityID = content.entityID
            notification.collapseKey = content.collapseKey
            notification.expiresAt = content.expiresAt ?? (createdAt + type.timeToLive)
            notification.keepUntil = content.keepUntil
            return notification
        }
    }

    /// Fills in status and channels from what the users want.
    private func decideStoring(_ prepared: inout [Prepared], wishes: [RecipientStore.Wishes], now: Timestamp) {
        var rest = wishes[...]
        for job in prepared.indices {
            let count = prepared[job].notifications.count
            self.decideStoring(&prepared[job].notifications, wishes: rest.prefix(count), now: now)
            rest = rest.dropFirst(count)
        }
    }

    func decideStoring(
        _ notifications: inout [Notification],
        wishes: ArraySlice<RecipientStore.Wishes>,
        now: Timestamp
    ) {
        for (index, wish) in zip(notifications.indices, wishes) {
            guard let type = self.dispatcher.catalog[notifications[index].type] else { continue }
            var facts = DecisionFacts(notification: notifications[index], type: type, progress: .arrived, now: now)
            facts.preference = wish.preference
            facts.settings.isOptedOut = wish.isOptedOut
            for case .store(let status, let reason, let channels) in decide(facts) {
                notifications[index].status = status
                notifications[index].statusReason = reason?.rawValue
                notifications[index].channels = channels
            }
        }
    }

    /// Stores jobs as one batch; a batch that PostgreSQL refuses is halved until the culprit stands alone.
    private func store(_ jobs: ArraySlice<Prepared>, areRepeats: Bool, into stored: inout StoredBatch) async throws {
        guard !jobs.isEmpty else { return }
        let distinct = Self.distinct(jobs.flatMap(\.notifications), conflicts: &stored.conflicts)
        do {
            let outcomes = try await self.dispatcher.untilDone(
                "store notifications",
                isFinal: { ($0 as? PostgresError)?.isRefusal ?? false }
            ) {
                try await self.dispatcher.notifications.store(distinct, areRepeats: areRepeats)
            }
            for (notification, outcome) in zip(distinct, outcomes) {
                self.note(notification, outcome, into: &stored)
            }
        } catch let error as PostgresError where error.isRefusal {
            if jobs.count == 1, let culprit = jobs.first {
                let reason = "PostgreSQL refused it: SQLSTATE \(error.sqlState ?? "unknown")"
                let now = self.dispatcher.now()
                stored.dead.append(self.letter(culprit.entry, stored.group.stream, reason: reason, now: now))
                return
            }
            let middle = jobs.startIndex + jobs.count / 2
            try await self.store(jobs[..<middle], areRepeats: areRepeats, into: &stored)
            try await self.store(jobs[middle...], areRepeats: areRepeats, into: &stored)
        }
    }

    /// Leaves out what a batch holds twice: the later of two with the same user, org and job id.
    private static func distinct(_ notifications: [Notification], conflicts: inout Set<String>) -> [Notification] {
        struct Key: Hashable {
            let user: ExactText
            let org: ExactText
            let job: ExactText
        }
        var seen: [Key: Notification] = [:]
        var distinct: [Notification] = []
        for notification in notifications {
            guard let job = notification.jobID else {
                distinct.append(notification)
                continue
            }
            let key = Key(
                user: ExactText(notification.user),
                org: ExactText(notification.org),
                job: ExactText(job)
            )
            if let first = seen[key] {
                if !first.says(whatIsSaidBy: notification) { conflicts.insert(notification.jobEntry) }
            } else {
                seen[key] = notification
                distinct.append(notification)
            }
        }
        return distinct
    }

    private func note(
        _ notification: Notification,
        _ outcome: NotificationStore.Outcome,
        into stored: inout StoredBatch
    ) {
        var notification = notification
        switch outcome {
        case .stored(let version, let unread):
            guard notification.status == .pending else { return }
            notification.version = version
            stored.open.append(StoredBatch.Open(notification: notification, unread: unread, isRepeat: false))
        case .known(let version, let unread, let status, let isOwned):
            guard status == .pending, !isOwned else { return }
            notification.version = version
            stored.open.append(StoredBatch.Open(notification: notification, unread: unread, isRepeat: true))
        case .duplicate:
            return
        case .conflict:
            stored.conflicts.insert(notification.jobEntry)
        case .cancelled:
            PipelineMetrics.cancelled.increment()
        }
    }
}

extension Notification {
    /// Whether two notifications of the same job id agree, as PostgreSQL compares them.
    fileprivate func says(whatIsSaidBy other: Notification) -> Bool {
        ExactText(self.type) == ExactText(other.type) && ExactText(self.title) == ExactText(other.title)
            && ExactText(self.body) == ExactText(other.body)
            && self.data.flatMap { try? JSONParser.parse($0) } == other.data.flatMap { try? JSONParser.parse($0) }
    }
}
