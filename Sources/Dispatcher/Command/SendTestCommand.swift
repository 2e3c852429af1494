// Carillon · SendTestCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
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
                try await CommandClients.withDatabase(database) { pool in
                    try await self.email
                        ? self.answerOfMail(redis, Database(pool)) : self.answer(redis, Database(pool))
                }
            }
            self.show(answer)
            guard answer["outcome"]?.string == "accepted" else { throw ExitStatus.no }
        }
    }

    private func answer(_ redis: RedisClient, _ database: Database) async throws -> JSONValue {
        let devices = try await database.devices.list(user: self.user).filter(\.isActive)
        let wanted = self.device.map { DeviceID($0) }
        let chosen =
            wanted.map { id in devices.first { $0.id == id } } ?? devices.max { $0.lastUsedAt < $1.lastUsedAt }
        guard let chosen else {
            throw try await self.lack(of: self.device.map { "active device \($0)" } ?? "active device", database)
        }
        let answer = try await self.ask([JSONMember("device", .string(chosen.id.description))], redis)
        let device = [
            JSONMember("device", .string(chosen.id.description)),
            JSONMember("provider", .string(chosen.provider.rawValue)), JSONMember("app", .string(chosen.app)),
        ]
        return JSONValue.object(device).merging(answer)
    }

    private func answerOfMail(_ redis: RedisClient, _ database: Database) async throws -> JSONValue {
        guard try await database.preferences.settings(user: self.user).email != nil else {
            throw try await self.lack(of: "e-mail address", database)
        }
        let answer = try await self.ask([JSONMember("channel", .string("email"))], redis)
        return JSONValue.object([JSONMember("provider", .string(Provider.email.rawValue))]).merging(answer)
    }

    /// Returns the failure for a user who lacks a target, or who does not exist.
    private func lack(of target: String, _ database: Database) async throws -> CommandFailure {
        guard try await database.people.has(self.user) else {
            return CommandFailure(ExitStatus.no, "there is no user \(self.user)")
        }
        return CommandFailure(ExitStatus.no, "\(self.user) has no \(target); see `dispatcher user \(self.user)`")
    }

    /// Sends a request for a target to a dispatcher, and returns its answer.
    private func ask(_ target: [JSONMember], _ redis: RedisClient) async throws -> JSONValue {
        var members = [JSONMember("user", .string(self.user))] + target
        for case (let name, .some(let text)) in [("title", self.title), ("body", self.body)] {
            members.append(JSONMember(name, .string(text)))
        }
        do {
            let answer = try await Live(redis).testSends.send(members)
            // It quotes the provider, which may use any number of combining marks.
            return try JSONParser.parse(stored: answer)
        } catch let failure as TestSends.Failure {
            throw CommandFailure(ExitStatus.unavailable, failure.rawValue)
        }
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
