// Carillon · ScratchStack.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Storage
import Support

/// Separate services on temporary databases, which a benchmark may kill and measure.
///
/// Other settings come from the environment, as `deploy/up` wrote them.
final class ScratchStack: Sendable {
    let database: ScratchDatabase
    let redis: ScratchRedis
    let folder: String
    private let programs: ProgramOptions

    private init(_ database: ScratchDatabase, _ redis: ScratchRedis, folder: String, programs: ProgramOptions) {
        self.database = database
        self.redis = redis
        self.folder = folder
        self.programs = programs
    }

    /// Runs `body` with new databases; afterwards drops them and stops the programs.
    static func use(
        _ programs: ProgramOptions,
        _ body: (ScratchStack) async throws -> Void
    ) async throws {
        let folder = try TemporaryDirectory("bench")
        try await ScratchDatabase.use { database in
            let redis = try await ScratchRedis.make()
            let stack = ScratchStack(database, redis, folder: folder.path, programs: programs)
            try await withCleanUp({ try await redis.drop() }) { try await body(stack) }
        }
    }

    /// Starts a gateway and returns it with its port.
    ///
    /// - Parameters:
    ///   - core: the core for all its threads; any if nil.
    ///   - port: 0 for any free port.
    ///   - settings: additional settings.
    func gateway(
        name: String = "gateway",
        core: Int? = nil,
        port: Int = 0,
        settings: [String: String] = [:]
    ) async throws -> (program: ChildProcess, port: Int) {
        let listener = ["GATEWAY_PORT": "\(port)", "GATEWAY_HOST": "127.0.0.1"]
        let program = try await self.start(
            self.programs.gatewayPath, ["serve"], name: name, core: core, settings: listener.merging(settings) { $1 })
        return (program, try await Self.port(of: program))
    }

    /// Starts a yardstick server of this program and returns it with its port.
    func bareServer(_ arguments: [String], core: Int? = nil) async throws -> (program: ChildProcess, port: Int) {
        let program = try await self.start(ProgramOptions.ownPath, arguments, name: "bare", core: core, settings: [:])
        return (program, try await Self.port(of: program))
    }

    /// Returns the port of the address that a server prints when it is ready.
    static func port(of program: ChildProcess) async throws -> Int {
        let line = try await program.waitForLine("ready ")
        guard let port = URL(string: String(line.dropFirst("ready ".count)))?.port else {
            throw ValidationError("\(program.name) printed no port")
        }
        return port
    }

    /// Starts a dispatcher.
    ///
    /// - Parameter settings: additional settings.
    func dispatcher(name: String = "dispatcher", settings: [String: String] = [:]) async throws -> ChildProcess {
        try await self.start(
            self.programs.dispatcherPath, ["run"], name: name, core: nil,
            settings: ["METRICS_PORT": "0"].merging(settings) { $1 })
    }

    private func start(
        _ program: String,
        _ arguments: [String],
        name: String,
        core: Int?,
        settings: [String: String]
    ) async throws -> ChildProcess {
        let words = (core.map { ["taskset", "-c", "\($0)"] } ?? []) + [program] + arguments
        let stores = ["REDIS_URL": self.redis.url, "DATABASE_URL": self.database.url]
        return try await ChildProcess.spawn(
            words[0], Array(words.dropFirst()), name: name, environment: stores.merging(settings) { $1 },
            directory: self.folder)
    }

    /// The process ids of both stores' servers, which must run on this machine.
    func servers() async throws -> (postmaster: pid_t, redis: pid_t) {
        let rows = try await self.database.pool.query("SELECT pg_backend_pid()::int8")
        guard let backend = try rows.first?.int8(0), let postmaster = ProcessFields(of: pid_t(backend)).parent else {
            throw ValidationError("PostgreSQL does not run on this machine")
        }
        return (postmaster, pid_t(try await self.redis.information("server", "process_id")))
    }
}

/// The programs that a benchmark starts.
struct ProgramOptions: ParsableArguments {
    @Option(help: "Path of the gateway; by default next to this program.")
    var gateway: String?

    @Option(help: "Path of the dispatcher; by default next to this program.")
    var dispatcher: String?

    @Option(help: "Path of the provider sandbox; by default next to this program.")
    var sandbox: String?

    private static func sibling(_ name: String) -> String {
        URL(fileURLWithPath: self.ownPath).deletingLastPathComponent().appendingPathComponent(name).path
    }

    /// The path of this program.
    static var ownPath: String {
        (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
    }

    var gatewayPath: String { self.gateway ?? Self.sibling("gateway") }
    var sandboxPath: String { self.sandbox ?? Self.sibling("provider-sandbox") }
    var dispatcherPath: String { self.dispatcher ?? Self.sibling("dispatcher") }
}

/// Redis state of a stack's services.
extension ScratchStack {
    /// Returns the number of present users whose names begin with `prefix`.
    func presences(of prefix: String) async throws -> Int {
        try await self.keys("carillon:presence:{\(prefix)*").count
    }

    /// Returns the gateways that hold a lease.
    func nodes() async throws -> Set<String> {
        let prefix = "carillon:node:"
        return Set(try await self.keys(prefix + "*").map { String($0.dropFirst(prefix.count)) })
    }

    /// Waits for a gateway other than `others` that holds a lease, and returns it.
    func node(besides others: Set<String> = []) async throws -> String {
        let deadline = ContinuousClock.now + .seconds(30)
        while ContinuousClock.now < deadline {
            if let node = try await self.nodes().subtracting(others).first { return node }
            // Poll, because nothing signals a new lease.
            try await Task.sleep(for: .milliseconds(5))
        }
        throw ValidationError("no gateway acquired a lease in 30 s")
    }

    /// Waits until `channel` has a subscriber.
    func awaitSubscriber(of channel: String) async throws {
        let deadline = ContinuousClock.now + .seconds(30)
        while ContinuousClock.now < deadline {
            let reply = try await self.redis.connection.send("PUBSUB", "NUMSUB", .text(channel))
            if var answer = try reply.cursor(), try answer.array() == 2 {
                _ = try answer.string()
                if try answer.integer() > 0 { return }
            }
            // Poll, because Redis does not signal subscriptions.
            try await Task.sleep(for: .milliseconds(5))
        }
        throw ValidationError("no subscriber of \(channel) in 30 s")
    }

    private func keys(_ pattern: String) async throws -> Set<String> {
        var cursor = "0"
        var keys: Set<String> = []
        repeat {
            let reply = try await self.redis.connection.send(
                "SCAN", .text(cursor), "MATCH", .text(pattern), "COUNT", "1000"
            )
            guard var answer = try reply.cursor(), try answer.array() == 2 else { break }
            cursor = try answer.string() ?? "0"
            for _ in 0..<(try answer.array() ?? 0) {
                if let key = try answer.string() { keys.insert(key) }
            }
        } while cursor != "0"
        return keys
    }
}

/// A temporary, migrated database on the server of `DATABASE_URL`.
struct ScratchDatabase {
    /// The connection string.
    let url: String
    let pool: PostgresPool
    private let name: String
    private let server: PostgresPool

    /// Runs `body` with a new database and drops it afterwards.
    static func use(_ body: (ScratchDatabase) async throws -> Void) async throws {
        let database = try await self.make()
        try await withCleanUp({ try await database.drop() }) { try await body(database) }
    }

    private static func make() async throws -> ScratchDatabase {
        let server = try Environment.database()
        let name = "carillon_bench_\(UInt32.random(in: .min ... .max))"
        try await server.withScriptConnection { try $0.execute("CREATE DATABASE \(name)") }
        // In both of libpq's formats, the last value wins.
        let whole = try Environment.require("DATABASE_URL")
        let url: String
        if whole.contains("://") {
            url = whole + (whole.contains("?") ? "&" : "?") + "dbname=\(name)"
        } else {
            url = "\(whole) dbname=\(name)"
        }
        var configuration = PostgresConfiguration(connectionString: url, applicationName: "benchmarks")
        configuration.sessionSettings = StoreSession.settings
        configuration.connections = 1
        configuration.timeout = .seconds(300)
        let pool = try PostgresPool(configuration, logger: Environment.logger)
        try await Migrations.apply(to: pool, logger: Environment.quiet)
        try await pool.withScriptConnection { try $0.execute(Self.oldParts) }
        return ScratchDatabase(url: url, pool: pool, name: name, server: server)
    }

    /// Creates the audit's partitions of the last 89 days, as a system in use has them: PostgreSQL
    /// opens all of them for each statement that names the audit.
    private static let oldParts = """
        DO $$
        DECLARE
            part date;
        BEGIN
            FOR part IN SELECT (now() AT TIME ZONE 'UTC')::date - n FROM generate_series(1, 89) AS n LOOP
                EXECUTE format(
                    'CREATE TABLE carillon.delivery_attempts_%s PARTITION OF carillon.delivery_attempts '
                    'FOR VALUES FROM (%L) TO (%L)',
                    to_char(part, 'YYYYMMDD'), part::timestamp AT TIME ZONE 'UTC',
                    (part + 1)::timestamp AT TIME ZONE 'UTC');
            END LOOP;
        END $$
        """

    private func drop() async throws {
        self.pool.close()
        let name = self.name
        try await self.server.withScriptConnection { try $0.execute("DROP DATABASE \(name) WITH (FORCE)") }
        self.server.close()
    }
}

/// An empty database on the server of `REDIS_URL`.
struct ScratchRedis {
    let url: String
    let connection: RedisClient

    /// Takes the first empty database from number 1 on.
    static func make() async throws -> ScratchRedis {
        for number in 1...15 {
            guard var components = URLComponents(string: try Environment.require("REDIS_URL")) else { break }
            if components.scheme == "unix" {
                components.queryItems = [URLQueryItem(name: "db", value: "\(number)")]
            } else {
                components.path = "/\(number)"
            }
            guard let url = components.string else { break }
            let connection = try Environment.redis(url: url)
            if try await connection.send("DBSIZE").integer() == 0 {
                return ScratchRedis(url: url, connection: connection)
            }
            await connection.close()
        }
        throw ValidationError("REDIS_URL: no empty database; flush one of 1 to 15")
    }

    /// Returns the server's `used_memory` in bytes.
    func usedMemory() async throws -> Int { try await self.information("memory", "used_memory") }

    /// Returns a number of a section of INFO.
    func information(_ section: String, _ name: String) async throws -> Int {
        let text = try await self.connection.send("INFO", .text(section)).string() ?? ""
        let line = text.split(whereSeparator: \.isNewline).first { $0.hasPrefix(name + ":") }
        guard let value = line.flatMap({ Int($0.dropFirst(name.count + 1)) }) else {
            throw ValidationError("INFO \(section) has no \(name)")
        }
        return value
    }

    /// Empties the database.
    func drop() async throws {
        try await self.connection.send("FLUSHDB", timeout: .seconds(60))
        await self.connection.close()
    }
}

/// A separate provider sandbox for a benchmark.
struct ScratchSandbox {
    let program: ChildProcess
    let control: SandboxControl
    /// The settings that make a dispatcher use this sandbox.
    let settings: [String: String]
}

extension ScratchStack {
    /// Starts a sandbox that records nothing and answers `slow` tokens late.
    func sandbox(slow milliseconds: Int, threads: Int = 1) async throws -> ScratchSandbox {
        let folder = "\(self.folder)/sandbox"
        let program = try await ChildProcess.spawn(
            self.programs.sandboxPath,
            [
                "--directory", folder, "--no-record", "--slow-milliseconds", "\(milliseconds)", "--threads",
                "\(threads)",
            ],
            name: "sandbox", directory: self.folder)
        let urls = try await program.waitForLine("ready ").split(separator: " ").map(String.init)
        guard urls.count >= 3 else { throw ValidationError("the sandbox printed no addresses") }
        let authority = "\(folder)/ca.pem"
        let key = try APNSKeyFacts(file: "\(folder)/apns.json")
        return ScratchSandbox(
            program: program,
            control: try SandboxControl(url: urls[2], authority: authority),
            settings: [
                "FCM_CREDENTIALS": "\(folder)/service-account.json", "FCM_ENDPOINT": urls[1], "PROVIDER_CA": authority,
                "APNS_KEY": "\(folder)/apns.p8", "APNS_KEY_ID": key.id, "APNS_TEAM_ID": key.team,
                "APNS_ENDPOINT": urls[1],
            ]
        )
    }
}

/// The sandbox's APNs key id and team id.
private struct APNSKeyFacts {
    let id: String
    let team: String

    init(file: String) throws {
        let facts = try JSONSerialization.jsonObject(with: try Data(contentsOf: URL(filePath: file))) as? [String: Any]
        guard let facts, let id = facts["key_id"] as? String, let team = facts["team_id"] as? String else {
            throw ValidationError("the sandbox wrote no APNs key")
        }
        (self.id, self.team) = (id, team)
    }
}
