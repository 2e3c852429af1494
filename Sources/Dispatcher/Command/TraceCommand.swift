// Carillon · TraceCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations
import Storage

/// `dispatcher trace`.
struct TraceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "trace",
        abstract: "Shows why notifications did or did not reach their users.",
        discussion: """
            Takes a notification's id, a job's id or its entry, or only --user for the
            user's newest notifications. Prints every step, attempt and time on record, as
            in GET /v1/admin/notifications/{id}/trace. Looks for a notification first, then
            for a job. Needs DATABASE_URL, and REDIS_URL for a job. Without --user, finds a
            notification by its attempts, or among those that were stored within ten
            minutes of the time in its id. Exits with 1 if there is none.

            Examples:
              dispatcher trace 01a1f866-0d7b-841c-a9a6-5597aa0575f3
              dispatcher trace 01a1f866-0d7b-841c-a9a6-5597aa0575f3 --user u1 --json
              dispatcher trace order-17 --org shop
              dispatcher trace --user u1 --limit 3
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Argument(help: "The id of a notification or a job, or a job's entry.")
    var id: String?

    @Option(help: "The user; speeds up the search.")
    var user: String?

    @Option(help: "The organisation of the job.")
    var org: String?

    @Option(help: "The most notifications of a job or a user, 1 to 100.")
    var limit = 10

    func validate() throws {
        guard self.id != nil || self.user != nil else { throw ValidationError("give an id, or --user") }
        guard (1...100).contains(self.limit) else { throw ValidationError("--limit must be 1 to 100") }
    }

    func run() async throws {
        try await DispatcherCommand.run {
            if let id {
                // The ids of jobs may be UUIDs, too.
                if let notification = NotificationID(id), try await self.traceNotification(notification) { return }
                try await self.traceJob(id)
            } else if let user {
                try await self.traceUser(user)
            }
        }
    }

    /// Returns whether there is such a notification.
    private func traceNotification(_ id: NotificationID) async throws -> Bool {
        let record = try await CommandClients.withDatabase(self.options, name: "trace") { pool in
            try await Database(pool).traces.record(id, user: self.user)
        }
        guard let record else { return false }
        self.show(record)
        return true
    }

    private func traceJob(_ id: String) async throws {
        try await JobTools.with(self.options, name: "trace") { tools in
            let name = try await tools.control.name(org: self.org ?? "", id: id)
            let page = try await tools.database.jobs.notifications(
                of: name, status: nil, user: self.user, after: "", limit: self.limit)
            var found = page.items.map(\.notification.key)
            if found.count < self.limit {
                found += try await tools.database.traces.held(
                    of: name, user: self.user, limit: self.limit - found.count)
            }
            try await self.show(found, tools.database, none: self.nothing(found: id))
        }
    }

    /// The error if there is neither a notification nor a job with the id.
    private func nothing(found id: String) -> String {
        guard NotificationID(id) != nil else { return "there is no notification of the job \(id)" }
        guard self.user == nil else { return "there is no notification \(id) of that user, and none of a job \(id)" }
        return "there is no notification \(id), and none of a job \(id); --user finds one that was never tried"
    }

    private func traceUser(_ user: String) async throws {
        try await CommandClients.withDatabase(self.options, name: "trace") { pool in
            var filter = PeopleStore.Filter()
            filter.limit = self.limit
            let items = try await Database(pool).people.notifications(user: user, filter)
            try await self.show(
                items.map(\.notification.key), Database(pool),
                none: "there is no notification for \(user)")
        }
    }

    private func show(
        _ keys: [NotificationKey],
        _ database: Database,
        none: String
    ) async throws {
        guard !keys.isEmpty else { throw CommandFailure(ExitStatus.no, none) }
        for (index, key) in keys.enumerated() {
            guard let record = try await database.traces.record(key.id, user: key.user) else { continue }
            if index > 0, !self.output.json { Terminal.line("") }
            self.show(record)
        }
    }

    private func show(_ record: TraceStore.Record) {
        let trace = NotificationTrace(record)
        if self.output.json { Terminal.value(trace, as: NotificationTrace.shape) } else { Self.show(trace) }
    }

    private static func show(_ trace: NotificationTrace) {
        let notification = trace.record.notification
        var card = Card()
        card.add("notification", notification.id.description)
        card.add("user", notification.user)
        card.add("type", notification.type)
        card.add("title", notification.title)
        card.add("status", notification.status.rawValue)
        card.add("reason", notification.statusReason)
        card.add("held back", notification.decision)
        card.add("sent via", trace.record.sentVia)
        card.add("channels", trace.channels.map(\.rawValue).joined(separator: ", "))
        card.add("lane", notification.lane.rawValue)
        card.add("job", notification.jobID.map { "\($0), \(notification.jobEntry)" } ?? notification.jobEntry)
        card.add("trace context", notification.extras.traceParent)
        card.show()
        Terminal.line("")
        var table = Table([.text("AT"), .number("AFTER"), .text("STEP"), .wrapped("WHAT")])
        for step in trace.steps {
            table.add([
                step.at.rfc3339, Self.offset(step.at - notification.createdAt), step.event,
                step.detail.map { "\($0.name) \($0.value)" }.joined(separator: ", "),
            ])
        }
        table.show()
    }

    /// Formats a duration, in milliseconds while they matter.
    private static func offset(_ duration: Duration) -> String {
        let milliseconds = duration.inMilliseconds
        return milliseconds.magnitude < 10_000 ? "\(milliseconds) ms" : DisplayText.duration(duration)
    }
}
