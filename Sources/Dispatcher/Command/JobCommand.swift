// Carillon · JobCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Logging
import Operations
import Storage

/// `dispatcher job`.
struct JobCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "job",
        abstract: "Shows the state of a job: its notifications by status, and what waits.",
        discussion: """
            Takes a job's id or its entry, as `stream/entry` or `entry`. Needs REDIS_URL
            and DATABASE_URL. Exits with 1 if nothing is known of the job. `trace` shows
            what happened to each notification.

            Examples:
              dispatcher job order-17
              dispatcher job order-17 --org shop --status failed
              dispatcher job 1795168800000-0 --json
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Argument(help: "The job's id or entry.")
    var id: String

    @Option(help: "The job's organisation.")
    var org: String?

    @Option(
        help: "Only notifications with this status.",
        completion: .list(NotificationStatus.allCases.map(\.rawValue)))
    var status: NotificationStatus?

    @Option(help: "The number of notifications, 1 to 1000.")
    var limit = 20

    private static let countingTime: Duration = .seconds(60)

    func validate() throws {
        guard (1...1_000).contains(self.limit) else { throw ValidationError("--limit must be 1 to 1000") }
        guard self.status == nil || !self.output.json else {
            throw ValidationError("--status does not apply to --json, which lists no notifications")
        }
    }

    func run() async throws {
        try await DispatcherCommand.run {
            try await JobTools.with(self.options, name: "job") { tools in
                let name = try await tools.control.name(org: self.org ?? "", id: self.id)
                guard let report = try await tools.control.find(name, countingFor: Self.countingTime) else {
                    throw CommandFailure(ExitStatus.no, "nothing is known of the job \(self.id)")
                }
                guard !self.output.json else {
                    return Terminal.value((report, tools.catalog), as: JobControl.Report.shape)
                }
                self.show(report)
                NotificationTable.show(try await self.notifications(of: name, tools.database.jobs), showsUsers: true)
            }
        }
    }

    /// Returns the first notifications; reads on while pages have too few of a rare status.
    private func notifications(
        of name: CancellationStore.Name,
        _ store: JobListStore
    ) async throws -> [PeopleStore.Item] {
        var items: [PeopleStore.Item] = []
        var next: String? = ""
        while let last = next, items.count < self.limit {
            let page = try await store.notifications(
                of: name, status: self.status, after: last, limit: self.limit - items.count)
            items += page.items
            next = page.next
        }
        return items
    }

    private func show(_ report: JobControl.Report) {
        var card = Card()
        card.add("job", report.name.id)
        card.add("organisation", report.name.org.isEmpty ? nil : report.name.org)
        card.add("cancelled", report.cancelledAt?.rfc3339)
        card.add("broadcast", report.progress?.broadcast.state.rawValue)
        card.add("not stored", report.progress?.notStored)
        card.add("scheduled", report.scheduled > 0 ? "\(report.scheduled)" : nil)
        if report.tally == nil {
            card.add("notifications", "not counted, as that takes over a minute")
        } else {
            card.add("done", report.isFinal ? "yes" : "no")
        }
        for status in NotificationStatus.allCases {
            guard let count = report.tally?.counts[status], count > 0 else { continue }
            card.add(status.rawValue, "\(count)")
        }
        card.show()
        Terminal.line("")
    }
}

extension NotificationStatus: ExpressibleByArgument {}

/// The services with which commands read and control jobs.
struct JobTools {
    let control: JobControl
    let database: Database
    /// Nil if CATALOG is not set.
    let catalog: Catalog?

    /// Runs `body` with the stores of the settings.
    static func with(_ options: CommonOptions, name: String, _ body: (JobTools) async throws -> Void) async throws {
        let reader = try options.reader()
        let redis = CommandClients.redis(reader, name: name)
        let database = CommandClients.database(reader, name: name)
        let catalog = await CommandClients.catalog(reader, isRequired: false)
        let eventsLength = CommonSettings.eventsLength(reader)
        try reader.finish()
        try await CommandClients.withDatabase(database) { pool in
            try await CommandClients.withRedis(redis) { connection in
                let database = Database(pool)
                let live = try await Self.live(connection, database.layout)
                let logger = Logger(label: "carillon-\(name)") { _ in SwiftLogNoOpLogHandler() }
                let events = EventPublisher(
                    log: EventLog(keys: live.keys, length: eventsLength), connection: connection, logger: logger)
                let control = JobControl(
                    database, FramePublisher(live, presence: PresenceRegistry(live)), keys: live.keys,
                    events: events, now: Timestamp.now, logger: logger)
                try await body(JobTools(control: control, database: database, catalog: catalog))
            }
        }
    }

    /// Returns Redis with the number of parts in PostgreSQL, because an empty Redis has none before
    /// a dispatcher starts.
    private static func live(_ connection: RedisClient, _ layout: LayoutStore) async throws -> Live {
        guard let layout = try await layout.recorded() else { return try await Live.installed(on: connection) }
        return Live(
            connection, keys: Keyspace(database: connection.database, parts: layout.parts, former: layout.former))
    }
}

/// A table of notifications and their outcomes.
enum NotificationTable {
    static func show(_ items: [PeopleStore.Item], showsUsers: Bool = false) {
        let user: [Table.Column] = showsUsers ? [.text("USER", isCuttable: true)] : []
        var table = Table(
            [.text("AT"), .text("NOTIFICATION")] + user + [
                .text("TYPE"), .text("STATUS"), .text("WHY"), .text("TITLE", isCuttable: true),
            ])
        for item in items {
            let notification = item.notification
            let via = item.sentVia.map { "via \($0)" }
            let why = [notification.statusReason, notification.decision, via].compactMap(\.self)
            table.add(
                [notification.createdAt.rfc3339, notification.id.description]
                    + (showsUsers ? [notification.user] : []) + [
                        notification.type, notification.status.rawValue, why.joined(separator: ", "),
                        notification.title,
                    ])
        }
        table.show(none: "no notifications")
    }
}
