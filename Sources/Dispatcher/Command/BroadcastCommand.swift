// Carillon · BroadcastCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import Logging
import Model
import Postgres
import Settings
import Stores
import Telemetry

/// `dispatcher broadcast`.
struct BroadcastCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "broadcast",
        abstract: "Sends a job to a topic's subscribers or to everyone, and shows how far it has come.",
        discussion: """
            The job is checked and appended as by `enqueue`; dispatchers that run expand it. Ends when all of it is stored, and
            prints the counts; with 1 if it was cancelled or failed, with 75 if it waits for a confirmation. An interrupt ends
            the command and not the broadcast. Needs REDIS_URL and DATABASE_URL; with CATALOG, the type is checked too.

            Examples:
              dispatcher broadcast --topic news --type breaking_news --title "Extra" --body "It has happened"
              dispatcher broadcast --all --type maintenance --title "Back at six" --id maintenance-17 --confirm
            """
    )

    /// Between two looks at the progress, which nothing announces.
    private static let interval: Duration = .milliseconds(500)
    private static let barWidth: Int64 = 30

    @OptionGroup var options: CommonOptions

    @Option(help: "The topic whose subscribers get it.")
    var topic: String?

    @Flag(help: "Everyone gets it.")
    var all = false

    @Option(help: "A type of the catalog.")
    var type: String

    @Option(help: "The title.")
    var title: String?

    @Option(help: "The body.")
    var body: String?

    @Option(help: "A JSON object for the client.")
    var data: String?

    @Option(help: "Idempotency key: the same id notifies a user once.")
    var id: String?

    @Flag(help: "Says that it is meant for as many as there are.")
    var confirm = false

    @Flag(help: "Does not wait until it is stored.")
    var detach = false

    @Option(name: .customLong("field"), help: ArgumentHelp("Any other field of a job.", valueName: "name=value"))
    var fields: [String] = []

    func run() async throws {
        try await DispatcherCommand.run {
            let submission = try JobSubmission(
                [
                    ("topic", self.topic), ("all", self.all ? "true" : nil), ("type", self.type),
                    ("title", self.title), ("body", self.body), ("data", self.data), ("id", self.id),
                ],
                others: self.fields
            )
            if case .users = submission.job.audience { throw ValidationError("give --topic or --all") }
            let reader = try await SettingsReader.process(file: self.options.config)
            let database = reader.text("DATABASE_URL")
            if database == nil { reader.fault("DATABASE_URL", "is missing; give postgresql://user@host/database") }
            let (stream, entry) = try await submission.submit(reader)
            Terminal.line(entry)
            guard !self.detach else { return }
            var configuration = PostgresConfiguration(
                connectionString: database ?? "",
                applicationName: "carillon-broadcast"
            )
            configuration.sessionSettings = StoreSession.settings
            configuration.connections = 1
            let pool = try PostgresPool(configuration, logger: Logger(label: "carillon.broadcast"))
            defer { pool.close() }
            // A job id that was used before names the broadcast that is there.
            let name = CancellationStore.Name(
                org: submission.job.org,
                id: submission.job.id ?? "",
                entries: ["\(stream)/\(entry)"]
            )
            try await self.watch(name, BroadcastStore(pool: pool))
        }
    }

    private func watch(_ name: CancellationStore.Name, _ store: BroadcastStore) async throws {
        let isTerminal = isatty(STDERR_FILENO) == 1
        while true {
            let progress = try await store.find(name)
            if isTerminal { Terminal.progress(progress.map { Self.line($0) } ?? "waits for a dispatcher") }
            if let progress {
                if progress.broadcast.state == .awaitingConfirmation, self.confirm {
                    _ = try await store.steer(progress.broadcast, to: .expanding, from: [.awaitingConfirmation])
                } else if progress.broadcast.state.isFinal || progress.broadcast.state == .awaitingConfirmation {
                    if isTerminal { Terminal.progress("") }
                    return try Self.end(progress)
                }
            }
            // The pace of the progress bar; a broadcast tells nobody how far it is.
            try await Task.sleep(for: Self.interval)
        }
    }

    private static func end(_ progress: Broadcast.Progress) throws {
        let counted = String(decoding: progress.counted, as: UTF8.self)
        Terminal.line(
            "\(progress.broadcast.state.rawValue): selected \(progress.selected), stored \(progress.stored), "
                + "not stored \(counted)"
        )
        switch progress.broadcast.state {
        case .done: return
        case .awaitingConfirmation:
            Terminal.error(
                "dispatcher: \(progress.broadcast.audience ?? 0) users; confirm it with POST /v1/jobs/{id}/confirm, "
                    + "or give --confirm"
            )
            throw ExitCode(75)
        default:
            if let reason = progress.broadcast.reason { Terminal.error("dispatcher: \(reason)") }
            throw ExitCode.failure
        }
    }

    private static func line(_ progress: Broadcast.Progress) -> String {
        let total = max(progress.broadcast.audience ?? 0, progress.selected)
        let share = total > 0 ? progress.selected * Self.barWidth / total : 0
        let bar =
            String(repeating: "#", count: Int(share)) + String(repeating: ".", count: Int(Self.barWidth - share))
        let state = progress.isHeld ? "held" : progress.broadcast.state.rawValue
        return "[\(bar)] \(progress.selected) of \(total) users, \(progress.stored) stored, \(state)"
    }
}
