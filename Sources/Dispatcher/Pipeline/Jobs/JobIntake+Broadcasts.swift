// Carillon · JobIntake+Broadcasts.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import JSON
import Model
import Postgres
import Stores
import Streams

/// Jobs for a topic's subscribers or for everyone: stored as such, and expanded by ``BroadcastService``.
extension JobIntake {
    /// What a page of a broadcast sends.
    enum PageContent {
        case notifications([Notification])
        case events([StoredBatch.Event])
    }

    /// A job as a broadcast; nil if it names its users, or is an event for everyone, which all nodes hear at once.
    func broadcast(_ job: Job, entry: StreamEntry, batch: LaneBatch, now: Timestamp) -> Broadcast? {
        let topic: String?
        switch job.audience {
        case .users: return nil
        case .topic(let name): topic = name
        case .everyone:
            if case .event = job.payload { return nil }
            topic = nil
        }
        var lane = batch.lane
        if case .notification(let content) = job.payload {
            lane = Lane.mostUrgent(content.lane ?? self.dispatcher.catalog[content.type]?.lane ?? .normal, lane)
        }
        let fields = entry.fields ?? []
        let milliseconds = Int64(entry.id.prefix { $0 != "-" }) ?? now.milliseconds
        return Broadcast(
            // No user has an empty name.
            id: NotificationID(
                origin: EntryDigest(stream: batch.group.stream, entry: entry.id, fields: fields),
                user: ""
            ),
            org: job.org,
            jobID: job.id,
            entry: "\(batch.group.stream)/\(entry.id)",
            stream: batch.group.stream,
            fields: fields,
            topic: topic,
            lane: lane,
            createdAt: min(Timestamp(milliseconds: milliseconds), now)
        )
    }

    /// Stores broadcasts before their entries are acknowledged.
    func store(_ broadcasts: [Broadcast], into stored: inout StoredBatch) async throws {
        for broadcast in broadcasts {
            do {
                let outcome = try await self.dispatcher.untilDone(
                    "store a broadcast",
                    isFinal: { ($0 as? PostgresError)?.isRefusal ?? false }
                ) {
                    try await self.dispatcher.broadcasts.add(broadcast)
                }
                if outcome == .conflict {
                    stored.dead.append(self.letter(broadcast, reason: Self.conflictReason))
                }
            } catch let error as PostgresError where error.isRefusal {
                let reason = "PostgreSQL refused it: SQLSTATE \(error.sqlState ?? "unknown")"
                stored.dead.append(self.letter(broadcast, reason: reason))
            }
        }
    }

    private func letter(_ broadcast: Broadcast, reason: String) -> DeadLetter {
        DeadLetter(
            stream: broadcast.stream,
            entry: broadcast.entry.split(separator: "/").last.map { String($0) } ?? "",
            reason: reason,
            at: self.dispatcher.now(),
            fields: broadcast.fields
        )
    }

    /// The job that a broadcast was made of.
    func job(of broadcast: Broadcast) throws(JobFaults) -> Job {
        try JobDecoder.decode(broadcast.fields) { self.dispatcher.catalog[$0] != nil }
    }

    /// What users of a broadcast get, their wishes not yet known.
    func content(of broadcast: Broadcast, _ job: Job, users: [String]) throws(JobFaults) -> PageContent {
        switch job.payload {
        case .event(let name, let arguments):
            return .events(users.map { StoredBatch.Event(user: $0, name: name, arguments: arguments) })
        case .notification(let content):
            var job = job
            // Notifications of a broadcast without an id are found by the broadcast's.
            job.id = broadcast.job
            let entry = StreamEntry(
                id: broadcast.entry.split(separator: "/").last.map { String($0) } ?? "",
                fields: broadcast.fields
            )
            return .notifications(
                try self.notifications(
                    job,
                    content,
                    users: users,
                    entry: entry,
                    stream: broadcast.stream,
                    lane: broadcast.lane,
                    now: self.dispatcher.now()
                )
            )
        }
    }

    /// The notifications of a page with status and channels as their users want them.
    func asWished(_ notifications: [Notification]) async throws -> [Notification] {
        let keys = notifications.map { (user: $0.user, type: $0.type) }
        let wishes = try await self.dispatcher.untilDone("look up preferences") {
            try await self.dispatcher.recipients.wishes(keys)
        }
        var decided = notifications
        self.decideStoring(&decided, wishes: wishes[...], now: self.dispatcher.now())
        return decided
    }
}
