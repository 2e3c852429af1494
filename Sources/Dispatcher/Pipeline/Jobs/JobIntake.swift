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

    /// Decodes and stores a batch.
    func take(_ batch: LaneBatch) async throws -> StoredBatch {
        let now = self.dispatcher.now()
        var (sorted, stored) = self.sort(batch, self.dispatcher.catalog, now: now)
        if !sorted.unknown.isEmpty,
            let newer = await self.dispatcher.catalogs.newer(
                than: stored.catalog, for: sorted.unknown, logger: self.dispatcher.logger)
        {
            // The spans of the first pass are dropped without an end, so nobody sees them.
            (sorted, stored) = self.sort(batch, newer, now: now)
        }
        let (catalog, areRepeats) = (stored.catalog, batch.areRepeats)
        defer { sorted.spans.end() }
        stored.dead += try await ScheduleIntake(dispatcher: self.dispatcher).store(sorted.waiting, now: now)
        try await self.dropLeavers(&sorted.jobs, batch.pages, into: &stored)
        try await self.complete(&sorted.jobs, catalog, now: now, dead: &stored.dead, lifecycle: &stored.lifecycle)
        self.dropRefused(&sorted.jobs, batch.pages, into: &stored)
        try await self.store(sorted.jobs[...], batch.pages, areRepeats: areRepeats, into: &stored)
        self.refuseConflicts(sorted.jobs, now: now, into: &stored)
        try await self.store(sorted.broadcasts)
        if !stored.dead.isEmpty {
            for entry in batch.entries {
                let origin = JobOrigin(stream: batch.group.stream, entry: entry.id, fields: entry.fields ?? [])
                stored.deadEntries[ExactText("\(origin.latestStream)/\(origin.latestEntry)")] = entry.id
            }
        }
        self.log(sorted.jobs)
        return stored
    }

    /// Adds dead letters about the users who have a job's id with other content.
    private func refuseConflicts(_ jobs: [PreparedJob], now: Timestamp, into stored: inout StoredBatch) {
        // Conflicts are rare, and the loop copies each job.
        guard !stored.conflicts.isEmpty || jobs.contains(where: { !$0.conflicting.isEmpty }) else { return }
        for job in jobs {
            let conflicting = job.conflicting.union(stored.conflicts[job.origin.jobEntry] ?? [])
            guard !conflicting.isEmpty else { continue }
            // Parts of a job that fire together share an entry, so keep the users of this part.
            var users = job.users.filter { conflicting.contains(ExactText($0)) }
            guard !users.isEmpty else { continue }
            let origin = job.origin
            var reason = Self.conflictReason
            // An entry has one letter, so this one is also about the users whose text failed.
            if !job.unrendered.isEmpty,
                let place = stored.dead.lastIndex(where: {
                    $0.stream == origin.latestStream && $0.entry == origin.latestEntry
                })
            {
                reason = "\(stored.dead.remove(at: place).reason); \(reason)"
                let concerned = conflicting.union(job.unrendered)
                users = job.users.filter { concerned.contains(ExactText($0)) }
            }
            stored.dead.append(
                DeadLetter(
                    stream: origin.latestStream, entry: origin.latestEntry, reason: reason, at: now,
                    fields: job.fields(for: users)))
        }
    }

    /// The jobs of a batch by what happens to them.
    private struct Sorted {
        var jobs: [PreparedJob] = []
        /// Jobs that are due later.
        var waiting: [ScheduleIntake.Waiting] = []
        var broadcasts: [Broadcast] = []
        var spans = JobSpans()
        /// The fields of jobs whose type or template the catalog lacks.
        var unknown: [[(name: String, value: ArraySlice<UInt8>)]] = []
    }

    /// Decodes a batch; events and dead letters go to the stored batch.
    private func sort(_ batch: LaneBatch, _ catalog: Catalog, now: Timestamp) -> (Sorted, StoredBatch) {
        var sorted = Sorted()
        sorted.jobs.reserveCapacity(batch.entries.count)
        let fence = Fence(batch.term, instant: self.dispatcher.clock.instant)
        var stored = StoredBatch(group: batch.group, catalog: catalog, fence: fence)
        stored.finished = batch.entries.map(\.id)
        for entry in batch.entries {
            // An entry that was deleted while it was pending only needs its acknowledgement.
            guard let fields = entry.fields else { continue }
            var origin = JobOrigin(stream: batch.group.stream, entry: entry.id, fields: fields)
            if let source = batch.sources[entry.id] { origin.jobEntry = source }
            do throws(JobFaults) {
                var job = try catalog.job(origin.fields)
                // A job that was moved to an overflow keeps its lane.
                let isMoved = origin.latestStream != batch.group.stream
                let lane = (isMoved ? self.dispatcher.keys.lane(ofJobs: origin.latestStream) : nil) ?? batch.lane
                switch job.payload {
                case .event(let name, let arguments):
                    if let broadcast = self.broadcast(job, catalog, origin: origin, lane: lane, now: now) {
                        sorted.broadcasts.append(broadcast)
                        continue
                    }
                    let body = StoredBatch.body(name, arguments)
                    let except = Set(job.except.map { ExactText($0) })
                    let frames =
                        job.audience == .everyone
                        ? [NodeFrame(kind: .event, user: "", body: body, everyoneBut: except)]
                        : Self.users(job).map { NodeFrame(kind: .event, user: $0, body: body) }
                    stored.events += frames.map { StoredBatch.Event(entry: entry.id, frame: $0) }
                case .notification(var content):
                    if job.id == nil, content.deliverAt != nil {
                        // A scheduled job without an id gets its entry as its id, so that taking it
                        // again when it is due changes nothing.
                        job.id = origin.text
                    }
                    if ScheduleIntake.isLater(job, content, now: now) {
                        let wanted = catalog.lane(of: content)
                        sorted.waiting.append(
                            .init(origin: origin, job: job, content: content, lane: min(wanted, lane)))
                    } else if let broadcast = self.broadcast(job, catalog, origin: origin, lane: lane, now: now) {
                        sorted.broadcasts.append(broadcast)
                    } else {
                        sorted.spans.begin(&content, origin: origin, lane: lane, now: now)
                        sorted.jobs.append(
                            try self.prepare(
                                job, content, catalog, users: Self.users(job), origin: origin, lane: lane, now: now))
                    }
                }
            } catch {
                if error.areOfCatalog { sorted.unknown.append(origin.fields) }
                stored.dead.append(DeadLetter(origin, reason: error.description, at: now))
            }
        }
        return (sorted, stored)
    }

    /// Looks up what the users want, decides how notifications are stored, renders texts, and
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
        let preferences = try await self.dispatcher.untilDone("look up preferences") {
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

    /// Removes the notifications that a digest holds, and marks jobs whose id a digest knows with
    /// other content.
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
        var taken: Set<NotificationID> = []
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
            taken.insert(item.notification.id)
        }
        for job in prepared.indices {
            prepared[job].repeated = prepared[job].notifications.count { repeated.contains($0.notification.id) }
            for item in prepared[job].notifications where conflicting.contains(item.notification.id) {
                prepared[job].conflicting.insert(ExactText(item.notification.user))
            }
            prepared[job].notifications.removeAll { taken.contains($0.notification.id) }
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

    /// Stores jobs as one batch; halves a batch that PostgreSQL refuses until the bad job is alone.
    private func store(
        _ jobs: ArraySlice<PreparedJob>,
        _ pages: [String: Schedule.Page],
        areRepeats: Bool,
        into stored: inout StoredBatch
    ) async throws {
        guard !jobs.isEmpty else { return }
        let distinct = Self.distinct(jobs.flatMap(\.notifications), conflicts: &stored.conflicts)
        do {
            let batch = try await self.dispatcher.untilDone(
                "store notifications",
                isFinal: Self.isRefusal
            ) {
                try await self.dispatcher.database.notifications.store(
                    distinct.map(\.notification), areRepeats: areRepeats)
            }
            for (item, outcome) in zip(distinct, batch.outcomes) { self.note(item, outcome, into: &stored) }
            if !pages.isEmpty {
                let ids = distinct.map(\.notification.id)
                let outcomes = Dictionary(zip(ids, batch.outcomes), uniquingKeysWith: { first, _ in first })
                for job in jobs where pages[job.origin.latestEntry] != nil {
                    self.count(job, outcomes, into: &stored)
                }
            }
            stored.replaced += batch.replacements
            stored.lifecycle += self.dispatcher.events(of: batch.replacements)
        } catch let error as PostgresError where error.isRefusal {
            if jobs.count == 1, let culprit = jobs.first {
                // An entry has one letter: the first, which must not be about some users only.
                stored.dead.insert(
                    DeadLetter(culprit.origin, reason: error.refusalReason, at: self.dispatcher.now()), at: 0)
                return
            }
            let middle = jobs.startIndex + jobs.count / 2
            try await self.store(jobs[..<middle], pages, areRepeats: areRepeats, into: &stored)
            try await self.store(jobs[middle...], pages, areRepeats: areRepeats, into: &stored)
        }
    }

    private func note(
        _ item: RoutedNotification,
        _ outcome: NotificationStore.Outcome,
        into stored: inout StoredBatch
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
}

extension JobIntake {
    /// Drops duplicates: the later of two with the same user, organisation and job id.
    ///
    /// - Parameter conflicts: receives the users of those with other content, by entry.
    static func distinct(
        _ items: [RoutedNotification],
        conflicts: inout [String: Set<ExactText>]
    ) -> [RoutedNotification] {
        guard items.contains(where: { $0.notification.jobID != nil }) else { return items }
        struct Key: Hashable {
            let user: ExactText
            let org: ExactText
            let job: ExactText
        }
        var seen: [Key: Notification] = [:]
        var distinct: [RoutedNotification] = []
        for item in items {
            let notification = item.notification
            guard let job = notification.jobID else {
                distinct.append(item)
                continue
            }
            let key = Key(
                user: ExactText(notification.user),
                org: ExactText(notification.org),
                job: ExactText(job)
            )
            if let first = seen[key] {
                if !first.hasSameContent(as: notification) {
                    conflicts[notification.jobEntry, default: []].insert(key.user)
                }
            } else {
                seen[key] = notification
                distinct.append(item)
            }
        }
        return distinct
    }
}

extension JobIntake {
    /// Whether PostgreSQL refuses the data, so that a retry is useless.
    static func isRefusal(_ error: any Error) -> Bool { (error as? PostgresError)?.isRefusal ?? false }
}

extension PostgresError {
    /// The reason of a dead letter whose data PostgreSQL refused.
    var refusalReason: String { "PostgreSQL refused it: SQLSTATE \(self.sqlState ?? "unknown")" }
}

extension Notification {
    /// Whether two notifications with the same job id have the same content, as PostgreSQL compares
    /// it.
    fileprivate func hasSameContent(as other: Notification) -> Bool {
        ExactText(self.type) == ExactText(other.type) && ExactText(self.title) == ExactText(other.title)
            && ExactText(self.body) == ExactText(other.body)
            && Self.areSame(self.data, other.data)
    }

    private static func areSame(_ left: [UInt8]?, _ right: [UInt8]?) -> Bool {
        guard let left, let right else { return left == right }
        guard left != right else { return true }
        guard let left = try? JSONParser.parse(left), let right = try? JSONParser.parse(right) else { return false }
        return left.isSameData(as: right)
    }
}

extension JobIntake {
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
