// Carillon · SendTestCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import JSON
import Logging
import Model
import NIOPosix
import Postgres
import Redis
import Settings
import Stores
import Streams
import Telemetry

/// `dispatcher send-test`.
struct SendTestCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "send-test",
        abstract: "Sends to one device, and prints the provider's whole answer and what to do about it.",
        discussion: """
            A running dispatcher sends it, with its own credentials: past preferences, quiet hours, records and retries. Needs
            REDIS_URL and DATABASE_URL. Exits with 0 if the provider accepted it, with 1 if not.

            Examples:
              dispatcher send-test --user u1
              dispatcher send-test --user u1 --device 01a1f866-0d7b-841c-a9a6-5597aa0575f3 --title "Is this on?" --json
            """
    )

    private static let patience: Duration = .seconds(40)

    @OptionGroup var options: CommonOptions

    @Option(help: "Whose device it is.")
    var user: String

    @Option(help: "The device's id; the one that was used last if not given.")
    var device: String?

    @Option(help: "The title.")
    var title: String?

    @Option(help: "The body.")
    var body: String?

    @Flag(help: "Print JSON.")
    var json = false

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try await SettingsReader.process(file: self.options.config)
            let address = await reader.load("REDIS_URL", isSet: true) {
                try RedisAddress(url: reader.text("REDIS_URL") ?? "redis://127.0.0.1:6379/0")
            }
            if reader.text("DATABASE_URL") == nil { reader.fault("DATABASE_URL", "is missing") }
            try reader.finish()
            guard let address else { return }
            let logger = Logger(label: "carillon.send-test")
            let redis = try RedisConnection(
                RedisConfiguration(address: address, clientName: "carillon-send-test"),
                on: MultiThreadedEventLoopGroup.singleton.next(),
                logger: logger
            )
            let pool = try PostgresPool(
                PostgresConfiguration(
                    connectionString: reader.text("DATABASE_URL") ?? "", applicationName: "carillon-send-test"),
                logger: logger
            )
            let answer = try await self.answer(redis, DeviceStore(pool: pool))
            await redis.close()
            pool.close()
            self.print(answer)
            guard answer["outcome"]?.string == "accepted" else { throw ExitCode.failure }
        }
    }

    private func answer(_ redis: RedisConnection, _ store: DeviceStore) async throws -> JSONValue {
        let devices = try await store.list(user: self.user).filter(\.isActive)
        let wanted = self.device.map { NotificationID($0) }
        let chosen =
            wanted.map { id in devices.first { $0.id == id } } ?? devices.max { $0.lastUsedAt < $1.lastUsedAt }
        guard let chosen else { throw ValidationError("the user has no such active device") }
        let id = RandomName.make()
        var members = [
            JSONMember("id", .string(id)), JSONMember("user", .string(chosen.user)),
            JSONMember("device", .string(chosen.id.description)),
        ]
        for case (let name, .some(let text)) in [("title", self.title), ("body", self.body)] {
            members.append(JSONMember(name, .string(text)))
        }
        let sends = TestSends(connection: redis, keys: Keyspace())
        guard try await sends.ask(JSONWriter.bytes(of: .object(members))) else {
            throw ValidationError("too many test sends wait; is a dispatcher running?")
        }
        let deadline = ContinuousClock.now + Self.patience
        while ContinuousClock.now < deadline {
            if let text = try await sends.findAnswer(id) {
                let device = [
                    JSONMember("device", .string(chosen.id.description)),
                    JSONMember("provider", .string(chosen.provider.rawValue)), JSONMember("app", .string(chosen.app)),
                ]
                return JSONValue.object(device).merging(try JSONParser.parse(text))
            }
            // The answer is a key that nobody announces.
            try await Task.sleep(for: .milliseconds(100))
        }
        throw ValidationError("no dispatcher answered; is one running?")
    }

    private func print(_ answer: JSONValue) {
        guard !self.json else {
            Terminal.line(String(decoding: JSONWriter.bytes(of: answer), as: UTF8.self))
            return
        }
        for member in answer.object ?? [] where member.value != .null {
            let text = member.value.string ?? String(decoding: JSONWriter.bytes(of: member.value), as: UTF8.self)
            Terminal.line("\(member.key.replacing("_", with: " ")): \(text)")
        }
    }
}
