// Carillon · PostgresServer.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Synchronization

/// A private PostgreSQL cluster that a test may stop, kill and start again.
///
/// It trusts all local connections. Its data survives a killed process, but not a crash of the
/// machine.
package final class PostgresServer: Sendable {
    private struct State {
        var starts = 0
        var process: ChildProcess?
    }

    package let port: Int
    /// The URL of the database `postgres`, as a superuser.
    package let url: String
    private let directory: TemporaryDirectory
    private let account: ChildProcess.Account?
    private let programs: String
    private let state = Mutex(State())

    private init() throws {
        self.port = try FreePort.next()
        self.url = "postgresql://carillon@127.0.0.1:\(self.port)/postgres"
        self.directory = try TemporaryDirectory("postgres")
        self.account = try Self.unprivilegedAccount()
        self.programs = try Self.findPrograms()
    }

    deinit {
        self.state.withLock { $0.process }?.send(SIGKILL)
    }

    /// Creates a cluster, starts it and waits until it accepts connections.
    package static func start() async throws -> PostgresServer {
        let server = try PostgresServer()
        try await server.initialise()
        try await server.start()
        return server
    }

    private func initialise() async throws {
        try await ChildProcess.run(
            self.programs + "/initdb",
            [
                "-D", self.directory.file("data"), "-U", "carillon", "--auth=trust", "--encoding=UTF8",
                "--locale=C.UTF-8", "--no-sync", "--no-instructions",
            ],
            directory: self.directory.path, account: try self.own())
    }

    // MARK: Standbys

    /// Starts a standby that follows this server.
    package func startStandby() async throws -> PostgresServer {
        let standby = try PostgresServer()
        try await ChildProcess.run(
            self.programs + "/pg_basebackup",
            [
                "--dbname=\(self.url)", "--pgdata=\(standby.directory.file("data"))", "--write-recovery-conf",
                "--checkpoint=fast", "--no-sync",
            ],
            directory: standby.directory.path, account: try standby.own())
        try await standby.start()
        return standby
    }

    /// Makes commits wait for a standby from now on.
    package func waitForStandby() async throws {
        try await self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    }

    /// Writes messages of a megabyte to the log, which change nothing.
    package func fillLog(megabytes: Int) async throws {
        try await self.execute(
            "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)) FROM generate_series(1, \(megabytes))")
    }

    /// Makes a standby receive changes without applying them, until ``catchUp()``.
    package func holdBack() async throws { try await self.execute("SELECT pg_wal_replay_pause()") }

    package func catchUp() async throws { try await self.execute("SELECT pg_wal_replay_resume()") }

    /// Makes a standby the primary.
    package func promote() async throws { try await self.execute("SELECT pg_promote()") }

    private func execute(_ statements: String...) async throws {
        let commands = statements.map { "--command=\($0)" }
        try await self.run(self.programs + "/psql", ["--quiet", "--dbname=\(self.url)"] + commands)
    }

    /// Gives the folder to the server's account.
    private func own() throws -> ChildProcess.Account? {
        if let account { chown(self.directory.path, account.user, account.group) }
        return self.account
    }

    /// Starts the server again on the same port with the data on disk.
    package func start() async throws {
        let settings = [
            "listen_addresses=127.0.0.1", "port=\(self.port)", "unix_socket_directories=", "max_connections=400",
            "fsync=off", "full_page_writes=off", "lc_messages=C", "shared_buffers=64MB",
            // Used only in recovery, which then ends with the files that are there.
            "restore_command=false",
        ]
        let arguments = ["-D", self.directory.file("data")] + settings.flatMap { ["-c", $0] }
        try await eventually("postgres takes connections") {
            let number = self.state.withLock { state in
                state.starts += 1
                return state.starts
            }
            let process = try await ChildProcess.spawn(
                self.programs + "/postgres", arguments, name: "postgres-\(number)", directory: self.directory.path,
                account: self.account, deathSignal: "QUIT")
            self.state.withLock { $0.process = process }
            try await eventually("postgres starts or ends") {
                process.exit != nil || process.errors().contains("ready to accept")
            }
            // The children of a killed server hold its shared memory for a moment, so the new start
            // fails; try again.
            if process.exit != nil, !process.errors().contains("shared memory block") {
                throw FixtureError("postgres ended: \(process.tail())")
            }
            return process.exit == nil
        }
    }

    /// Stops all its processes with SIGSTOP: connections stay open but get no answer.
    package func stall() async throws {
        guard let process = self.state.withLock({ $0.process }) else { return }
        try await eventually("postgres stands still") {
            // Repeated because the server may start a child just before the signal.
            self.signal(SIGSTOP)
            let all = [process.identifier] + ProcessTable.children(of: process.identifier)
            return all.allSatisfy { ProcessTable.isStopped($0) }
        }
    }

    /// Continues after ``stall()``.
    package func resume() { self.signal(SIGCONT) }

    /// Kills all its processes with SIGKILL.
    package func kill() async throws {
        self.signal(SIGKILL)
        try await self.state.withLock { $0.process }?.waitForExit()
    }

    // MARK: Backups

    /// Shuts the server down cleanly, so that its files can be copied.
    package func stop() async throws {
        guard let process = self.state.withLock({ $0.process }) else { return }
        process.send(SIGINT)
        try await process.waitForExit()
    }

    /// Copies the files of the stopped server; replaces the last backup.
    package func backUp() async throws {
        try await self.run("rm", ["-rf", self.directory.file("backup")])
        try await self.run("cp", ["-a", self.directory.file("data"), self.directory.file("backup")])
    }

    /// Restores the files of the last backup.
    ///
    /// The next start begins a new timeline, as a point-in-time recovery does.
    package func restore() async throws {
        try await self.run("rm", ["-rf", self.directory.file("data")])
        try await self.run("cp", ["-a", self.directory.file("backup"), self.directory.file("data")])
        // PostgreSQL looks only at the file's name, but must own it to remove it.
        let version = self.directory.file("data/PG_VERSION")
        try await self.run("cp", ["-a", version, self.directory.file("data/recovery.signal")])
    }

    /// Dumps the database at `url`, on any server, for ``load(dump:)``.
    package func dump(_ url: String, as name: String) async throws {
        let file = self.directory.file(name)
        try await self.run(
            self.programs + "/pg_dump", ["--format=custom", "--no-owner", "--file=\(file)", "--dbname=\(url)"])
    }

    /// Loads a dump into this server's database `postgres` and replaces its schema.
    package func load(dump name: String) async throws {
        try await self.execute("DROP SCHEMA IF EXISTS carillon CASCADE")
        let options = ["--single-transaction", "--no-owner", "--dbname=\(self.url)"]
        try await self.run(self.programs + "/pg_restore", options + [self.directory.file(name)])
    }

    private func run(_ program: String, _ arguments: [String]) async throws {
        try await ChildProcess.run(program, arguments, directory: self.directory.path)
    }

    /// Signals the server first, so that it starts no more children, then the children, which have
    /// process groups of their own.
    private func signal(_ signal: Int32) {
        guard let process = self.state.withLock({ $0.process }), process.exit == nil else { return }
        let children = ProcessTable.children(of: process.identifier)
        process.send(signal)
        for child in Set(children + ProcessTable.children(of: process.identifier)) { _ = Glibc.kill(child, signal) }
    }

    /// Kills the server and removes its files, when the test process exits.
    func dispose() {
        self.signal(SIGKILL)
        self.directory.remove()
    }

    /// PostgreSQL refuses to run as root, so root uses the package's user or `nobody`.
    static func unprivilegedAccount() throws -> ChildProcess.Account? {
        guard geteuid() == 0 else { return nil }
        for name in ["postgres", "nobody"] {
            if let entry = getpwnam(name) {
                return ChildProcess.Account(user: entry.pointee.pw_uid, group: entry.pointee.pw_gid)
            }
        }
        throw FixtureError("PostgreSQL refuses to run as root: create a user postgres")
    }

    /// Debian keeps the server's programs outside PATH, in one folder per version.
    private static func findPrograms() throws -> String {
        let root = "/usr/lib/postgresql"
        let versions = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        let folders = versions.compactMap { Int($0) }.sorted(by: >).map { "\(root)/\($0)/bin" }
        let inPath = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").map { String($0) }
        let found = (folders + inPath).first { folder in
            ["initdb", "postgres"].allSatisfy { FileManager.default.isExecutableFile(atPath: "\(folder)/\($0)") }
        }
        guard let found else { throw FixtureError("PostgreSQL is missing: apt-get install postgresql") }
        return found
    }
}
