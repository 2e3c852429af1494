// Carillon · SendTestCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations
import Storage

/// `dispatcher send-test`.
struct SendTestCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "send-test",
        abstract: "Sends to one device or address, and prints the provider's answer and what to do about it.",
        discussion: """
            A running dispatcher sends it with its own credentials. It bypasses
            preferences, quiet hours, records and retries. Needs REDIS_URL and
            DATABASE_URL. Exits with 0 if the provider accepted it, with 1 if not or if
            there is no such device or address, with 69 if no dispatcher answers.

            Examples:
              dispatcher send-test --user u1
              dispatcher send-test --user u1 --title "Is this on?" --json
              dispatcher send-test --user u1 --email
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Option(help: "The owner of the device.")
    var user: String

    @Option(help: "The device's id; default: the most recently used.")
    var device: String?

    @Flag(help: "Sends to the user's e-mail address, not to a device.")
    var email = false

    @Option(help: "The title.")
    var title: String?

    @Option(help: "The body.")
    var body: String?

    func validate() throws {
        if self.email, self.device != nil { throw ValidationError("--email needs no --device; give one of them") }
        // Apply the limits of a job's texts: a dispatcher drops a request that it cannot parse.
        let texts = [("user", self.user), ("type", "test"), ("title", self.title), ("body", self.body)]
        _ = try JobSubmission(texts, others: [])
    }

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try self.options.reader()
            let configuration = CommandClients.redis(reader, name: "send-test")
            let database = CommandClients.database(reader, name: "send-test")
            try reader.finish()
            let answer = try await CommandClients.withRedis(configuration) { redis in
                try await CommandClients.withDatabase(database) { try await self.answer(Live(redis), Database($0)) }
            }
            self.show(answer)
            guard answer["outcome"]?.string == "accepted" else { throw ExitStatus.no }
        }
    }

    private func answer(_ live: Live, _ database: Database) async throws -> JSONValue {
        do {
            let reply = try await TestSend(database, live).ask(
                user: self.user, device: self.device, isMail: self.email,
                texts: [("title", self.title), ("body", self.body)])
            guard let reply else { throw try await self.lack(database) }
            var target = [JSONMember("provider", .string(reply.provider.rawValue))]
            if let device = reply.device {
                target.insert(JSONMember("device", .string(device.id.description)), at: 0)
                target.append(JSONMember("app", .string(device.app)))
            }
            return JSONValue.object(target).merging(.object(reply.answer))
        } catch let failure as TestSends.Failure {
            throw CommandFailure(ExitStatus.unavailable, failure.rawValue)
        }
    }

    /// Returns the failure for a user who lacks the target, or who does not exist.
    private func lack(_ database: Database) async throws -> CommandFailure {
        guard try await database.people.has(self.user) else {
            return CommandFailure(ExitStatus.no, "there is no user \(self.user)")
        }
        let target = self.email ? "e-mail address" : self.device.map { "active device \($0)" } ?? "active device"
        return CommandFailure(ExitStatus.no, "\(self.user) has no \(target); see `dispatcher user \(self.user)`")
    }

    private func show(_ answer: JSONValue) {
        guard !self.output.json else { return Terminal.value { $0.value(answer) } }
        var card = Card()
        for member in answer.object ?? [] where member.value != .null {
            let text = member.value.string ?? String(decoding: JSONWriter.bytes(of: member.value), as: UTF8.self)
            card.add("\(member.key.replacing("_", with: " ")):", text)
        }
        card.show()
    }
}
