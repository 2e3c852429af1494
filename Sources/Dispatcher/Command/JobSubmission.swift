// Carillon · JobSubmission.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Operations
import Storage

/// A job from the command line, validated as the dispatcher does, then appended to its lane's
/// stream.
struct JobSubmission {
    let fields: [(name: String, value: [UInt8])]
    let job: Job

    /// Validates the fields, and adds an id if there is none.
    ///
    /// With the id, you can repeat a command that may have sent its job.
    ///
    /// - Parameters:
    ///   - named: fields with options of their own.
    ///   - others: each `name=value`.
    /// - Throws: `ValidationError` that names every fault.
    init(_ named: [(String, String?)], others: [String]) throws {
        var given = try Self.fields(named, others: others)
        if !given.contains(where: { $0.name == "id" }) {
            // At the end, because the first field may determine the part of a cluster.
            given.append(("id", Array(Identifier.random().description.utf8)))
        }
        let fields = given
        self.fields = fields
        self.job = try Self.checked { () throws(JobFaults) in
            try JobDecoder.decode(fields.map { ($0.name, $0.value[...]) })
        }
    }

    /// The command that shows the job, also after a scheduled one has fired with a new entry.
    var inquiry: String { "`dispatcher job \(self.job.id ?? "")`" }

    /// When the job is due; nil if that is now.
    var dueLater: Timestamp? {
        guard case .notification(let content) = self.job.payload, let moment = content.deliverAt,
            moment > Timestamp.now() + JobContent.scheduleTolerance
        else { return nil }
        return moment
    }

    /// Collects the given fields without validating them.
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

    private static func checked(hint: String? = nil, _ read: () throws(JobFaults) -> Job) throws -> Job {
        do throws(JobFaults) {
            return try read()
        } catch {
            let lines = error.faults.map(\.description) + [hint].compactMap(\.self)
            throw ValidationError(lines.joined(separator: "\n"))
        }
    }

    /// Suggests a known type for a mistyped one, as a line below the faults.
    private func hint(_ catalog: Catalog) -> String? {
        guard case .notification(let content) = self.job.payload, catalog[content.type] == nil else { return nil }
        return Spelling.nearest(to: content.type, of: catalog.all.map(\.name)).map { "type: did you mean \($0)?" }
    }

    /// Appends the job; the catalog, if there is one, checks its type and texts and gives its lane.
    ///
    /// - Parameter prepare: runs once the settings and the job are valid, before the job is
    ///   appended.
    /// - Returns: the job in its stream.
    /// - Throws: also if the job may have been sent; then it prints the id for a repeat.
    func submit(
        _ reader: SettingsReader,
        after prepare: () async throws -> Void = {}
    ) async throws -> AppendedJob {
        let catalog = await CommandClients.catalog(reader, isRequired: false)
        let redis = RedisSettings(reader)
        try reader.finish()
        let lane = try self.lane(catalog)
        try await prepare()
        return try await CommandClients.withRedis(redis.configuration(clientName: "carillon-enqueue")) { connection in
            let live = try await Live.installed(on: connection, replicated: try redis.replicatedWrites(on: connection))
            do throws(RedisError) {
                return try await live.jobs.append([(lane, self.fields)])[0]
            } catch {
                if error.mayHaveRun, let id = self.job.id {
                    Terminal.error("dispatcher: the job may have been sent; repeat it only with --id \(id)")
                }
                throw error
            }
        }
    }

    /// Appends the job as ``submit(_:after:)`` does, unless PostgreSQL cannot be queried.
    ///
    /// A command that fails is repeated, and a repeat with another id would notify again. So a
    /// command that reads the outcome from PostgreSQL queries it before it sends.
    func submit(_ reader: SettingsReader, readable database: PostgresConfiguration) async throws -> AppendedJob {
        try await self.submit(reader) {
            try await CommandClients.withDatabase(database) { pool in
                _ = try await Database(pool).layout.recorded()
            }
        }
    }

    private func lane(_ catalog: Catalog?) throws -> Lane {
        if let catalog {
            _ = try Self.checked(hint: self.hint(catalog)) { () throws(JobFaults) in
                try catalog.checkedJob(self.fields)
            }
        }
        guard case .notification(let content) = self.job.payload else { return .normal }
        return catalog?.lane(of: content) ?? content.lane ?? .normal
    }
}

extension AppendedJob {
    /// The `stream/entry` by which commands name the job.
    var origin: String { "\(self.stream)/\(self.entry)" }

    /// Writes the stream and the entry as members.
    func write(to writer: inout JSONWriter) {
        writer.member("stream", self.stream)
        writer.member("entry", self.entry)
    }

    /// Runs `watch`; if a store fails meanwhile, says that the job was sent.
    ///
    /// - Parameter json: whether to print the job's place, because the result has not been printed.
    func watched(json: Bool = false, _ watch: () async throws -> Void) async throws {
        do {
            try await watch()
        } catch let error where error is RedisError || error is PostgresError {
            if json { Terminal.object { self.write(to: &$0) } }
            Terminal.error("dispatcher: the job was sent as \(self.origin) and goes on; do not send it again")
            throw error
        }
    }

    /// Whether the entry is still in its stream.
    ///
    /// A dispatcher stores the result before it removes the entry.
    func isWaiting(_ redis: RedisClient) async throws -> Bool {
        var found = try await redis.send("XRANGE", .text(self.stream), .text(self.entry), .text(self.entry)).cursor()
        return try found?.array() ?? 0 > 0
    }
}

/// The content of a job, as options of every command that takes one.
struct JobTextOptions: ParsableArguments {
    @Option(help: "The title.")
    var title: String?

    @Option(help: "The body.")
    var body: String?

    @Option(help: "A JSON object for the client.")
    var data: String?

    @Option(name: .customLong("field"), help: ArgumentHelp("Any other field of a job.", valueName: "name=value"))
    var fields: [String] = []

    /// The given fields by name.
    var named: [(String, String?)] { [("title", self.title), ("body", self.body), ("data", self.data)] }
}
