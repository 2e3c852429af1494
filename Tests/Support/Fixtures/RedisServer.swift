// Carillon · RedisServer.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import Glibc
import Synchronization

/// A Redis of a test's own, which it may stop, kill and start again.
///
/// Keeps an append-only file (everysec) and never evicts, as the services ask for.
package final class RedisServer: Sendable {
    /// What differs from a plain server on a loopback port.
    package struct Options: Sendable {
        /// Certificate and key of a server that speaks only TLS; nil for plain TCP.
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

    /// Starts a server with an empty data directory, and waits until it takes connections.
    package static func start(_ options: Options = Options()) async throws -> RedisServer {
        let server = try RedisServer(options)
        try await server.start()
        return server
    }

    /// Starts it again on the same port, with the data that is on its disk.
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

    /// Copies what is on its disk, to come back with it after ``kill()``; what it is given from now
    /// on is the tail that it loses.
    package func remember() throws {
        let manager = FileManager.default
        for name in try manager.contentsOfDirectory(atPath: self.directory.path) where name.hasPrefix("appendonly") {
            let copy = self.directory.file("copy-" + name)
            try? manager.removeItem(atPath: copy)
            try manager.copyItem(atPath: self.directory.file(name), toPath: copy)
        }
    }

    /// Puts back what ``remember()`` copied, while it does not run.
    package func goBack() throws {
        try self.wipe()
        let manager = FileManager.default
        for name in try manager.contentsOfDirectory(atPath: self.directory.path) where name.hasPrefix("copy-") {
            let original = self.directory.file(String(name.dropFirst("copy-".count)))
            try manager.copyItem(atPath: self.directory.file(name), toPath: original)
        }
    }

    /// Removes what is on its disk, while it does not run.
    package func wipe() throws {
        let manager = FileManager.default
        for name in try manager.contentsOfDirectory(atPath: self.directory.path) where name.hasPrefix("appendonly") {
            try manager.removeItem(atPath: self.directory.file(name))
        }
    }

    /// Stops it with SIGSTOP: connections stay open, nothing is answered.
    package func stall() async throws {
        guard let process = self.state.withLock({ $0.process }) else { return }
        process.send(SIGSTOP)
        try await eventually("redis-server stands still") { ProcessTable.isStopped(process.identifier) }
    }

    /// Lets it go on after ``stall()``.
    package func resume() { self.state.withLock { $0.process }?.send(SIGCONT) }

    /// Ends it with SIGKILL; what everysec had not yet written is lost.
    package func kill() async throws {
        let process = self.state.withLock { $0.process }
        process?.send(SIGKILL)
        try await process?.waitForExit()
    }

    /// How a connection to it is configured, without credentials.
    package func configuration(clientName: String = "test") throws -> RedisConfiguration {
        var configuration = RedisConfiguration(address: try RedisAddress(url: self.url), clientName: clientName)
        configuration.certificateAuthorityFile = self.options.certificate?.authorityFile
        return configuration
    }

    /// Ends it and removes its files, at the exit of the test process.
    func dispose() {
        self.state.withLock { $0.process }?.send(SIGKILL)
        self.directory.remove()
    }
}
