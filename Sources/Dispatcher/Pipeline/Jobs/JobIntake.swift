// Carillon · JobIntake.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Operations
import Storage

/// The first stage: decodes entries as jobs and stores their notifications.
struct JobIntake: Sendable {
    static let conflictReason = "id: was used before with other content; give another id"

    let dispatcher: Dispatcher

    /// A batch on its way into PostgreSQL.
    struct Intake {
        let batch: LaneBatch
        let now: Timestamp
        var stored: StoredBatch
        var jobs: [PreparedJob] = []
        /// Jobs that are due later.
        var later: [ScheduleIntake.Waiting] = []
        var broadcasts: [Broadcast] = []
        var spans = JobSpans()
        /// The fields of jobs whose type or template the catalog lacks.
        var unknownToCatalog: [[(name: String, value: ArraySlice<UInt8>)]] = []

        /// Records the entry that each dead letter's origin came in.
        fileprivate mutating func recordDeadEntries() {
            guard !self.stored.dead.isEmpty else { return }
            for entry in self.batch.entries {
                let origin = JobOrigin(stream: self.batch.group.stream, entry: entry.id, fields: entry.fields ?? [])
                self.stored.deadEntries[ExactText("\(origin.latestStream)/\(origin.latestEntry)")] = entry.id
            }
        }
    }

    /// Decodes and stores a batch.
    func store(_ batch: LaneBatch) async throws -> StoredBatch {
        let now = self.dispatcher.now()
        var intake = self.decode(batch, self.dispatcher.catalog, now: now)
        if !intake.unknownToCatalog.isEmpty,
            let newer = await self.dispatcher.catalogs.newer(
                than: intake.stored.catalog, for: intake.unknownToCatalog, logger: self.dispatcher.logger)
        {
            // The spans of the first pass never end, so no trace shows them.
            intake = self.decode(batch, newer, now: now)
        }
        let (catalog, spans) = (intake.stored.catalog, intake.spans)
        defer { spans.end() }
        intake.stored.dead += try await ScheduleIntake(dispatcher: self.dispatcher).store(intake.later, now: now)
        try await self.dropCancelledEvents(&intake)
        try await self.dropLeavers(&intake)
        try await self.complete(
            &intake.jobs, catalog, now: now, dead: &intake.stored.dead, lifecycle: &intake.stored.lifecycle)
        self.dropRefused(&intake)
        try await self.store(intake.jobs[...], into: &intake)
        self.refuseConflicts(&intake)
        try await self.store(intake.broadcasts)
        intake.recordDeadEntries()
        self.log(intake.jobs)
        return intake.stored
    }

    /// Decodes the entries of a batch.
    private func decode(_ batch: LaneBatch, _ catalog: Catalog, now: Timestamp) -> Intake {
        let fence = Fence(batch.term, instant: self.dispatcher.clock.instant)
        let stored = StoredBatch(group: batch.group, catalog: catalog, fence: fence)
        var intake = Intake(batch: batch, now: now, stored: stored)
        intake.jobs.reserveCapacity(batch.entries.count)
        intake.stored.toAcknowledge = batch.entries.map(\.id)
        for entry in batch.entries {
            // An entry that was deleted while it was pending only needs its acknowledgement.
            guard let fields = entry.fields else { continue }
            var origin = JobOrigin(stream: batch.group.stream, entry: entry.id, fields: fields)
            if let first = batch.firstEntries[entry.id] { origin.jobEntry = first }
            do throws(JobFaults) {
                var job = try catalog.job(origin.fields)
                // A scheduled job without an id gets its entry as its id, so that taking it again
                // when it is due changes nothing.
                if job.id == nil, case .notification(let content) = job.payload, content.deliverAt != nil {
                    job.id = origin.text
                }
                try self.add(job, origin, entry, to: &intake)
            } catch {
                if error.areOfCatalog { intake.unknownToCatalog.append(origin.fields) }
                intake.stored.dead.append(DeadLetter(origin, reason: error.description, at: now))
            }
        }
        return intake
    }

    /// Adds a decoded job to the list of its kind.
    private func add(_ job: Job, _ origin: JobOrigin, _ entry: StreamEntry, to intake: inout Intake) throws(JobFaults) {
        let (catalog, now) = (intake.stored.catalog, intake.now)
        // A job that was moved to an overflow keeps its lane.
        let isMoved = origin.latestStream != intake.batch.group.stream
        let lane = (isMoved ? self.dispatcher.keys.lane(ofJobs: origin.latestStream) : nil) ?? intake.batch.lane
        switch job.payload {
        case .event(let name, let arguments):
            if let broadcast = self.broadcast(job, catalog, origin: origin, lane: lane, now: now) {
                return intake.broadcasts.append(broadcast)
            }
            let body = StoredBatch.body(name, arguments)
            let except = Set(job.except.map { ExactText($0) })
            let frames =
                job.audience == .everyone
                ? [NodeFrame(kind: .event, user: "", body: body, everyoneBut: except)]
                : Self.users(job).map { NodeFrame(kind: .event, user: $0, body: body) }
            intake.stored.events.append(
                .init(entry: entry.id, jobEntry: origin.jobEntry, org: job.org, job: job.id, frames: frames))
        case .notification(var content):
            if ScheduleIntake.isLater(job, content, now: now) {
                return intake.later.append(
                    .init(origin: origin, job: job, content: content, lane: min(catalog.lane(of: content), lane)))
            }
            if let broadcast = self.broadcast(job, catalog, origin: origin, lane: lane, now: now) {
                return intake.broadcasts.append(broadcast)
            }
            intake.spans.begin(&content, origin: origin, lane: lane, now: now)
            intake.jobs.append(
                try self.prepare(job, content, catalog, users: Self.users(job), origin: origin, lane: lane, now: now))
        }
    }

    /// Drops the events whose job was cancelled before it came.
    ///
    /// Events have no row, so no later statement would notice the cancellation.
    private func dropCancelledEvents(_ intake: inout Intake) async throws {
        let events = intake.stored.events
        guard !events.isEmpty else { return }
        let cancelled = try await self.dispatcher.retrying("look for cancelled events") {
            try await self.dispatcher.database.cancellations.cancelled(
                events.map { (org: $0.org, job: $0.job, entry: $0.jobEntry) })
        }
        guard !cancelled.isEmpty else { return }
        let entries = Set(cancelled.map { events[$0].entry })
        intake.stored.events.removeAll { entries.contains($0.entry) }
    }

    /// Adds dead letters about the users who have a job's id with other content.
    private func refuseConflicts(_ intake: inout Intake) {
        // Conflicts are rare, and the loop copies each job.
        guard !intake.stored.conflicts.isEmpty || intake.jobs.contains(where: { !$0.conflicting.isEmpty }) else {
            return
        }
        for job in intake.jobs {
            let origin = job.origin
            let conflicting = job.conflicting.union(intake.stored.conflicts[origin.jobEntry] ?? [])
            guard !conflicting.isEmpty else { continue }
            // Parts of a job that fire together share an entry, so keep the users of this part.
            var users = job.users.filter { conflicting.contains(ExactText($0)) }
            guard !users.isEmpty else { continue }
            var reason = Self.conflictReason
            // An entry has one letter, so this one is also about the users whose text failed.
            if !job.unrendered.isEmpty,
                let index = intake.stored.dead.lastIndex(where: {
                    $0.stream == origin.latestStream && $0.entry == origin.latestEntry
                })
            {
                reason = "\(intake.stored.dead.remove(at: index).reason); \(reason)"
                let concerned = conflicting.union(job.unrendered)
                users = job.users.filter { concerned.contains(ExactText($0)) }
            }
            intake.stored.dead.append(
                DeadLetter(
                    stream: origin.latestStream, entry: origin.latestEntry, reason: reason, at: intake.now,
                    fields: job.fields(for: users)))
        }
    }

    /// Looks up the users' preferences, decides how notifications are stored, renders texts, and
    /// gathers digests.
    ///
    /// - Parameters:
    ///   - dead: receives letters for users in whose locale a text cannot be rendered.
    ///   - lifecycle: receives the events of notifications that a digest holds.
    func complete(
        _ prepared: inout [PreparedJob],
        _ catalog: Catalog,
        now: Timestamp,
        dead: inout [DeadLetter],
        lifecycle: inout [LifecycleEvent]
    ) async throws {
        var keys: [RecipientStore.Key] = []
        for job in prepared {
            for item in job.notifications {
                keys.append(
                    RecipientStore.Key(
                        user: item.notification.user, type: job.type.name, category: job.type.category,
                        needsLocale: job.needsLocale))
            }
        }
        let preferences = try await self.dispatcher.retrying("look up preferences") {
            try await self.dispatcher.database.recipients.preferences(keys)
        }
        self.decideStoring(&prepared, preferences: preferences, now: now)
        dead += self.render(&prepared, now: now)
        lifecycle += try await self.gather(&prepared, catalog, now: now)
    }

    /// Returns the users that a job names, without the excepted ones.
    static func users(_ job: Job) -> [String] {
        guard case .users(let users) = job.audience else { return [] }
        guard !job.except.isEmpty else { return users }
        let except = Set(job.except.map { ExactText($0) })
        return users.filter { !except.contains(ExactText($0)) }
    }

    /// Prepares a job's notifications, before their users' preferences are known.
    ///
    /// - Parameter createdAt: the time of the job; by default that of its entry's id, or its
    ///   `deliver_at` if that is later.
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
        guard let type = catalog[content.type] else {
            throw JobFaults([JobFault("type", "is not in the catalog")])
        }
        let digest = origin.digest
        let createdAt = createdAt ?? origin.createdAt(deliverAt: content.deliverAt, now: now)
        let notifications = users.map { user in
            var notification = content.notification(
                id: NotificationID(origin: digest, user: user), user: user, type: type, lane: lane,
                createdAt: createdAt)
            notification.jobEntry = origin.jobEntry
            notification.org = job.org
            notification.jobID = job.id
            return RoutedNotification(notification, .arrived)
        }
        return try PreparedJob(
            origin: origin,
            type: type,
            notifications: notifications,
            wording: JobWording(content, type: type, catalog: catalog),
            digest: catalog.digest(of: content)
        )
    }

    /// Sets preferences, status and channels.
    private func decideStoring(
        _ prepared: inout [PreparedJob],
        preferences: [RecipientStore.Preferences],
        now: Timestamp
    ) {
        var position = 0
        for job in prepared.indices {
            let type = prepared[job].type
            for index in prepared[job].notifications.indices {
                prepared[job].notifications[index].preferences = preferences[position]
                self.dispatcher.decideStoring(
                    &prepared[job].notifications[index].notification, type, preferences: preferences[position],
                    now: now)
                position += 1
            }
        }
    }

    /// Renders the texts of jobs.
    ///
    /// - Returns: dead letters for the users whose text cannot be rendered.
    private func render(_ prepared: inout [PreparedJob], now: Timestamp) -> [DeadLetter] {
        var letters: [DeadLetter] = []
        for job in prepared.indices {
            guard let refusal = prepared[job].render() else { continue }
            letters.append(
                DeadLetter(
                    stream: prepared[job].origin.latestStream,
                    entry: prepared[job].letterEntry(refusal.fields),
                    reason: refusal.faults.description,
                    at: now,
                    fields: refusal.fields
                )
            )
        }
        return letters
    }

    /// Gathers the notifications of types with digests, removes those that a digest holds, and
    /// marks the users whose digest has the job's id with other content.
    ///
    /// Notifications that were cancelled before they came stay, and are stored as cancelled.
    ///
    /// - Returns: the events for upstream apps.
    private func gather(
        _ prepared: inout [PreparedJob],
        _ catalog: Catalog,
        now: Timestamp
    ) async throws -> [LifecycleEvent] {
        guard prepared.contains(where: { $0.digest != nil }) else { return [] }
        let items = prepared.flatMap { job in
            job.digest.map { digest in
                job.notifications.filter { $0.notification.status == .pending }.map {
                    DigestStore.Item(
                        notification: Self.item($0.notification, catalog), key: digest.key, rule: digest.rule)
                }
            } ?? []
        }
        guard !items.isEmpty else { return [] }
        let outcomes = try await DigestIntake(dispatcher: self.dispatcher).gather(items, now: now)
        var held: Set<NotificationID> = []
        var repeated: Set<NotificationID> = []
        var conflicting: Set<NotificationID> = []
        var lifecycle: [LifecycleEvent] = []
        for (item, outcome) in zip(items, outcomes) {
            switch outcome {
            case .single, .cancelled: continue
            case .held:
                lifecycle.append(
                    self.dispatcher.event(.deferred, of: item.notification, reason: RecordedReason.digest.rawValue))
            case .duplicate: repeated.insert(item.notification.id)
            case .conflict:
                repeated.insert(item.notification.id)
                conflicting.insert(item.notification.id)
            }
            held.insert(item.notification.id)
        }
        for job in prepared.indices {
            prepared[job].repeated = prepared[job].notifications.count { repeated.contains($0.notification.id) }
            for item in prepared[job].notifications where conflicting.contains(item.notification.id) {
                prepared[job].conflicting.insert(ExactText(item.notification.user))
            }
            prepared[job].notifications.removeAll { held.contains($0.notification.id) }
        }
        return lifecycle
    }

    /// Returns a notification as a digest holds it: without its type's time to live, which begins
    /// with the summary.
    private static func item(_ notification: Notification, _ catalog: Catalog) -> Notification {
        var item = notification
        if let type = catalog[item.type], item.expiresAt == item.createdAt + type.timeToLive { item.expiresAt = nil }
        return item
    }

    /// Stores jobs as one batch.
    ///
    /// Halves a batch that PostgreSQL refuses until the bad job is alone, and a batch that outlasts
    /// its time limit until it does not.
    private func store(_ jobs: ArraySlice<PreparedJob>, into intake: inout Intake) async throws {
        guard !jobs.isEmpty else { return }
        let distinct = Self.distinct(jobs.flatMap(\.notifications), conflicts: &intake.stored.conflicts)
        let (areRepeats, pages) = (intake.batch.areRepeats, intake.batch.pages)
        let isFinal = { (error: any Error) in Self.isRefusal(error) || jobs.count > 1 && Self.isTooLong(error) }
        do {
            let batch = try await self.dispatcher.retrying("store notifications", isFinal: isFinal) {
                try await self.dispatcher.database.notifications.store(
                    distinct.map(\.notification), areRepeats: areRepeats)
            }
            for (item, outcome) in zip(distinct, batch.outcomes) { self.add(item, after: outcome, to: &intake.stored) }
            if !pages.isEmpty {
                let ids = distinct.map(\.notification.id)
                let outcomes = Dictionary(zip(ids, batch.outcomes), uniquingKeysWith: { first, _ in first })
                for job in jobs where pages[job.origin.latestEntry] != nil {
                    self.count(job, outcomes, into: &intake.stored)
                }
            }
            intake.stored.replaced += batch.replacements
            intake.stored.lifecycle += self.dispatcher.events(of: batch.replacements)
        } catch let error as PostgresError where isFinal(error) {
            if jobs.count == 1, let culprit = jobs.first {
                // An entry keeps its first letter. This letter is about all of the job's users.
                intake.stored.dead.insert(
                    DeadLetter(culprit.origin, reason: error.refusalReason, at: self.dispatcher.now()), at: 0)
                return
            }
            let middle = jobs.startIndex + jobs.count / 2
            try await self.store(jobs[..<middle], into: &intake)
            try await self.store(jobs[middle...], into: &intake)
        }
    }

    /// Adds a stored notification to the list of its next step.
    private func add(
        _ item: RoutedNotification,
        after outcome: NotificationStore.Outcome,
        to stored: inout StoredBatch
    ) {
        stored.lifecycle += self.dispatcher.events(of: item.notification, stored: outcome)
        if case .conflict = outcome {
            stored.conflicts[item.notification.jobEntry, default: []].insert(ExactText(item.notification.user))
        }
        if let routed = item.toRoute(after: outcome) {
            stored.toRoute.append(routed)
        } else if outcome.isUnowned {
            stored.unowned.append(item.notification)
        } else if let redone = item.toRedo(after: outcome) {
            stored.toRedo.append(redone)
        }
    }

    /// Whether PostgreSQL refuses the data, so that a retry is useless.
    static func isRefusal(_ error: any Error) -> Bool { (error as? PostgresError)?.isRefusal ?? false }

    /// Whether PostgreSQL ended a statement at its time limit, which a smaller batch may keep.
    static func isTooLong(_ error: any Error) -> Bool { (error as? PostgresError)?.isStatementTimeout == true }

    /// Logs one line per job, with the id and the entry that its sender knows.
    func log(_ jobs: [PreparedJob]) {
        guard self.dispatcher.logger.logLevel <= .debug else { return }
        for job in jobs {
            let entry = job.origin.jobEntry
            let slash = entry.lastIndex(of: "/") ?? entry.startIndex
            var metadata: Logger.Metadata = [
                "job.entry": "\(entry[slash...].dropFirst())", "redis.stream": "\(entry[..<slash])",
                "notifications.count": "\(job.notifications.count)",
            ]
            metadata["job.id"] = job.notifications.first?.notification.jobID.map { "\($0)" }
            self.dispatcher.logger.debug("job stored", metadata: metadata)
        }
    }
}

extension PostgresError {
    /// The reason of a dead letter whose data PostgreSQL refused.
    var refusalReason: String { "PostgreSQL refused it: SQLSTATE \(self.sqlState ?? "unknown")" }
}
