// Carillon · SchedulesCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import JSON
import Logging
import Model
import Postgres
import Settings
import Stores
import Telemetry

/// `dispatcher schedules`.
struct SchedulesCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "schedules",
        abstract: "Shows and cancels jobs that are due later.",
        discussion: """
            Needs DATABASE_URL.

            Examples:
              dispatcher schedules list
              dispatcher schedules list --org news --json
              dispatcher schedules cancel 0190b5a2-0000-7000-8000-000000000001
            """,
        subcommands: [List.self, Cancel.self]
    )

    /// `dispatcher schedules list`.
    struct List: AsyncParsableCommand {
        private static let pageSize = 500
        private static let headings = ["ID", "STATE", "NEXT", "LAST", "WHEN", "TYPE", "ORG", "JOB"]

        static let configuration = CommandConfiguration(
            commandName: "list",
            abstract: "Lists what is due later, in the order of ids.",
            discussion: "With --json a JSON object a line, as GET /v1/schedules has them."
        )

        @OptionGroup var options: CommonOptions

        @Option(help: "Only those of this organisation.")
        var org: String?

        @Option(help: "How many at most.")
        var limit = 1_000

        @Flag(help: "Prints JSON lines.")
        var json = false

        func run() async throws {
            guard self.limit > 0 else { throw ValidationError("--limit must be 1 or more") }
            try await SchedulesCommand.withStore(self.options) { store in
                var rows: [[String]] = [Self.headings]
                var last: NotificationID?
                var rest = self.limit
                while rest > 0 {
                    let page = try await store.page(after: last, org: self.org, limit: min(rest, Self.pageSize))
                    guard let end = page.last else { break }
                    last = end.id
                    rest -= page.count
                    if self.json { page.forEach { Terminal.line(Self.json($0)) } } else { rows += page.map(Self.row) }
                }
                if !self.json { Self.show(rows) }
            }
        }

        private static func json(_ schedule: Schedule) -> String {
            var writer = JSONWriter()
            writer.beginObject()
            ScheduleShape.write(schedule, to: &writer)
            writer.endObject()
            return String(decoding: writer.bytes, as: UTF8.self)
        }

        private static func row(_ schedule: Schedule) -> [String] {
            let isLocal = schedule.isRecurring && schedule.zone == Schedule.recipientZone
            let next = isLocal ? schedule.wall.map { "\($0) local" } : String(schedule.dueAt.rfc3339.prefix(19)) + "Z"
            let zone = schedule.zone.map { " \($0)" } ?? ""
            return [
                schedule.id.description,
                schedule.stateReason.map { "\(schedule.state.rawValue) (\($0))" } ?? schedule.state.rawValue,
                schedule.state == .waiting ? next ?? "-" : "-",
                schedule.lastFiredAt.map { String($0.rfc3339.prefix(19)) + "Z" } ?? "-",
                (schedule.cron ?? "once") + zone,
                schedule.fields.first { $0.name == "type" }.map { String(decoding: $0.value, as: UTF8.self) } ?? "-",
                schedule.org.isEmpty ? "-" : schedule.org,
                schedule.jobID ?? "-",
            ]
        }

        private static func show(_ rows: [[String]]) {
            let widths = Self.headings.indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
            for row in rows {
                let cells = zip(row, widths).map { text, width in
                    text + String(repeating: " ", count: max(0, width - text.count))
                }
                var line = cells.joined(separator: "  ")
                while line.last == " " { line.removeLast() }
                Terminal.line(line)
            }
        }
    }

    /// `dispatcher schedules cancel`.
    struct Cancel: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "cancel",
            abstract: "Takes schedules away, by their ids; what they have fired stays.",
            discussion: "Exits 1 if one of them is not there."
        )

        @OptionGroup var options: CommonOptions

        @Argument(help: ArgumentHelp("The ids, as the list has them.", valueName: "id"))
        var ids: [String]

        func run() async throws {
            let ids = try self.ids.map { text in
                guard let id = NotificationID(text) else { throw ValidationError("\(text) is no id of a schedule") }
                return id
            }
            try await SchedulesCommand.withStore(self.options) { store in
                var isWhole = true
                for id in ids {
                    if try await store.cancel(id) {
                        Terminal.line("cancelled \(id)")
                    } else {
                        isWhole = false
                        Terminal.error("there is no schedule \(id)")
                    }
                }
                if !isWhole { throw ExitCode.failure }
            }
        }
    }

    /// Runs `body` with the schedules of the configured database.
    fileprivate static func withStore(
        _ options: CommonOptions,
        _ body: (ScheduleStore) async throws -> Void
    ) async throws {
        try await DispatcherCommand.run {
            let reader = try await SettingsReader.process(file: options.config)
            let database = reader.text("DATABASE_URL")
            if database == nil { reader.fault("DATABASE_URL", "is missing; give postgresql://user@host/database") }
            try reader.finish()
            var configuration = PostgresConfiguration(
                connectionString: database ?? "",
                applicationName: "carillon-schedules"
            )
            configuration.sessionSettings = StoreSession.settings
            let pool = try PostgresPool(configuration, logger: Logger(label: "carillon.schedules"))
            defer { pool.close() }
            try await body(ScheduleStore(pool: pool))
        }
    }
}
