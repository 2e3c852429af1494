// Carillon · TestRedis.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import NIOPosix
import Storage
import Synchronization

/// The Redis that tests share: `CARILLON_TEST_REDIS_URL`, or a private one.
package enum TestRedis {
    package static func url() async throws -> String {
        try await SharedServers.shared.redisURL()
    }

    package static func configuration(clientName: String = "test") async throws -> RedisConfiguration {
        try Self.patientConfiguration(url: try await Self.url(), clientName: clientName)
    }

    /// The configuration of a fixture's connection, which waits longer for a busy machine.
    package static func patientConfiguration(url: String, clientName: String) throws -> RedisConfiguration {
        var configuration = RedisConfiguration(address: try RedisAddress(url: url), clientName: clientName)
        configuration.commandTimeout = fixturePatience
        return configuration
    }

    /// Opens a connection; the caller closes it.
    package static func connect(_ configuration: RedisConfiguration) throws(RedisError) -> RedisClient {
        try RedisClient(
            configuration, on: MultiThreadedEventLoopGroup.singleton.next(), logger: TestLog.logger)
    }

    /// Opens a connection to the shared Redis; the caller closes it.
    package static func connect(clientName: String = "test") async throws -> RedisClient {
        try Self.connect(try await Self.configuration(clientName: clientName))
    }

    /// Returns a random prefix for the keys of one test.
    package static func prefix() -> String {
        "test-\(String(UInt64.random(in: .min ... .max), radix: 36)):"
    }

    /// Runs `body` with a connection and a key prefix; deletes the keys and closes the connection
    /// afterwards.
    package static func with<Result>(
        _ configure: (inout RedisConfiguration) -> Void = { _ in },
        _ body: (RedisClient, String) async throws -> Result
    ) async throws -> Result {
        var configuration = try await Self.configuration()
        configure(&configuration)
        let prefix = Self.prefix()
        return try await Self.with(configuration) { redis in
            try await withCleanUp({ try await Self.deleteKeys(prefix: prefix, redis) }) {
                try await body(redis, prefix)
            }
        }
    }

    /// Runs `body` with a connection, which is closed afterwards.
    package static func with<Result>(
        _ configuration: RedisConfiguration,
        _ body: (RedisClient) async throws -> Result
    ) async throws -> Result {
        let redis = try Self.connect(configuration)
        return try await withCleanUp({ await redis.close() }) { try await body(redis) }
    }

    /// Runs `body` with a connection for a fixture, which waits longer for a busy machine.
    package static func withPatience<Result>(
        _ url: String,
        _ body: (RedisClient) async throws -> Result
    ) async throws -> Result {
        try await Self.with(try Self.patientConfiguration(url: url, clientName: "fixture"), body)
    }

    /// Deletes every key that contains `prefix`.
    package static func deleteKeys(prefix: String, _ redis: RedisClient) async throws {
        var position = "0"
        repeat {
            let reply = try await redis.send("SCAN", .text(position), "MATCH", "*\(prefix)*", "COUNT", 1_000)
            guard var cursor = try reply.cursor(), try cursor.array() == 2, let next = try cursor.string() else {
                return
            }
            var keys: [RedisArgument] = []
            for _ in 0..<(try cursor.array() ?? 0) {
                if let key = try cursor.bytes() { keys.append(.slice(key)) }
            }
            if !keys.isEmpty { try await redis.send(["UNLINK"] + keys) }
            position = next
        } while position != "0"
    }
}

extension RedisClient {
    /// Returns the entries of a stream, oldest first.
    package func entries(of stream: String) async throws -> [StreamEntry] {
        guard var cursor = try await self.send("XRANGE", .text(stream), "-", "+").cursor() else { return [] }
        return try StreamEntry.read(&cursor)
    }
}

extension StreamEntry {
    /// The fields as text, by name.
    package var texts: [String: String] {
        let pairs = (self.fields ?? []).map { ($0.name, String(decoding: $0.value, as: UTF8.self)) }
        return Dictionary(pairs) { $1 }
    }
}

extension OverflowStreams {
    /// Appends jobs in one try.
    package func append(_ jobs: [Job]) async throws(RedisError) {
        var jobs = jobs
        let orgs = Set(jobs.map { ExactText($0.org) })
        try await self.append(&jobs, of: orgs)
    }
}

/// A private Redis that a test may stop, kill and start again.
///
/// It keeps an append-only file (everysec) and never evicts, as Carillon requires.
package final class RedisServer: Sendable {
    package struct Options: Sendable {
        /// Certificate and key for a TLS-only server; nil for plain TCP.
        package var certificate: TestCertificate?
        /// Further arguments, such as `["--maxclients", "2"]`.
        package var arguments: [String] = []

        package init() {}
    }

    private struct State {
        var starts = 0
        var process: ChildProcess?
    }

    package let port: Int
    /// `redis://127.0.0.1:PORT/0`, or `rediss://localhost:PORT/0`.
    package let url: String
    private let directory: TemporaryDirectory
    private let options: Options
    private let state = Mutex(State())

    private init(_ options: Options) throws {
        self.port = try FreePort.next()
        self.url = options.certificate == nil ? "redis://127.0.0.1:\(self.port)/0" : "rediss://localhost:\(self.port)/0"
        self.directory = try TemporaryDirectory("redis")
        self.options = options
    }

    deinit {
        self.state.withLock { $0.process }?.send(SIGKILL)
    }

    /// Starts a server with an empty data directory and waits until it accepts connections.
    package static func start(_ options: Options = Options()) async throws -> RedisServer {
        let server = try RedisServer(options)
        try await server.start()
        return server
    }

    /// Starts the server again on the same port with the data on disk.
    package func start() async throws {
        let number = self.state.withLock { state in
            state.starts += 1
            return state.starts
        }
        var arguments = [
            "--bind", "127.0.0.1", "--dir", self.directory.path, "--save", "", "--appendonly", "yes",
            "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--daemonize", "no",
        ]
        if let certificate = self.options.certificate {
            arguments += [
                "--port", "0", "--tls-port", "\(self.port)", "--tls-auth-clients", "no",
                "--tls-cert-file", certificate.certificateFile, "--tls-key-file", certificate.keyFile,
                "--tls-ca-cert-file", certificate.authorityFile,
            ]
        } else {
            arguments += ["--port", "\(self.port)"]
        }
        let process = try await ChildProcess.spawn(
            "redis-server", arguments + self.options.arguments, name: "redis-\(number)", directory: self.directory.path)
        self.state.withLock { $0.process = process }
        try await eventually("redis-server takes connections") {
            if process.exit != nil { throw FixtureError("redis-server ended: \(process.tail())") }
            return process.output().contains("Ready to accept connections")
        }
    }

    /// Copies the append-only files, for ``goBack()`` after a kill; later writes are the tail to
    /// lose.
    package func remember() throws {
        let manager = FileManager.default
        for name in try manager.contentsOfDirectory(atPath: self.directory.path) where name.hasPrefix("appendonly") {
            let copy = self.directory.file("copy-" + name)
            try? manager.removeItem(atPath: copy)
            try manager.copyItem(atPath: self.directory.file(name), toPath: copy)
        }
    }

    /// Restores the copy of ``remember()`` while the server is down.
    package func goBack() throws {
        try self.wipe()
        let manager = FileManager.default
        for name in try manager.contentsOfDirectory(atPath: self.directory.path) where name.hasPrefix("copy-") {
            let original = self.directory.file(String(name.dropFirst("copy-".count)))
            try manager.copyItem(atPath: self.directory.file(name), toPath: original)
        }
    }

    /// Makes snapshots fail, by a folder in the place of their file, or succeed again.
    package func blockSnapshots(_ areBlocked: Bool) throws {
        let place = self.directory.file("dump.rdb")
        if areBlocked {
            try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
        } else {
            try FileManager.default.removeItem(atPath: place)
        }
    }

    /// Removes the append-only files while the server is down.
    package func wipe() throws {
        let manager = FileManager.default
        for name in try manager.contentsOfDirectory(atPath: self.directory.path) where name.hasPrefix("appendonly") {
            try manager.removeItem(atPath: self.directory.file(name))
        }
    }

    /// Starts a server that, once filled and killed, loads its data for some seconds.
    package static func startSlowLoader() async throws -> RedisServer {
        var options = Options()
        // Microseconds a key; it takes commands after every 1,024 keys.
        options.arguments = ["--key-load-delay", "300"]
        return try await Self.start(options)
    }

    /// Writes `key-0` to `key-9999`, waits until they are on disk, and kills the server.
    package func fillAndKill() async throws {
        try await TestRedis.with(try self.configuration()) { redis in
            var batch = RedisBatch()
            for number in 0..<10_000 { batch.append("SET", .text("key-\(number)"), "1") }
            try await redis.send(batch)
            try await eventually("it is on disk") {
                try await redis.send("INFO", "persistence").string()?.contains("aof_pending_bio_fsync:0") == true
            }
        }
        try await self.kill()
    }

    /// Stops the server with SIGSTOP: connections stay open but get no answer.
    package func stall() async throws {
        guard let process = self.state.withLock({ $0.process }) else { return }
        process.send(SIGSTOP)
        try await eventually("redis-server stands still") { ProcessTable.isStopped(process.identifier) }
    }

    /// Continues after ``stall()``.
    package func resume() { self.state.withLock { $0.process }?.send(SIGCONT) }

    /// Kills the server with SIGKILL; it loses writes since the last fsync (everysec).
    package func kill() async throws {
        let process = self.state.withLock { $0.process }
        process?.send(SIGKILL)
        try await process?.waitForExit()
    }

    /// Returns the configuration of a connection, without credentials.
    package func configuration(clientName: String = "test") throws -> RedisConfiguration {
        var configuration = try TestRedis.patientConfiguration(url: self.url, clientName: clientName)
        configuration.certificateAuthorityFile = self.options.certificate?.authorityFile
        return configuration
    }

    /// Kills the server and removes its files, when the test process exits.
    func dispose() {
        self.state.withLock { $0.process }?.send(SIGKILL)
        self.directory.remove()
    }
}
