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
        abstract: "Shows why a notification did or did not reach its user.",
        discussion: """
            Prints every step, attempt and time on record, as in GET
            /v1/admin/notifications/{id}/trace. Needs DATABASE_URL. Without --user, finds
            the notification by its attempts, or among those that were stored within ten
            minutes of the time in its id. Exits with 1 if there is none.

            Examples:
              dispatcher trace 01a1f866-0d7b-841c-a9a6-5597aa0575f3
              dispatcher trace 01a1f866-0d7b-841c-a9a6-5597aa0575f3 --user u1 --json
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Argument(help: "The notification's id.")
    var id: String

    @Option(help: "The user; speeds up the search.")
    var user: String?

    func run() async throws {
        guard let id = NotificationID(self.id) else {
            throw ValidationError("\(self.id) is not the id of a notification")
        }
        try await DispatcherCommand.run {
            let record = try await CommandClients.withDatabase(self.options, name: "trace") { pool in
                try await Database(pool).traces.record(id, user: self.user)
            }
            guard let record else {
                let hint = self.user == nil ? "; --user finds one that was never tried" : " of that user"
                throw CommandFailure(ExitStatus.no, "there is no notification \(id)\(hint)")
            }
            let trace = NotificationTrace(record)
            if self.output.json { Terminal.object { trace.write(to: &$0) } } else { Self.show(trace) }
        }
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
        var table = Table([.text("AT"), .number("AFTER"), .text("STEP"), .text("WHAT", isCuttable: true)])
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
        let milliseconds = duration.inMicroseconds / 1_000
        return milliseconds.magnitude < 10_000 ? "\(milliseconds) ms" : DisplayText.duration(duration)
    }
}
