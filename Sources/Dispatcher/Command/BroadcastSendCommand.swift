// Carillon · BroadcastSendCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Operations
import Storage

/// `dispatcher broadcast send`.
struct BroadcastSendCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "send",
        abstract: "Sends a job to a topic's subscribers or to everyone, and shows its progress.",
        discussion: """
            Validates and appends the job as `enqueue` does. Running dispatchers expand
            it. Prints the counts when all of it is stored. Exits with 1 if the broadcast
            was cancelled or failed, or its job is a dead letter, with 75 if it waits for a
            confirmation. Does not wait for a later deliver_at. An interrupt ends the
            command, not the broadcast. Needs REDIS_URL and DATABASE_URL. With CATALOG,
            also checks the type. `dispatcher broadcast` alone does the same.

            Examples:
              dispatcher broadcast send --topic news --type breaking_news --title "Extra"
              dispatcher broadcast send --all --type maintenance --title Soon --confirm
            """
    )

    private static let interval: Duration = .milliseconds(500)
    private static let barWidth: Int64 = 30

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Option(help: "Sends to a topic's subscribers.")
    var topic: String?

    @Flag(help: "Sends to every user.")
    var all = false

    @Option(help: "A type of the catalog.", completion: .catalogTypes)
    var type: String

    @OptionGroup var text: JobTextOptions

    @Option(help: "Idempotency key: the same id notifies a user once.")
    var id: String?

    @Flag(help: "Confirms the broadcast, whatever the size of its audience.")
    var confirm = false

    @Flag(help: "Does not wait until it is stored.")
    var detach = false

    func validate() throws {
        let others = self.text.fields.map { $0.prefix { $0 != "=" } }
        guard self.all || self.topic != nil || others.contains("topic") || others.contains("all") else {
            throw ValidationError("give --topic or --all")
        }
        guard self.confirm, self.detach else { return }
        throw ValidationError("--confirm: give it without --detach, as it waits until the broadcast is stored")
    }

    func run() async throws {
        try await DispatcherCommand.run {
            let submission = try JobSubmission(
                [("topic", self.topic), ("all", self.all ? "true" : nil), ("type", self.type)] + self.text.named
                    + [("id", self.id)],
                others: self.text.fields
            )
            let due = submission.dueLater
            if self.confirm, due != nil {
                throw ValidationError("--confirm: give it without a later deliver_at, as it waits until then")
            }
            let reader = try self.options.reader()
            let redis = CommandClients.redis(reader, name: "broadcast")
            let database = CommandClients.database(reader, name: "broadcast")
            let isDetached = self.detach || due != nil
            let appended =
                try await isDetached
                ? submission.submit(reader) : submission.submit(reader, readable: database)
            if !self.output.json || isDetached { self.show(appended) }
            if let due {
                Terminal.error("dispatcher: scheduled for \(due.rfc3339); \(submission.inquiry) shows it")
            }
            guard !isDetached else { return }
            // A reused job id names the existing broadcast.
            let name = CancellationStore.Name(
                org: submission.job.org,
                id: submission.job.id ?? "",
                entries: [appended.origin]
            )
            try await appended.watched(json: self.output.json) {
                try await CommandClients.withDatabase(database) { pool in
                    try await CommandClients.withRedis(redis) { connection in
                        try await self.watch(name, Database(pool), connection, appended)
                    }
                }
            }
        }
    }

    private func show(_ appended: AppendedJob) {
        guard self.output.json else { return Terminal.line(appended.entry) }
        Terminal.object { appended.write(to: &$0) }
    }

    private func watch(
        _ name: CancellationStore.Name,
        _ database: Database,
        _ redis: RedisClient,
        _ appended: AppendedJob
    ) async throws {
        let isTerminal = isatty(STDERR_FILENO) == 1
        while true {
            var progress = try await database.broadcasts.find(name)
            if let broadcast = progress?.broadcast, broadcast.entry != appended.origin,
                try await appended.isWaiting(redis)
            {
                // An older broadcast has the id; the dispatcher decides whether it is the same one.
                progress = nil
            }
            if progress?.broadcast.entry != appended.origin,
                let reason = try await database.deadLetters.reason(stream: appended.stream, entry: appended.entry)
            {
                if isTerminal { Terminal.progress("") }
                throw CommandFailure(ExitStatus.no, "the job is a dead letter: \(reason)")
            }
            if isTerminal {
                let line = progress.map { Self.line($0) } ?? "waits for a dispatcher"
                Terminal.progress(DisplayText.cut(line, to: Terminal.errorWidth - 1))
            }
            if let progress {
                if progress.broadcast.state == .awaitingConfirmation, self.confirm {
                    _ = try await database.broadcasts.transition(
                        progress.broadcast, to: .expanding, from: [.awaitingConfirmation])
                } else if progress.broadcast.state.isFinal || progress.broadcast.state == .awaitingConfirmation {
                    if isTerminal { Terminal.progress("") }
                    return try self.end(progress, appended)
                }
            }
            // A broadcast does not signal its progress, so poll it at the pace of the progress bar.
            try await Task.sleep(for: Self.interval)
        }
    }

    private func end(_ progress: Broadcast.Progress, _ appended: AppendedJob) throws {
        if self.output.json {
            Terminal.object { writer in
                appended.write(to: &writer)
                writer.member("state", progress.broadcast.state.rawValue)
                writer.member("reason", progress.broadcast.reason)
                writer.member("audience", progress.broadcast.audience)
                writer.member("selected", progress.selected)
                writer.member("stored", progress.stored)
                writer.key("not_stored")
                writer.raw(progress.counted)
            }
        } else {
            Terminal.line(
                "\(progress.broadcast.state.rawValue): selected \(progress.selected), stored \(progress.stored)"
                    + (progress.notStored.map { ", not stored: \($0)" } ?? "")
            )
        }
        switch progress.broadcast.state {
        case .done:
            guard progress.broadcast.audience == 0 else { return }
            let topic = progress.broadcast.topic.map { "no user subscribes to the topic \($0)" }
            Terminal.error("dispatcher: " + (topic ?? "there are no users"))
        case .awaitingConfirmation:
            let name = CancellationStore.Name(org: progress.broadcast.org, id: progress.broadcast.job)
            Terminal.error(
                "dispatcher: \(progress.broadcast.audience ?? 0) users; confirm it with `dispatcher broadcast "
                    + "confirm \(name.arguments)`, or give --confirm"
            )
            throw ExitStatus.wait
        default:
            if let reason = progress.broadcast.reason { Terminal.error("dispatcher: \(reason)") }
            throw ExitStatus.no
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

extension Broadcast.Progress {
    /// The users without a notification by reason, as `3 not_opted_in, 1 opted_out`; nil if there
    /// are none.
    var notStored: String? {
        let counted = (try? JSONParser.parse(self.counted))?.object ?? []
        return counted.isEmpty ? nil : counted.map { "\($0.value.integer ?? 0) \($0.key)" }.joined(separator: ", ")
    }
}
