// Carillon · FollowedJob.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Operations
import Storage

/// Prints the steps of a job's notifications live.
struct FollowedJob {
    private static let interval: Duration = .milliseconds(200)
    /// How long to wait for the first notification, and in all.
    private static let patience: Duration = .seconds(10)
    private static let longest: Duration = .seconds(60)
    /// How long to wait for further steps once all notifications are on their way.
    private static let quiet: Duration = .seconds(2)
    /// The most notifications that are followed.
    private static let mostFollowed = 20

    private let database: Database
    private let redis: RedisClient
    private let submission: JobSubmission
    private let appended: AppendedJob
    /// The job by its entry alone, even if it has an id.
    private let entry: CancellationStore.Name
    private let table = Table([.number("AFTER", leastWidth: 8), .text("STEP", leastWidth: 10), .text("WHAT")])
    /// The printed steps by notification; a set, because a new step may sort before pending ones.
    private var shown: [NotificationID: Set<String>] = [:]

    /// - Parameter appended: the job in its stream.
    init(_ database: Database, _ redis: RedisClient, _ submission: JobSubmission, _ appended: AppendedJob) {
        self.database = database
        self.redis = redis
        self.submission = submission
        self.appended = appended
        self.entry = CancellationStore.Name(
            org: submission.job.org, id: appended.origin, entries: [appended.origin],
            addedAt: Timestamp(milliseconds: StreamEntry.milliseconds(ofID: appended.entry) ?? 0))
    }

    /// The job as other commands name it.
    private var name: CancellationStore.Name {
        CancellationStore.Name(
            org: self.entry.org, id: self.submission.job.id ?? self.appended.name, entries: self.entry.entries)
    }

    /// Prints steps until all notifications are on their way and quiet, or the time is up; for a
    /// job that waits, prints what it waits for.
    ///
    /// - Throws: ``CommandFailure`` if nothing is stored.
    mutating func show() async throws {
        let start = ContinuousClock.now
        var lastStep = start
        while ContinuousClock.now - start < Self.longest {
            let keys = try await self.database.cancellations.ofEntries(self.entry).first ?? []
            if keys.isEmpty, let wait = try await self.wait() { return Terminal.line(wait) }
            var isSettled = !keys.isEmpty
            var ends: [String] = []
            for key in keys.prefix(Self.mostFollowed) {
                guard let record = try await self.database.traces.record(key.id, user: key.user) else { continue }
                if self.showNewSteps(NotificationTrace(record)) { lastStep = .now }
                isSettled = isSettled && ![.pending, .deferred].contains(record.notification.status)
                ends.append(Self.end(record))
            }
            let silence = ContinuousClock.now - lastStep
            if keys.isEmpty, silence > Self.patience { throw try await self.nothing() }
            if isSettled, silence > Self.quiet {
                for end in ends { Terminal.line(end) }
                let more = keys.count - Self.mostFollowed
                return more > 0 ? Terminal.line("and \(more) more notifications") : ()
            }
            // The database does not signal new steps, so poll it.
            try await Task.sleep(for: Self.interval)
        }
        Terminal.line("still waits; `dispatcher trace` shows the rest")
    }

    /// Returns a line about a job that waits without notifications; nil if nothing is stored yet.
    ///
    /// - Throws: ``CommandFailure`` if the job is a dead letter.
    private func wait() async throws -> String? {
        // Until a dispatcher has finished the entry, a schedule may belong to an older job with the
        // same id. Check this first: a dead letter is stored before the entry leaves the stream.
        let isWaiting = try await self.appended.isWaiting(self.redis)
        let (stream, entry) = (self.appended.stream, self.appended.entry)
        if let reason = try await self.database.deadLetters.reason(stream: stream, entry: entry) {
            throw CommandFailure(ExitStatus.no, "the job is a dead letter: \(reason)")
        }
        if !isWaiting, let due = self.due, try await self.database.schedules.count(self.name) > 0 {
            return "scheduled for \(due); `dispatcher schedules list` shows it"
        }
        guard try await self.database.cancellations.isHeld(self.entry) else { return nil }
        return "gathered by a digest; `dispatcher job \(self.name.arguments)` shows it"
    }

    /// The due time of a scheduled job; nil for other jobs.
    private var due: String? {
        guard case .notification(let content) = self.submission.job.payload else { return nil }
        return content.deliverLocal.map { "\($0) local time" } ?? self.submission.dueLater?.rfc3339
    }

    /// Returns the failure for a job of which nothing is stored.
    private func nothing() async throws -> CommandFailure {
        if try await self.appended.isWaiting(self.redis) {
            return CommandFailure(ExitStatus.no, "nothing is stored yet; is a dispatcher running?")
        }
        let command = "`dispatcher job \(self.name.arguments)`"
        // Counts notifications and those that digests hold.
        guard try await self.database.cancellations.tally(self.name).total > 0 else {
            return CommandFailure(ExitStatus.no, "nothing is stored yet; \(command) shows more")
        }
        return CommandFailure(
            ExitStatus.no, "nothing is stored: its id was used before; \(command) shows that job")
    }

    /// Prints the steps that are new; returns whether there were any.
    private mutating func showNewSteps(_ trace: NotificationTrace) -> Bool {
        let notification = trace.record.notification
        if self.shown[notification.id] == nil {
            Terminal.line(DisplayText.line("notification \(notification.id) for \(notification.user)"))
        }
        var isNew = false
        for step in trace.steps {
            let detail = step.detail.map { "\($0.name) \($0.value)" }.joined(separator: ", ")
            let after = (step.at - notification.createdAt).inMilliseconds
            let line = "  " + self.table.row(["\(after) ms", step.event, detail])
            guard self.shown[notification.id, default: []].insert(line).inserted else { continue }
            Terminal.line(line)
            isNew = true
        }
        return isNew
    }

    /// Returns the outcome of a notification as a line, such as `ada: sent via fcm`.
    private static func end(_ record: TraceStore.Record) -> String {
        let notification = record.notification
        let via = record.sentVia.map { " via \($0)" } ?? ""
        let reason = notification.statusReason.map { ", \($0)" } ?? ""
        return DisplayText.line("\(notification.user): \(notification.status.rawValue)\(via)\(reason)")
    }
}

extension CancellationStore.Name {
    /// The arguments with which commands name the job.
    var arguments: String { self.id + (self.org.isEmpty ? "" : " --org \(self.org)") }
}
