// Carillon · EnqueueCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Foundation
import Operations
import Storage

/// `dispatcher enqueue`.
struct EnqueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "enqueue",
        abstract: "Appends one job to its stream and prints the entry's id.",
        discussion: """
            Validates the job first. Exits with 64 and lists every fault by field. Needs
            REDIS_URL. With CATALOG, also checks the type, which then gives the lane, and
            the variables of its texts. With --follow, prints each step of its
            notifications until they are on their way, or where the job waits; exits with 1
            if nothing is stored. That needs DATABASE_URL.

            Examples:
              dispatcher enqueue --user u1 --type payment_received --title "€ 40 from Ada"
              dispatcher enqueue --users u1,u2 --type invoice_created --data '{"id":"i9"}'
              dispatcher enqueue --user u1 --type offer --field severity=warning --id o17
              dispatcher enqueue --user u1 --type payment_received --title Paid --follow
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

    @Flag(help: "Prints what happens to it, for a minute at most.")
    var follow = false

    func validate() throws {
        if self.follow, self.output.json { throw ValidationError("--follow is for people; leave --json out") }
        let others = Set(self.text.fields.map { String($0.prefix { $0 != "=" }) })
        guard self.user != nil || self.users != nil || !others.isDisjoint(with: JobFields.audience) else {
            throw ValidationError("give --user or --users; for a topic or everyone use `dispatcher broadcast`")
        }
    }

    func run() async throws {
        try await DispatcherCommand.run {
            let users = self.users.map { users in
                let list = users.split(separator: ",").map { name in
                    JSONValue.string(name.trimmingCharacters(in: .whitespaces))
                }
                return String(decoding: JSONWriter.bytes(of: .array(list)), as: UTF8.self)
            }
            let submission = try JobSubmission(
                [("user", self.user), ("type", self.type)] + self.text.named
                    + [("id", self.id), ("lane", self.lane), ("users", users)],
                others: self.text.fields
            )
            let reader = try self.options.reader()
            let redis = CommandClients.redis(reader, name: "enqueue")
            let database = self.follow ? CommandClients.database(reader, name: "enqueue") : nil
            if let database {
                let appended = try await submission.submit(reader, readable: database)
                Terminal.line(appended.name)
                return try await appended.watched {
                    try await CommandClients.withDatabase(database) { pool in
                        try await CommandClients.withRedis(redis) { connection in
                            var followed = FollowedJob(Database(pool), connection, submission, appended)
                            try await followed.show()
                        }
                    }
                }
            }
            let appended = try await submission.submit(reader)
            if self.output.json {
                Terminal.object { appended.write(to: &$0) }
            } else {
                Terminal.line(appended.name)
            }
            if let due = submission.dueLater {
                Terminal.error("dispatcher: scheduled for \(due.rfc3339); \(submission.inquiry) shows it")
            }
        }
    }
}
