// Carillon · FollowedJob.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations
import Storage

/// Prints what happens to a job's notifications as it happens.
struct FollowedJob {
    private static let interval: Duration = .milliseconds(200)
    /// How long to wait for the first notification, and in all.
    private static let patience: Duration = .seconds(10)
    private static let longest: Duration = .seconds(60)
    /// How long nothing must happen after the last notification is on its way.
    private static let quiet: Duration = .seconds(2)
    /// The most notifications that are followed.
    private static let mostFollowed = 20

    private let database: Database
    private let name: CancellationStore.Name
    /// The printed steps by notification; a later one may come before those that wait.
    private var shown: [NotificationID: Set<String>] = [:]

    /// - Parameter place: the job's entry.
    init(_ database: Database, _ job: Job, at place: JobPlace) {
        self.database = database
        self.name = CancellationStore.Name(
            org: job.org, id: job.id ?? "", entries: ["\(place.stream)/\(place.entry)"],
            addedAt: Timestamp(milliseconds: place.entry.split(separator: "-").first.flatMap { Int64($0) } ?? 0))
    }

    /// Prints steps until all is on its way and quiet, or the time is up.
    ///
    /// - Throws: ``CommandFailure`` if nothing is stored.
    mutating func show() async throws {
        let start = ContinuousClock.now
        var lastStep = start
        while ContinuousClock.now - start < Self.longest {
            let keys = try await self.database.cancellations.ofEntry(self.name)
            var isSettled = !keys.isEmpty
            for (user, id) in keys.prefix(Self.mostFollowed) {
                guard let record = try await self.database.traces.record(id, user: user) else { continue }
                let trace = NotificationTrace(record)
                if self.showNewSteps(trace) { lastStep = .now }
                isSettled = isSettled && ![.pending, .deferred].contains(trace.record.notification.status)
            }
            let silence = ContinuousClock.now - lastStep
            if keys.isEmpty, silence > Self.patience {
                throw CommandFailure(
                    ExitStatus.no,
                    "nothing is stored yet: no dispatcher runs, the job is for later or in a digest, its id was used "
                        + "before, or it is a dead letter")
            }
            if isSettled, silence > Self.quiet {
                let more = keys.count - Self.mostFollowed
                return more > 0 ? Terminal.line("and \(more) more notifications") : ()
            }
            // The database does not signal new steps, so poll it.
            try await Task.sleep(for: Self.interval)
        }
        Terminal.line("still waits; `dispatcher trace` shows the rest")
    }

    /// Prints the steps that are new; returns whether there were any.
    private mutating func showNewSteps(_ trace: NotificationTrace) -> Bool {
        let notification = trace.record.notification
        if self.shown[notification.id] == nil {
            Terminal.line("notification \(notification.id) for \(notification.user)")
        }
        var isNew = false
        for step in trace.steps {
            let detail = step.detail.map { "\($0.name) \($0.value)" }.joined(separator: ", ")
            let after = (step.at - notification.createdAt).inMicroseconds / 1_000
            let line = "  \(after) ms  \(step.event)  \(detail)"
            guard self.shown[notification.id, default: []].insert(line).inserted else { continue }
            Terminal.line(line)
            isNew = true
        }
        return isNew
    }
}
