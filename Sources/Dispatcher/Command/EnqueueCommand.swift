// Carillon · EnqueueCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Catalog
import JSON
import Logging
import Model
import NIOPosix
import Redis
import Settings
import Streams
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
            let fields = try self.jobFields()
            let reader = try await SettingsReader.process(file: self.options.config)
            let catalogPath = reader.text("CATALOG")
            let catalog = await reader.load("CATALOG", isSet: catalogPath != nil) {
                try CatalogLoader.load(path: catalogPath ?? "")
            }
            let address = await reader.load("REDIS_URL", isSet: true) {
                try RedisAddress(url: reader.text("REDIS_URL") ?? "redis://127.0.0.1:6379/0")
            }
            try reader.finish()
            guard let address else { return }
            let job: Job
            do throws(JobFaults) {
                let slices = fields.map { (name: $0.name, value: $0.value[...]) }
                job = if let catalog { try catalog.job(slices) } else { try JobDecoder.decode(slices) }
            } catch {
                throw ValidationError(error.faults.map { "\($0)" }.joined(separator: "\n"))
            }
            let entry = try await Self.append(fields, lane: Self.lane(of: job, catalog), to: address)
            Terminal.line(entry)
        }
    }

    private func jobFields() throws -> [(name: String, value: [UInt8])] {
        var fields: [(name: String, value: [UInt8])] = []
        let named: [(String, String?)] = [
            ("user", self.user), ("type", self.type), ("title", self.title), ("body", self.body),
            ("data", self.data), ("id", self.id), ("lane", self.lane),
        ]
        for case (let name, .some(let value)) in named { fields.append((name, Array(value.utf8))) }
        if let users {
            let list = users.split(separator: ",").map { JSONValue.string(String($0)) }
            fields.append(("users", JSONWriter.bytes(of: .array(list))))
        }
        for field in self.fields {
            guard let equals = field.firstIndex(of: "=") else {
                throw ValidationError("--field takes name=value, not \(field)")
            }
            fields.append((String(field[..<equals]), Array(field[field.index(after: equals)...].utf8)))
        }
        return fields
    }

    private static func lane(of job: Job, _ catalog: Catalog?) -> Lane {
        guard case .notification(let content) = job.payload else { return .normal }
        return content.lane ?? catalog?[content.type]?.lane ?? .normal
    }

    private static func append(
        _ fields: [(name: String, value: [UInt8])],
        lane: Lane,
        to address: RedisAddress
    ) async throws -> String {
        let connection = try RedisConnection(
            RedisConfiguration(address: address, clientName: "carillon-enqueue"),
            on: MultiThreadedEventLoopGroup.singleton.next(),
            logger: Logger(label: "carillon.enqueue")
        )
        let entries = try await JobStream(connection: connection, keys: Keyspace()).append([(lane, fields)])
        await connection.close()
        return entries.first ?? ""
    }
}
