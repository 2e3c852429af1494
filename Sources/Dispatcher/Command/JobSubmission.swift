// Carillon · JobSubmission.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Catalog
import Logging
import Model
import NIOPosix
import Redis
import Settings
import Streams

/// A job from the command line: checked as the dispatcher will do, then appended to its lane's stream.
struct JobSubmission {
    let fields: [(name: String, value: [UInt8])]
    let job: Job

    /// Checks the fields.
    ///
    /// - Parameters:
    ///   - named: those that were given, by name.
    ///   - others: each `name=value`.
    /// - Throws: `ValidationError` that names every fault.
    init(_ named: [(String, String?)], others: [String]) throws {
        var fields: [(name: String, value: [UInt8])] = []
        for case (let name, .some(let value)) in named { fields.append((name, Array(value.utf8))) }
        for field in others {
            guard let equals = field.firstIndex(of: "=") else {
                throw ValidationError("--field takes name=value, not \(field)")
            }
            fields.append((String(field[..<equals]), Array(field[field.index(after: equals)...].utf8)))
        }
        self.fields = fields
        self.job = try Self.checked { () throws(JobFaults) in
            try JobDecoder.decode(fields.map { ($0.name, $0.value[...]) })
        }
    }

    private static func checked(_ read: () throws(JobFaults) -> Job) throws -> Job {
        do throws(JobFaults) {
            return try read()
        } catch {
            throw ValidationError(error.faults.map { "\($0)" }.joined(separator: "\n"))
        }
    }

    /// Appends the job where the settings say; the catalog, if there is one, checks its type and gives its lane.
    ///
    /// - Returns: the stream and the entry's id.
    func submit(_ reader: SettingsReader) async throws -> (stream: String, entry: String) {
        let path = reader.text("CATALOG")
        let catalog = await reader.load("CATALOG", isSet: path != nil) { try CatalogLoader.load(path: path ?? "") }
        let address = await reader.load("REDIS_URL", isSet: true) {
            try RedisAddress(url: reader.text("REDIS_URL") ?? "redis://127.0.0.1:6379/0")
        }
        try reader.finish()
        guard let address else { return ("", "") }
        let lane = try self.lane(catalog)
        let connection = try RedisConnection(
            RedisConfiguration(address: address, clientName: "carillon-enqueue"),
            on: MultiThreadedEventLoopGroup.singleton.next(),
            logger: Logger(label: "carillon.enqueue")
        )
        let keys = Keyspace()
        let entries = try await JobStream(connection: connection, keys: keys).append([(lane, self.fields)])
        await connection.close()
        return (keys.jobs(lane), entries.first ?? "")
    }

    private func lane(_ catalog: Catalog?) throws -> Lane {
        if let catalog {
            let slices = self.fields.map { (name: $0.name, value: $0.value[...]) }
            _ = try Self.checked { () throws(JobFaults) in try catalog.job(slices) }
        }
        guard case .notification(let content) = self.job.payload else { return .normal }
        return content.lane ?? catalog?[content.type]?.lane ?? .normal
    }
}
