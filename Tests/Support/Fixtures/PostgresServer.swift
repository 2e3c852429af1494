// Carillon · PostgresServer.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Synchronization

/// A PostgreSQL cluster of a test's own, which it may stop, kill and start again.
///
/// Trusts whoever comes over the loopback address, and survives the death of its processes but not that of the machine.
package final class PostgresServer: Sendable {
    private struct State {
        var starts = 0
        var process: ChildProcess?
    }

    package let port: Int
    /// A superuser's URL of the database `postgres`.
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

    /// Makes a cluster, starts it, and waits until it takes connections.
    package static func start() async throws -> PostgresServer {
        let server = try PostgresServer()
        try await server.initialise()
        try await server.start()
        return server
    }

    private func initialise() async throws {
        if let account { chown(self.directory.path, account.user, account.group) }
        let process = try await ChildProcess.spawn(
            self.programs + "/initdb",
            [
                "-D", self.directory.file("data"), "-U", "carillon", "--auth=trust", "--encoding=UTF8",
                "--locale=C.UTF-8", "--no-sync", "--no-instructions",
            ],
            name: nil, environment: [:], directory: self.directory.path, account: self.account)
        guard try await process.waitForExit(within: .seconds(120)) == .code(0) else {
            throw FixtureError("initdb failed: \(process.tail())")
        }
    }

    /// Starts it again on the same port, with the data that is on its disk.
    package func start() async throws {
        let settings = [
            "listen_addresses=127.0.0.1", "port=\(self.port)", "unix_socket_directories=", "max_connections=400",
            "fsync=off", "full_page_writes=off", "lc_messages=C", "shared_buffers=64MB",
            // Counts only in a recovery, which then ends with what is there.
            "restore_command=false",
        ]
        let arguments = ["-D", self.directory.file("data")] + settings.flatMap { ["-c", $0] }
        try await eventually("postgres takes connections", within: .seconds(60)) {
            let number = self.state.withLock { state in
                state.starts += 1
                return state.starts
            }
            let process = try await ChildProcess.spawn(
                self.programs + "/postgres", arguments, name: "postgres-\(number)", environment: [:],
                directory: self.directory.path, account: self.account, deathSignal: "QUIT")
            self.state.withLock { $0.process = process }
            try await eventually("postgres starts or ends", within: .seconds(60)) {
                process.exit != nil || process.errors().contains("ready to accept connections")
            }
            // A killed server's children hold its shared memory for a moment, and a start meanwhile is refused.
            if process.exit != nil, !process.errors().contains("shared memory block") {
                throw FixtureError("postgres ended: \(process.tail())")
            }
            return process.exit == nil
        }
    }

    /// Stops all its processes with SIGSTOP: connections stay open, nothing is answered.
    package func stall() async throws {
        guard let process = self.state.withLock({ $0.process }) else { return }
        try await eventually("postgres stands still") {
            // Again each time, as the server may have started a child between the look and the signal.
            self.signal(SIGSTOP)
            let all = [process.identifier] + ProcessTable.children(of: process.identifier)
            return all.allSatisfy { ProcessTable.isStopped($0) }
        }
    }

    /// Lets it go on after ``stall()``.
    package func resume() { self.signal(SIGCONT) }

    /// Ends all its processes with SIGKILL.
    package func kill() async throws {
        self.signal(SIGKILL)
        try await self.state.withLock { $0.process }?.waitForExit()
    }

    // MARK: Backups

    /// Ends it in order, so that its files can be copied.
    package func stop() async throws {
        guard let process = self.state.withLock({ $0.process }) else { return }
        process.send(SIGINT)
        try await process.waitForExit()
    }

    /// Copies the files of a server that is stopped; the copy takes the place of the one before.
    package func backUp() async throws {
        try await self.run("rm", ["-rf", self.directory.file("backup")])
        try await self.run("cp", ["-a", self.directory.file("data"), self.directory.file("backup")])
    }

    /// Puts the files of the last backup back.
    ///
    /// The next start makes a new timeline of them, as a recovery to a moment does.
    package func restore() async throws {
        try await self.run("rm", ["-rf", self.directory.file("data")])
        try await self.run("cp", ["-a", self.directory.file("backup"), self.directory.file("data")])
        // Only its name counts; a file of the server's own, so that the server can take it away.
        let version = self.directory.file("data/PG_VERSION")
        try await self.run("cp", ["-a", version, self.directory.file("data/recovery.signal")])
    }

    /// Writes a dump of a database, on whichever server, to be loaded by ``load(dump:)``.
    package func dump(_ url: String, as name: String) async throws {
        let file = self.directory.file(name)
        try await self.run(
            self.programs + "/pg_dump", ["--format=custom", "--no-owner", "--file=\(file)", "--dbname=\(url)"])
    }

    /// Loads a dump into this server's database `postgres`, in place of what is there.
    package func load(dump name: String) async throws {
        let drop = "DROP SCHEMA IF EXISTS carillon CASCADE"
        try await self.run(self.programs + "/psql", ["--quiet", "--command=\(drop)", "--dbname=\(self.url)"])
        let options = ["--single-transaction", "--no-owner", "--dbname=\(self.url)"]
        try await self.run(self.programs + "/pg_restore", options + [self.directory.file(name)])
    }

    private func run(_ program: String, _ arguments: [String]) async throws {
        let process = try await ChildProcess.spawn(program, arguments, directory: self.directory.path)
        guard try await process.waitForExit(within: .seconds(120)) == .code(0) else {
            throw FixtureError("\(program) failed: \(process.tail())")
        }
    }

    /// The server first, so that it starts no more; then its children, which have process groups of their own.
    private func signal(_ signal: Int32) {
        guard let process = self.state.withLock({ $0.process }), process.exit == nil else { return }
        let children = ProcessTable.children(of: process.identifier)
        process.send(signal)
        for child in Set(children + ProcessTable.children(of: process.identifier)) { _ = Glibc.kill(child, signal) }
    }

    /// Ends it and removes its files, at the exit of the test process.
    func dispose() {
        self.signal(SIGKILL)
        self.directory.remove()
    }

    /// PostgreSQL refuses to run as root: then the user of its package, or `nobody`.
    private static func unprivilegedAccount() throws -> ChildProcess.Account? {
        guard geteuid() == 0 else { return nil }
        for name in ["postgres", "nobody"] {
            if let entry = getpwnam(name) {
                return ChildProcess.Account(user: entry.pointee.pw_uid, group: entry.pointee.pw_gid)
            }
        }
        throw FixtureError("neither a user postgres nor a user nobody, and PostgreSQL does not run as root")
    }

    /// Debian keeps the server's programs out of PATH, in a folder for each version.
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
