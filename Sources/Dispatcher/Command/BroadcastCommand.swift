// Carillon · BroadcastCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations
import Storage

/// `dispatcher broadcast`.
struct BroadcastCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "broadcast",
        abstract: "Sends and controls broadcasts: jobs for a topic's subscribers or for everyone.",
        discussion: """
            Without a subcommand it sends one. Needs REDIS_URL and DATABASE_URL.

            Examples:
              dispatcher broadcast --topic news --type breaking_news --title "Extra"
              dispatcher broadcast list --state expanding
              dispatcher broadcast pause news-2026-11-20
            """,
        subcommands: [
            BroadcastSendCommand.self, List.self, Pause.self, Resume.self, Confirm.self, Cancel.self,
        ],
        defaultSubcommand: BroadcastSendCommand.self
    )

    /// `dispatcher broadcast list`.
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Lists broadcasts, newest first.",
            discussion: """
                With --json, prints one object per line, as in GET /v1/admin/broadcasts.
                With CATALOG, also shows their texts.

                Examples:
                  dispatcher broadcast list
                  dispatcher broadcast list --state awaiting_confirmation --json
                """
        )

        private static let pageSize = 100

        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions

        @Option(
            help: "Only those in this state.", completion: .list(Broadcast.State.allCases.map(\.rawValue)))
        var state: Broadcast.State?

        @Option(help: "How many, 1 to 1000.")
        var limit = 20

        func validate() throws {
            guard (1...1_000).contains(self.limit) else { throw ValidationError("--limit must be 1 to 1000") }
        }

        func run() async throws {
            try await DispatcherCommand.run {
                try await JobTools.with(self.options, name: "broadcast") { tools in
                    var found: [Broadcast.Progress] = []
                    while found.count < self.limit {
                        let page = try await tools.database.broadcasts.list(
                            before: found.last?.broadcast.id, state: self.state,
                            limit: min(Self.pageSize, self.limit - found.count))
                        found += page
                        if page.isEmpty { break }
                    }
                    guard self.output.json else { return Self.show(found) }
                    for progress in found {
                        Terminal.value(BroadcastReport(progress, tools.catalog), as: BroadcastReport.shape)
                    }
                }
            }
        }

        private static func show(_ found: [Broadcast.Progress]) {
            var table = Table([
                .text("CREATED"), .text("JOB", isCuttable: true), .text("ORG", isCuttable: true),
                .text("AUDIENCE", isCuttable: true), .text("STATE"), .number("USERS"), .number("SELECTED"),
                .number("STORED"),
            ])
            for progress in found {
                let broadcast = progress.broadcast
                table.add([
                    broadcast.createdAt.rfc3339, broadcast.job, broadcast.org,
                    broadcast.topic.map { "topic \($0)" } ?? "everyone",
                    progress.isHeld ? "held" : broadcast.state.rawValue, broadcast.audience.map { "\($0)" },
                    "\(progress.selected)", "\(progress.stored)",
                ])
            }
            table.show(none: "no broadcasts")
        }
    }

    /// The broadcast that a command controls.
    struct Target: ParsableArguments {
        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions

        @Argument(help: "The id of the broadcast's job, or its entry.")
        var id: String

        @Option(help: "The job's organisation.")
        var org: String?

        /// Applies a command and prints the broadcast's new state.
        func order(_ order: JobControl.Order) async throws {
            try await DispatcherCommand.run {
                try await JobTools.with(self.options, name: "broadcast") { tools in
                    let name = try await tools.control.name(org: self.org ?? "", id: self.id)
                    guard let (report, isApplied) = try await tools.control.order(order, name) else {
                        throw CommandFailure(ExitStatus.no, "there is no broadcast \(self.id)")
                    }
                    let state = report.progress?.broadcast.state.rawValue ?? "gone"
                    guard isApplied else {
                        throw CommandFailure(ExitStatus.no, "the broadcast is \(state), which does not allow this")
                    }
                    if self.output.json {
                        Terminal.value((report, tools.catalog), as: JobControl.Report.shape)
                    } else {
                        Terminal.line(state)
                    }
                }
            }
        }
    }

    /// `dispatcher broadcast pause`.
    struct Pause: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Pauses a broadcast until it is resumed.",
            discussion: """
                Notifications that are already stored go out. Exits with 1 if the broadcast
                does not exist, or if its state does not allow it.

                Examples:
                  dispatcher broadcast pause news-2026-11-20
                """
        )

        @OptionGroup var target: Target

        func run() async throws { try await self.target.order(.pause) }
    }

    /// `dispatcher broadcast resume`.
    struct Resume: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Resumes a paused or failed broadcast.",
            discussion: """
                Exits with 1 if the broadcast does not exist, or if its state does not allow it.
                Repeating it is no error.

                Examples:
                  dispatcher broadcast resume news-2026-11-20 --org shop
                """
        )

        @OptionGroup var target: Target

        func run() async throws { try await self.target.order(.resume) }
    }

    /// `dispatcher broadcast confirm`.
    struct Confirm: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Starts a broadcast that waits because its audience is large.",
            discussion: """
                Exits with 1 if the broadcast does not exist, or if its state does not allow it.
                Repeating it is no error.

                Examples:
                  dispatcher broadcast confirm news-2026-11-20
                """
        )

        @OptionGroup var target: Target

        func run() async throws { try await self.target.order(.confirm) }
    }

    /// `dispatcher broadcast cancel`.
    struct Cancel: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Cancels a broadcast and withdraws notifications that have reached no device yet.",
            discussion: """
                Running dispatchers withdraw the notifications. Exits with 1 if the
                broadcast does not exist.

                Examples:
                  dispatcher broadcast cancel news-2026-11-20
                """
        )

        @OptionGroup var target: Target

        func run() async throws {
            try await DispatcherCommand.run {
                try await JobTools.with(self.target.options, name: "broadcast") { tools in
                    let name = try await tools.control.name(org: self.target.org ?? "", id: self.target.id)
                    guard try await tools.database.broadcasts.find(name) != nil,
                        let report = try await tools.control.cancel(name)
                    else { throw CommandFailure(ExitStatus.no, "there is no broadcast \(self.target.id)") }
                    if self.target.output.json {
                        Terminal.value((report, tools.catalog), as: JobControl.Report.shape)
                    } else {
                        Terminal.line(report.progress?.broadcast.state.rawValue ?? "cancelled")
                    }
                }
            }
        }
    }
}

extension Broadcast.State: ExpressibleByArgument {}
