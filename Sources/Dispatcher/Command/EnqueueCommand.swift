// Carillon · EnqueueCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations

/// `dispatcher enqueue`.
struct EnqueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enqueue",
        abstract: "Appends one job to its stream and prints the entry's id.",
        discussion: """
            The job is checked first, as the dispatcher will do. Needs REDIS_URL; with
            CATALOG, the type is checked too and gives the lane. A job that is faulty, or
            a type that the catalog has not, ends with 64 and every fault by its field.

            Examples:
              dispatcher enqueue --user u1 --type payment_received --title "€ 40 from Ada"
              dispatcher enqueue --users u1,u2 --type invoice_created --data '{"id":"i9"}'
              dispatcher enqueue --user u1 --type offer --field severity=warning --id o17
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Option(help: "The user to notify.")
    var user: String?

    @Option(help: "Several users, separated by commas.")
    var users: String?

    @Option(help: "A type of the catalog.", completion: .catalogTypes)
    var type: String

    @OptionGroup var text: JobTextOptions

    @Option(help: "Idempotency key: the same id notifies a user once.")
    var id: String?

    @Option(help: "critical, normal or bulk; the type's own if not given.", completion: .lanes)
    var lane: String?

    func run() async throws {
        try await DispatcherCommand.run {
            let users = self.users.map { users in
                let list = users.split(separator: ",").map { JSONValue.string(String($0)) }
                return String(decoding: JSONWriter.bytes(of: .array(list)), as: UTF8.self)
            }
            let submission = try JobSubmission(
                [("user", self.user), ("type", self.type)] + self.text.named
                    + [("id", self.id), ("lane", self.lane), ("users", users)],
                others: self.text.fields
            )
            let (stream, entry) = try await submission.submit(try await self.options.reader())
            guard self.output.json else { return Terminal.line(entry) }
            Terminal.object { writer in
                writer.member("stream", stream)
                writer.member("entry", entry)
            }
        }
    }
}
