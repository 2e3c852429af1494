// Carillon · EnqueueCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
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
            let place = try await submission.submit(reader)
            if let database {
                Terminal.line(place.name)
                return try await CommandClients.withDatabase(database) { pool in
                    try await CommandClients.withRedis(redis) { connection in
                        var followed = FollowedJob(Database(pool), connection, submission, at: place)
                        try await followed.show()
                    }
                }
            }
            guard self.output.json else { return Terminal.line(place.name) }
            Terminal.object { writer in
                writer.member("stream", place.stream)
                writer.member("entry", place.entry)
            }
        }
    }
}

/// A job from the command line, validated as the dispatcher does, then appended to its lane's
/// stream.
struct JobSubmission {
    let fields: [(name: String, value: [UInt8])]
    let job: Job

    /// Validates the fields.
    ///
    /// - Parameters:
    ///   - named: fields with options of their own.
    ///   - others: each `name=value`.
    /// - Throws: `ValidationError` that names every fault.
    init(_ named: [(String, String?)], others: [String]) throws {
        let fields = try Self.fields(named, others: others)
        self.fields = fields
        self.job = try Self.checked { () throws(JobFaults) in
            try JobDecoder.decode(fields.map { ($0.name, $0.value[...]) })
        }
    }

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
    /// - Returns: the job's place.
    func submit(_ reader: SettingsReader) async throws -> JobPlace {
        let catalog = await CommandClients.catalog(reader, isRequired: false)
        let redis = RedisSettings(reader)
        try reader.finish()
        let lane = try self.lane(catalog)
        return try await CommandClients.withRedis(redis.configuration(clientName: "carillon-enqueue")) { connection in
            let live = try await Live.installed(on: connection, replicated: try redis.replicatedWrites(on: connection))
            return try await live.jobs.append([(lane, self.fields)])[0]
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

extension JobPlace {
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
