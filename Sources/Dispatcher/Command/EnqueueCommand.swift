// Carillon · EnqueueCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import JSON
import Settings
import Telemetry

/// `dispatcher enqueue`.
struct EnqueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enqueue",
        abstract: "Appends one job to its stream and prints the entry's id.",
        discussion: """
            The job is checked first, as the dispatcher will do. Needs REDIS_URL; with CATALOG, the type is checked too and
            gives the lane.

            Examples:
              dispatcher enqueue --user u1 --type payment_received --title "Payment received" --body "€ 40 from Ada"
              dispatcher enqueue --users u1,u2 --type invoice_created --title "Invoice 9" --data '{"invoice":"i9"}'
              dispatcher enqueue --user u1 --type payment_received --field severity=warning --id order-17
            """
    )

    @OptionGroup var options: CommonOptions

    @Option(help: "The user to notify.")
    var user: String?

    @Option(help: "Several users, separated by commas.")
    var users: String?

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

    @Option(help: "critical, normal or bulk; the type's own if not given.")
    var lane: String?

    @Option(name: .customLong("field"), help: ArgumentHelp("Any other field of a job.", valueName: "name=value"))
    var fields: [String] = []

    func run() async throws {
        try await DispatcherCommand.run {
            let users = self.users.map { users in
                let list = users.split(separator: ",").map { JSONValue.string(String($0)) }
                return String(decoding: JSONWriter.bytes(of: .array(list)), as: UTF8.self)
            }
            let submission = try JobSubmission(
                [
                    ("user", self.user), ("type", self.type), ("title", self.title), ("body", self.body),
                    ("data", self.data), ("id", self.id), ("lane", self.lane), ("users", users),
                ],
                others: self.fields
            )
            let reader = try await SettingsReader.process(file: self.options.config)
            Terminal.line(try await submission.submit(reader).entry)
        }
    }
}
