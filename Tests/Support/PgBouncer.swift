// Carillon · PgBouncer.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Synchronization

/// PgBouncer in session mode in front of a PostgreSQL server.
package final class PgBouncer: Sendable {
    private let port: Int
    private let directory: TemporaryDirectory
    private let process = Mutex<ChildProcess?>(nil)

    private init(_ server: PostgresServer) throws {
        self.port = try FreePort.next()
        self.directory = try TemporaryDirectory("pgbouncer")
        try """
        [databases]
        * = host=127.0.0.1 port=\(server.port) user=carillon
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = \(self.port)
        unix_socket_dir =
        auth_type = any
        pool_mode = session
        default_pool_size = 100
        """.write(toFile: self.directory.file("pgbouncer.ini"), atomically: true, encoding: .utf8)
    }

    deinit { self.process.withLock { $0 }?.send(SIGKILL) }

    /// The URL of the server's database `postgres` through this proxy.
    package var url: String { "postgresql://carillon@127.0.0.1:\(self.port)/postgres" }

    /// Starts it and waits until it accepts connections.
    package static func start(before server: PostgresServer) async throws -> PgBouncer {
        let bouncer = try PgBouncer(server)
        try await bouncer.start()
        return bouncer
    }

    /// Starts it again after ``kill()``.
    package func start() async throws {
        // It refuses to run as root.
        let account = try PostgresServer.unprivilegedAccount()
        if let account { chown(self.directory.path, account.user, account.group) }
        let process = try await ChildProcess.spawn(
            "/usr/sbin/pgbouncer", [self.directory.file("pgbouncer.ini")], directory: self.directory.path,
            account: account)
        self.process.withLock { $0 = process }
        try await eventually("pgbouncer takes connections") {
            if process.exit != nil { throw FixtureError("pgbouncer ended: \(process.tail())") }
            return process.errors().contains("process up")
        }
    }

    package func kill() async throws {
        let process = self.process.withLock { $0 }
        process?.send(SIGKILL)
        try await process?.waitForExit()
    }
}
