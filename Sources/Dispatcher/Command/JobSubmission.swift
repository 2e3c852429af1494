// Carillon · JobSubmission.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations
import Providers
import Storage

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
        let fields = try Self.fields(named, others: others)
        self.fields = fields
        self.job = try Self.checked { () throws(JobFaults) in
            try JobDecoder.decode(fields.map { ($0.name, $0.value[...]) }, providers: ProviderKinds.providers)
        }
    }

    /// The fields that were given; none is checked.
    static func fields(_ named: [(String, String?)], others: [String]) throws -> [(name: String, value: [UInt8])] {
        var fields: [(name: String, value: [UInt8])] = []
        for case (let name, .some(let value)) in named { fields.append((name, Array(value.utf8))) }
        for field in others {
            guard let equals = field.firstIndex(of: "=") else {
                throw ValidationError("--field takes name=value, not \(field)")
            }
            fields.append((String(field[..<equals]), Array(field[field.index(after: equals)...].utf8)))
        }
        return fields
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
        let catalog = await CommandClients.catalog(reader, isRequired: false)
        let configuration = await CommandClients.redis(reader, name: "enqueue")
        try reader.finish()
        guard let configuration else { return ("", "") }
        let lane = try self.lane(catalog)
        return try await CommandClients.withRedis(configuration) { connection in
            let keys = Keyspace()
            let entries = try await Live(connection, keys: keys).jobs.append([(lane, self.fields)])
            return (keys.jobs(lane), entries.first ?? "")
        }
    }

    private func lane(_ catalog: Catalog?) throws -> Lane {
        if let catalog {
            let slices = self.fields.map { (name: $0.name, value: $0.value[...]) }
            _ = try Self.checked { () throws(JobFaults) in try catalog.job(slices, providers: ProviderKinds.providers) }
        }
        guard case .notification(let content) = self.job.payload else { return .normal }
        return content.lane ?? catalog?[content.type]?.lane ?? .normal
    }
}
