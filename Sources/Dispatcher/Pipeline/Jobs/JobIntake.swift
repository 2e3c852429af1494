// Carillon · JobIntake.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Providers
import Storage

/// The first stage: entries become valid jobs, jobs become stored notifications.
struct JobIntake: Sendable {
    static let conflictReason = "id: was used before with other content; give another id"

    let dispatcher: Dispatcher

    /// Decodes and stores a batch.
    func take(_ batch: LaneBatch) async throws -> StoredBatch {
        let catalog = self.dispatcher.catalog
        let areRepeats = batch.areRepeats
        var stored = StoredBatch(group: batch.group, catalog: catalog, fence: Fence(batch.term))
        stored.finished = batch.entries.map(\.id)
        let now = self.dispatcher.now()
        var sorted = StageClock.decode.measure { self.sort(batch, catalog, now: now, into: &stored) }
        defer { sorted.spans.end() }
        stored.dead += try await ScheduleIntake(dispatcher: self.dispatcher).store(sorted.waiting, now: now)
        try await self.storeAsWished(&sorted.jobs, catalog, areRepeats: areRepeats, now: now, into: &stored)
        for job in sorted.jobs where job.isConflicting || stored.conflicts.contains(job.origin.text) {
            stored.dead.append(self.letter(job.origin, reason: Self.conflictReason, now: now))
        }
        try await self.store(sorted.broadcasts, into: &stored)
        self.log(sorted.jobs)
        return stored
    }

    /// The jobs of a batch by what is done about them.
    private struct Sorted {
        var jobs: [PreparedJob] = []
        /// What is due later.
        var waiting: [ScheduleIntake.Waiting] = []
        var broadcasts: [Broadcast] = []
        var spans = JobSpans()
    }

    /// Decodes a batch; events and letters go to `stored`.
    private func sort(
        _ batch: LaneBatch,
        _ catalog: Catalog,
        now: Timestamp,
        into stored: inout StoredBatch
    ) -> Sorted {
        var sorted = Sorted()
        for entry in batch.entries {
            // An entry that was deleted while it was pending only has to be acknowledged.
            guard let fields = entry.fields else { continue }
            let origin = JobOrigin(stream: batch.group.stream, entry: entry.id, fields: fields)
            do throws(JobFaults) {
                var job = try catalog.job(origin.fields, providers: ProviderKinds.providers)
                if job.id == nil, case .notification(let content) = job.payload, content.deliverAt != nil {
                    // A scheduled job has its entry's name for an id, and this one may be taken
                    // again after it has come.
                    job.id = origin.text
                }
                // One that was moved keeps the lane that it came by.
                let isMoved = origin.latestStream != batch.group.stream
                let lane = (isMoved ? self.dispatcher.keys.lane(ofJobs: origin.latestStream) : nil) ?? batch.lane
                if case .notification(let content) = job.payload, ScheduleIntake.isLater(job, content, now: now) {
                    let wanted = content.lane ?? catalog[content.type]?.lane ?? .normal
                    sorted.waiting.append(
                        .init(origin: origin, job: job, content: content, lane: .mostUrgent(wanted, lane)))
                    continue
                }
                if let broadcast = self.broadcast(job, catalog, origin: origin, lane: lane, now: now) {
                    sorted.broadcasts.append(broadcast)
                    continue
                }
                switch job.payload {
                case .event(let name, let arguments) where job.audience == .everyone:
                    stored.eventsForEveryone.append(
                        StoredBatch.EventForEveryone(
                            entry: entry.id, name: name, arguments: arguments, except: job.except)
                    )
                case .event(let name, let arguments):
                    for user in Self.users(job) {
                        stored.events.append(
                            StoredBatch.Event(entry: entry.id, user: user, name: name, arguments: arguments))
                    }
                case .notification(var content):
                    sorted.spans.begin(&content, origin: origin, lane: lane, now: now)
                    sorted.jobs.append(
                        try self.prepare(
                            job, content, catalog, users: Self.users(job), origin: origin, lane: lane, now: now))
                }
            } catch {
                stored.dead.append(self.letter(origin, reason: error.description, now: now))
            }
        }
        return sorted
    }

    private func storeAsWished(
        _ prepared: inout [PreparedJob],
        _ catalog: Catalog,
        areRepeats: Bool,
        now: Timestamp,
        into stored: inout StoredBatch
    ) async throws {
        let wishes = try await self.complete(
            &prepared, catalog, now: now, dead: &stored.dead, told: &stored.told)
        try await self.store(prepared[...], areRepeats: areRepeats, into: &stored)
        let nothing = RecipientStore.Wishes()
        stored.setWishes { wishes[$0] ?? nothing }
    }

    /// Asks what the users want, decides how their notifications are stored, puts the words in and holds back what waits for a
    /// digest.
    ///
    /// - Parameters:
    ///   - dead: gets letters for those whose locale has no words.
    ///   - told: gets events of what waits for a digest.
    /// - Returns: the wishes of those who have said anything.
    func complete(
        _ prepared: inout [PreparedJob],
        _ catalog: Catalog,
        now: Timestamp,
        dead: inout [DeadLetter],
        told: inout [LifecycleEvent]
    ) async throws -> [NotificationID: RecipientStore.Wishes] {
        let keys = prepared.flatMap { job in
            job.notifications.map { catalog.wishKey(user: $0.user, type: $0.type, needsLocale: job.needsLocale) }
        }
        let wishes = try await self.dispatcher.untilDone("look up preferences") {
            try await self.dispatcher.recipients.wishes(keys)
        }
        // Most users have said nothing.
        let nothing = RecipientStore.Wishes()
        var special: [NotificationID: RecipientStore.Wishes] = [:]
        let ids = prepared.lazy.flatMap { job in job.notifications.indices.lazy.map { job.notifications[$0].id } }
        for (id, wish) in zip(ids, wishes) where wish != nothing { special[id] = wish }
        StageClock.decide.measure { self.decideStoring(&prepared, catalog, wishes: wishes, now: now) }
        dead += StageClock.word.measure { self.word(&prepared, wishes: wishes, now: now) }
        told += try await self.gather(&prepared, catalog, now: now)
        return special
    }

    private func letter(_ origin: JobOrigin, reason: String, now: Timestamp) -> DeadLetter {
        DeadLetter(
            stream: origin.latestStream,
            entry: origin.latestEntry,
            reason: reason,
            at: now,
            fields: origin.latestFields
        )
    }

    /// Whom a job is for.
    static func users(_ job: Job) -> [String] {
        guard case .users(let users) = job.audience else { return [] }
        guard !job.except.isEmpty else { return users }
        let except = Set(job.except.map { ExactText($0) })
        return users.filter { !except.contains(ExactText($0)) }
    }

    /// A job and its notifications, before what their users want is known.
    ///
    /// - Parameter createdAt: when the job was made, if that is known better than by its entry's id.
    func prepare(
        _ job: Job,
        _ content: JobContent,
        _ catalog: Catalog,
        users: [String],
        origin: JobOrigin,
        lane: Lane,
        createdAt: Timestamp? = nil,
        now: Timestamp
    ) throws(JobFaults) -> PreparedJob {
        try PreparedJob(
            origin: origin,
            notifications: try self.notifications(
                job, content, catalog, users: users, origin: origin, lane: lane,
                createdAt: createdAt ?? min(Timestamp(milliseconds: origin.milliseconds ?? now.milliseconds), now)),
            wording: JobWording(content, catalog: catalog),
            digest: catalog.digest(of: content)
        )
    }

    private func notifications(
        _ job: Job,
        _ content: JobContent,
        _ catalog: Catalog,
        users: [String],
        origin: JobOrigin,
        lane: Lane,
        createdAt: Timestamp
    ) throws(JobFaults) -> [Notification] {
        guard let type = catalog[content.type] else {
            throw JobFaults([JobFault("type", "is not in the catalog")])
        }
        let digest = EntryDigest(stream: origin.stream, entry: origin.entry, fields: origin.fields)
        let draft = NotificationDraft(content, type: type, lane: lane, createdAt: createdAt)
        return users.map { user in
            var notification = draft.notification(id: NotificationID(origin: digest, user: user), user: user)
            notification.jobEntry = origin.text
            notification.org = job.org
            notification.jobID = job.id
            return notification
        }
    }

    /// Fills in status and channels from what the users want.
    private func decideStoring(
        _ prepared: inout [PreparedJob],
        _ catalog: Catalog,
        wishes: [RecipientStore.Wishes],
        now: Timestamp
    ) {
        var position = 0
        for job in prepared.indices {
            for index in prepared[job].notifications.indices {
                prepared[job].notifications[index] = self.dispatcher.decideStoring(
                    prepared[job].notifications[index], catalog, wishes: wishes[position], now: now)
                position += 1
            }
        }
    }

    /// Takes out what waits for its digest, and notes which jobs' ids came before with other content.
    ///
    /// What was cancelled before it came stays, to be stored as cancelled.
    ///
    /// - Returns: what upstream apps are told of it.
    private func gather(
        _ prepared: inout [PreparedJob],
        _ catalog: Catalog,
        now: Timestamp
    ) async throws -> [LifecycleEvent] {
        let items = prepared.flatMap { job in
            job.digest.map { digest in
                job.notifications.filter { $0.status == .pending }.map {
                    DigestStore.Item(notification: Self.item($0, catalog), key: digest.key, rule: digest.rule)
                }
            } ?? []
        }
        guard !items.isEmpty else { return [] }
        let outcomes = try await DigestIntake(dispatcher: self.dispatcher).gather(items, now: now)
        var taken: Set<NotificationID> = []
        var repeated: Set<NotificationID> = []
        var conflicting: Set<NotificationID> = []
        var told: [LifecycleEvent] = []
        for (item, outcome) in zip(items, outcomes) {
            switch outcome {
            case .single, .cancelled: continue
            case .held: told += self.dispatcher.event(.deferred, of: item.notification, reason: "digest")
            case .duplicate: repeated.insert(item.notification.id)
            case .conflict:
                repeated.insert(item.notification.id)
                conflicting.insert(item.notification.id)
            }
            taken.insert(item.notification.id)
        }
        for job in prepared.indices {
            prepared[job].repeated = prepared[job].notifications.count { repeated.contains($0.id) }
            prepared[job].isConflicting = prepared[job].notifications.contains { conflicting.contains($0.id) }
            prepared[job].notifications.removeAll { taken.contains($0.id) }
        }
        return told
    }

    /// A notification as it waits for its digest: its type's time to live begins with the summary, its own moment holds.
    private static func item(_ notification: Notification, _ catalog: Catalog) -> Notification {
        var item = notification
        if let type = catalog[item.type], item.expiresAt == item.createdAt + type.timeToLive { item.expiresAt = nil }
        return item
    }

    /// Stores jobs as one batch; a batch that PostgreSQL refuses is halved until the culprit stands alone.
    private func store(_ jobs: ArraySlice<PreparedJob>, areRepeats: Bool, into stored: inout StoredBatch) async throws {
        guard !jobs.isEmpty else { return }
        let distinct = Self.distinct(jobs.flatMap(\.notifications), conflicts: &stored.conflicts)
        do {
            let batch = try await self.dispatcher.untilDone(
                "store notifications",
                isFinal: { ($0 as? PostgresError)?.isRefusal ?? false }
            ) {
                try await self.dispatcher.notifications.storeBatch(distinct, areRepeats: areRepeats)
            }
            for (notification, outcome) in zip(distinct, batch.outcomes) {
                self.note(notification, outcome, into: &stored)
            }
            stored.replaced += batch.replacements
            stored.told += self.dispatcher.events(of: batch.replacements)
        } catch let error as PostgresError where error.isRefusal {
            if jobs.count == 1, let culprit = jobs.first {
                let reason = "PostgreSQL refused it: SQLSTATE \(error.sqlState ?? "unknown")"
                let now = self.dispatcher.now()
                stored.dead.append(self.letter(culprit.origin, reason: reason, now: now))
                return
            }
            let middle = jobs.startIndex + jobs.count / 2
            try await self.store(jobs[..<middle], areRepeats: areRepeats, into: &stored)
            try await self.store(jobs[middle...], areRepeats: areRepeats, into: &stored)
        }
    }

    /// Notes for upstream apps what was stored and goes no further.
    private func tell(_ notification: Notification, into stored: inout StoredBatch) {
        guard let kind = LifecycleEvent.Kind(ending: notification.status) else { return }
        stored.told += self.dispatcher.event(kind, of: notification, reason: notification.statusReason)
    }

    private func note(
        _ notification: Notification,
        _ outcome: NotificationStore.Outcome,
        into stored: inout StoredBatch
    ) {
        switch outcome {
        case .stored, .known:
            if case .stored = outcome, notification.status != .pending {
                self.tell(notification, into: &stored)
            } else if let open = StoredBatch.Open(notification, outcome) {
                stored.open.append(open)
            } else if let shown = StoredBatch.shown(notification, outcome) {
                stored.shown.append(shown)
            }
        case .duplicate, .replaced:
            return
        case .conflict:
            stored.conflicts.insert(notification.jobEntry)
        case .cancelled:
            PipelineMetrics.cancelled.increment()
            stored.told += self.dispatcher.event(.cancelled, of: notification)
        }
    }
}
