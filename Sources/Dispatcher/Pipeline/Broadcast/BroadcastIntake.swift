// Carillon · BroadcastIntake.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage

/// Jobs for a topic or for everyone, which ``BroadcastService`` expands.
extension JobIntake {
    /// The content of a page of a broadcast.
    enum PageContent {
        case notifications(PreparedJob)
        /// Notifications that each user gets at their own local time.
        case later(ScheduleIntake.Waiting)
        case events([NodeFrame])
    }

    /// Returns a job as a broadcast; nil if it names its users, or is an event for all sockets.
    func broadcast(
        _ job: Job,
        _ catalog: Catalog,
        origin: JobOrigin,
        lane: Lane,
        now: Timestamp
    ) -> Broadcast? {
        let topic: String?
        switch job.audience {
        case .users: return nil
        case .topic(let name): topic = name
        case .everyone:
            if case .event = job.payload { return nil }
            topic = nil
        }
        var lane = lane
        var deliverAt: Timestamp?
        if case .notification(let content) = job.payload {
            lane = min(catalog.lane(of: content), lane)
            deliverAt = content.deliverAt
        }
        return Broadcast(
            // An id that no notification has, because no user has an empty name.
            id: BroadcastID(
                origin: origin.digest,
                user: ""
            ),
            org: job.org,
            jobID: job.id,
            entry: origin.text,
            stream: origin.stream,
            fields: origin.fields,
            topic: topic,
            lane: lane,
            createdAt: origin.createdAt(deliverAt: deliverAt, now: now)
        )
    }

    /// Stores broadcasts, and dead letters for refused ones, before their entries are acknowledged.
    ///
    /// A replayed broadcast still has its old letter, which the replay then removes. The letter of
    /// a new refusal replaces the old one, and the replay leaves it alone.
    func store(_ broadcasts: [Broadcast]) async throws {
        var dead: [DeadLetter] = []
        try await self.store(broadcasts[...], dead: &dead)
        try await DeadLetterQueue(dispatcher: self.dispatcher).setAside(dead, replacesKnown: true)
    }

    /// Stores broadcasts as one batch.
    ///
    /// Halves a batch that PostgreSQL refuses until the bad broadcast is alone, and a batch that
    /// outlasts its time limit until it does not.
    private func store(_ broadcasts: ArraySlice<Broadcast>, dead: inout [DeadLetter]) async throws {
        guard !broadcasts.isEmpty else { return }
        let isFinal = { (error: any Error) in
            Self.isRefusal(error) || broadcasts.count > 1 && Self.isTooLong(error)
        }
        do {
            let outcomes = try await self.dispatcher.retrying("store broadcasts", isFinal: isFinal) {
                try await self.dispatcher.database.broadcasts.add(Array(broadcasts))
            }
            for (broadcast, outcome) in zip(broadcasts, outcomes) where outcome == .conflict {
                dead.append(broadcast.deadLetter(Self.conflictReason, at: self.dispatcher.now()))
            }
        } catch let error as PostgresError where isFinal(error) {
            if broadcasts.count == 1, let culprit = broadcasts.first {
                dead.append(culprit.deadLetter(error.refusalReason, at: self.dispatcher.now()))
                return
            }
            let middle = broadcasts.startIndex + broadcasts.count / 2
            try await self.store(broadcasts[..<middle], dead: &dead)
            try await self.store(broadcasts[middle...], dead: &dead)
        }
    }

    /// Returns the content of a page, before its users' preferences are known.
    ///
    /// - Parameter users: the chain's next page.
    func content(
        of chain: Broadcast.Chain,
        _ job: Job,
        _ catalog: Catalog,
        users: [String]
    ) throws(JobFaults) -> PageContent {
        let broadcast = chain.broadcast
        var job = job
        // Without an id, the job gets the broadcast's, by which its notifications are found.
        job.id = broadcast.job
        switch job.payload {
        case .event(let name, let arguments):
            let body = StoredBatch.body(name, arguments)
            return .events(users.map { NodeFrame(kind: .event, user: $0, body: body) })
        case .notification(let content) where content.deliverLocal != nil:
            job.audience = .users(users)
            job.except = []
            return .later(
                ScheduleIntake.Waiting(
                    origin: broadcast.origin, job: job, content: content, lane: broadcast.lane, chain: chain))
        case .notification(let content):
            // The broadcast's time, because the entry of a replay is newer.
            var prepared = try self.prepare(
                job, content, catalog, users: users, origin: broadcast.origin, lane: broadcast.lane,
                createdAt: broadcast.createdAt, now: self.dispatcher.now())
            prepared.chain = chain
            return .notifications(prepared)
        }
    }
}

/// Due pages of broadcasts at local time.
extension JobIntake {
    /// Drops the users who have left the topic since their page was stored.
    func dropLeavers(_ intake: inout Intake) async throws {
        let pages = intake.batch.pages
        guard !pages.isEmpty else { return }
        var topics: [ExactText: [Int]] = [:]
        for job in intake.jobs.indices {
            guard let topic = pages[intake.jobs[job].origin.latestEntry]?.topic else { continue }
            topics[ExactText(topic), default: []].append(job)
        }
        for (topic, jobs) in topics {
            let users = jobs.flatMap { intake.jobs[$0].users }
            let subscribers = try await self.dispatcher.retrying("look up subscribers") {
                try await self.dispatcher.database.topics.subscribers(of: topic.text, among: users)
            }
            for job in jobs {
                let count = intake.jobs[job].notifications.count
                intake.jobs[job].notifications.removeAll { !subscribers.contains(ExactText($0.notification.user)) }
                let left = count - intake.jobs[job].notifications.count
                intake.stored.pageOutcomes[intake.jobs[job].origin.latestEntry, default: [:]].add(left, .leftTopic)
            }
        }
    }

    /// Drops the notifications that are not to be sent, and counts the users without one by reason.
    func dropRefused(_ intake: inout Intake) {
        let pages = intake.batch.pages
        guard !pages.isEmpty else { return }
        for job in intake.jobs.indices where pages[intake.jobs[job].origin.latestEntry] != nil {
            let entry = intake.jobs[job].origin.latestEntry
            var outcomes = intake.stored.pageOutcomes[entry, default: [:]]
            let left = outcomes.values.reduce(0, +)
            outcomes.merge(intake.jobs[job].removeUnwanted(alreadyCounted: left), uniquingKeysWith: +)
            intake.stored.pageOutcomes[entry] = outcomes
        }
    }

    /// Counts the users of a due page once their notifications are stored.
    ///
    /// - Parameter outcomes: the outcomes of the batch; a notification without one is a duplicate
    ///   within the batch.
    func count(
        _ job: PreparedJob,
        _ outcomes: [NotificationID: NotificationStore.Outcome],
        into stored: inout StoredBatch
    ) {
        for item in job.notifications {
            let reason =
                switch outcomes[item.notification.id] {
                // A dispatcher may have stored it as cancelled before it died.
                case .cancelled, .known(_, _, .cancelled, _): NotificationStatus.cancelled.rawValue
                case .stored, .known, .replaced: ScheduleStore.stored
                case .duplicate, .conflict, nil: PageOutcomeReason.duplicate.rawValue
                }
            stored.pageOutcomes[job.origin.latestEntry, default: [:]][reason, default: 0] += 1
        }
    }
}

extension Broadcast {
    /// The original entry of its job.
    var origin: JobOrigin {
        JobOrigin(stream: self.stream, entry: self.entryID, fields: self.fields)
    }

    /// Returns the dead letter of its job.
    func deadLetter(_ reason: String, at: Timestamp) -> DeadLetter {
        DeadLetter(stream: self.stream, entry: self.entryID, reason: reason, at: at, fields: self.fields)
    }

    /// The id of its entry, without the stream.
    private var entryID: String { self.entry.split(separator: "/").last.map { String($0) } ?? "" }
}
