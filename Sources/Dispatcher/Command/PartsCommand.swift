// Carillon · PartsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Operations
import Storage

/// `dispatcher parts`.
struct PartsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "parts",
        abstract: "Shows and grows the number of parts in Redis.",
        discussion: """
            Needs DATABASE_URL.

            Examples:
              dispatcher parts show
              dispatcher parts grow 64
            """,
        subcommands: [Show.self, Grow.self]
    )

    /// The application names of all processes in PostgreSQL.
    private static let programs = ["carillon-gateway", "carillon-dispatcher"]

    private static func withStore(_ options: CommonOptions, _ work: (LayoutStore) async throws -> Void) async throws {
        try await DispatcherCommand.run {
            do {
                try await CommandClients.withDatabase(options, name: "parts") { try await work(Database($0).layout) }
            } catch let error as PostgresError where ["42P01", "3F000", "42703"].contains(error.sqlState) {
                // A schema, a table or a column is missing.
                throw CommandFailure(ExitStatus.no, "the database lacks this release's tables; run gateway migrate")
            }
        }
    }

    private static let isNew = CommandFailure(
        ExitStatus.no, "nothing has started on this database yet; set REDIS_PARTS for the first start instead")

    /// `dispatcher parts show`.
    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Prints the number of parts.",
            discussion: """
                Also prints earlier numbers, under which apps may still append jobs.

                Examples:
                  dispatcher parts show
                  dispatcher parts show --json
                """
        )

        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await PartsCommand.withStore(self.options) { store in
                guard let layout = try await store.recorded() else { throw PartsCommand.isNew }
                if self.output.json {
                    Terminal.object { writer in
                        writer.member("parts", Int64(layout.parts))
                        writer.array("former", layout.former) { $0.integer(Int64($1)) }
                    }
                } else {
                    let former = layout.former.map { "\($0)" }.joined(separator: ", ")
                    Terminal.line("\(layout.parts)" + (former.isEmpty ? "" : ", before that \(former)"))
                }
            }
        }
    }

    /// `dispatcher parts grow`.
    struct Grow: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Spreads the keys over more parts.",
            discussion: """
                Stop all gateways and dispatchers first, and start them again afterwards.
                `docs/scaling.md` has the steps.

                Examples:
                  dispatcher parts grow 64
                """
        )

        @OptionGroup var options: CommonOptions

        @Argument(help: "The new number, more than before and at most 256.")
        var parts: Int

        func validate() throws {
            guard (2...Keyspace.mostParts).contains(self.parts) else {
                throw ValidationError("the number of parts must be 2 to \(Keyspace.mostParts)")
            }
        }

        func run() async throws {
            try await PartsCommand.withStore(self.options) { store in
                do {
                    let before = try await store.grow(to: self.parts, programs: PartsCommand.programs)
                    Terminal.line(
                        "\(self.parts) parts instead of \(before.parts); start the dispatchers and gateways now")
                } catch let refusal as LayoutStore.Refusal {
                    throw Self.failure(refusal)
                }
            }
        }

        private static func failure(_ refusal: LayoutStore.Refusal) -> CommandFailure {
            switch refusal {
            case .isNew: PartsCommand.isNew
            case .isNoGrowth(let parts):
                CommandFailure(ExitStatus.no, "there are \(parts) parts already; give a larger number")
            case .sharesNames:
                CommandFailure(
                    ExitStatus.no, "some parts would have the names of former ones; give twice as many as there are")
            case .isRunning(let programs):
                CommandFailure(
                    ExitStatus.no,
                    "\(programs.joined(separator: " and ")) still use the database; stop all of them first")
            }
        }
    }
}
