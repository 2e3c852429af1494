// Carillon · EventsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Operations
import Storage

/// `dispatcher events`.
struct EventsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events",
        abstract: "Prints the newest events of the event stream, and with --follow each new one.",
        discussion: """
            docs/events.md lists the kinds of events. The command does not affect
            webhooks or other readers. Needs REDIS_URL, and EVENTS in the services. With
            --json, prints an object a line.

            Examples:
              dispatcher events
              dispatcher events --follow --user u1
              dispatcher events --event failed --event expired --count 100
              dispatcher events --follow --json | jq -r .user
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Waits for new events until interrupted.")
    var follow = false

    @Option(help: "The number of earlier events to look through, 0 to 10000.")
    var count = 20

    @Option(help: "Only events of this kind, such as failed; may be repeated.")
    var event: [LifecycleEvent.Kind] = []

    @Option(help: "Only events of this user.")
    var user: String?

    @Option(help: "Only events of this type.", completion: .catalogTypes)
    var type: String?

    @Option(help: "Only events of this job.")
    var job: String?

    @Option(help: "Only events of this organisation.")
    var org: String?

    func validate() throws {
        guard (0...10_000).contains(self.count) else { throw ValidationError("--count must be 0 to 10000") }
    }

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try self.options.reader()
            let redis = CommandClients.redis(reader, name: "events")
            try reader.finish()
            try await CommandClients.withRedis(redis) { connection in
                var tail = try await Live.installed(on: connection).eventTail
                let newest = try await tail.newest(self.count).reversed().filter(self.isWanted)
                if !self.output.json {
                    Terminal.line(newest.isEmpty && !self.follow ? "no events" : Self.table.titles)
                }
                for entry in newest { self.show(entry) }
                while self.follow {
                    for entry in try await tail.next(patience: .seconds(5)) where self.isWanted(entry) {
                        self.show(entry)
                    }
                }
            }
        }
    }

    private static var table: Table {
        Table([
            .text("AT", leastWidth: 24), .text("EVENT", leastWidth: 10), .text("USER", leastWidth: 10),
            .text("TYPE", leastWidth: 20), .text("CHANNEL"), .text("REASON", leastWidth: 10),
            .text("JOB", leastWidth: 10), .text("NOTIFICATION"),
        ])
    }

    private func isWanted(_ entry: EventTail.Entry) -> Bool {
        let wanted = [("user", self.user), ("type", self.type), ("job", self.job), ("org", self.org)]
        for case (let name, .some(let value)) in wanted where entry[name].map({ ExactText($0) }) != ExactText(value) {
            return false
        }
        return self.event.isEmpty || self.event.contains { $0.rawValue == entry["event"] }
    }

    private func show(_ entry: EventTail.Entry) {
        guard self.output.json else {
            let names = ["at", "event", "user", "type", "channel", "reason", "job", "notification"]
            return Terminal.line(Self.table.row(names.map { entry[$0] }))
        }
        Terminal.object { writer in
            writer.member("id", entry.id)
            for (name, value) in entry.fields {
                writer.key(escaping: name)
                writer.string(value)
            }
        }
    }
}

extension LifecycleEvent.Kind: ExpressibleByArgument {}
