// Carillon · SchedulesCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations
import Storage

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
        static let configuration = CommandConfiguration(
            commandName: "list",
            abstract: "Lists schedules, ordered by id.",
            discussion: """
                With --json, prints one object per line, as in GET /v1/schedules.

                Examples:
                  dispatcher schedules list
                  dispatcher schedules list --org news --json | jq -r .id
                """
        )

        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions

        @Option(help: "Only those of this organisation.")
        var org: String?

        @Option(help: "How many at most.")
        var limit = 1_000

        func run() async throws {
            guard self.limit > 0 else { throw ValidationError("--limit must be 1 or more") }
            try await SchedulesCommand.withStore(self.options) { store in
                var table = Table([
                    .text("ID"), .text("STATE", isCuttable: true), .text("NEXT"), .text("LAST"),
                    .text("WHEN", isCuttable: true), .text("TYPE", isCuttable: true), .text("ORG", isCuttable: true),
                    .text("JOB", isCuttable: true),
                ])
                var last: ScheduleID?
                var rest = self.limit
                while rest > 0 {
                    let page = try await store.page(after: last, org: self.org, limit: min(rest, Self.pageSize))
                    guard let end = page.last else { break }
                    last = end.id
                    rest -= page.count
                    for schedule in page {
                        if self.output.json {
                            Terminal.value(schedule, as: Schedule.shape)
                        } else {
                            table.add(Self.row(schedule))
                        }
                    }
                }
                if !self.output.json { table.show(none: "no schedules") }
                if rest <= 0, try await !store.page(after: last, org: self.org, limit: 1).isEmpty {
                    Terminal.error("there are more than \(self.limit) schedules; raise --limit")
                }
            }
        }

        private static func row(_ schedule: Schedule) -> [String?] {
            let isLocal = schedule.isRecurring && schedule.zone == Schedule.recipientZone
            let next = isLocal ? schedule.wall.map { "\($0) local" } : String(schedule.dueAt.rfc3339.prefix(19)) + "Z"
            let zone = schedule.zone.map { " \($0)" } ?? ""
            return [
                schedule.id.description,
                schedule.stateReason.map { "\(schedule.state.rawValue) (\($0))" } ?? schedule.state.rawValue,
                schedule.state == .waiting ? next : nil,
                schedule.lastFiredAt.map { String($0.rfc3339.prefix(19)) + "Z" },
                (schedule.cron ?? "once") + zone,
                schedule.fields.first { $0.name == "type" }.map { String(decoding: $0.value, as: UTF8.self) },
                schedule.org,
                schedule.jobID,
            ]
        }
    }

    /// `dispatcher schedules cancel`.
    struct Cancel: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "cancel",
            abstract: "Cancels schedules by id. Notifications already fired stay.",
            discussion: """
                Exits with 1 if an id is unknown.

                Examples:
                  dispatcher schedules cancel 0190b5a2-0000-7000-8000-000000000001
                """
        )

        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions

        @Argument(help: ArgumentHelp("The ids that `schedules list` prints.", valueName: "id"))
        var ids: [String]

        func run() async throws {
            let ids = try self.ids.map { text in
                guard let id = ScheduleID(text) else {
                    throw ValidationError("\(text) is not the id of a schedule")
                }
                return id
            }
            try await SchedulesCommand.withStore(self.options) { store in
                var gone: [ScheduleID] = []
                var missing: [ScheduleID] = []
                for id in ids {
                    if try await store.cancel(id) {
                        gone.append(id)
                        // Print at once, so that this one is known even if a later one fails.
                        if !self.output.json { Terminal.line("cancelled \(id)") }
                    } else {
                        missing.append(id)
                        if !self.output.json { Terminal.error("there is no schedule \(id)") }
                    }
                }
                if self.output.json {
                    Terminal.object { writer in
                        writer.array("cancelled", gone) { $0.string($1.description) }
                        writer.array("missing", missing) { $0.string($1.description) }
                    }
                }
                if !missing.isEmpty { throw ExitStatus.no }
            }
        }
    }

    /// Runs `body` with the schedules of the configured database.
    fileprivate static func withStore(
        _ options: CommonOptions,
        _ body: (ScheduleStore) async throws -> Void
    ) async throws {
        try await DispatcherCommand.run {
            try await CommandClients.withDatabase(options, name: "schedules") { pool in
                try await body(Database(pool).schedules)
            }
        }
    }
}
