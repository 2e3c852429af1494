// Carillon · SharedServers.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Synchronization

/// The servers that all tests of a process share, started at first use unless the environment names
/// them.
actor SharedServers {
    static let shared = SharedServers()

    private var redis: Task<String, any Error>?
    private var postgres: Task<String, any Error>?

    /// Returns `CARILLON_TEST_REDIS_URL`, or the URL of a private server.
    func redisURL() async throws -> String {
        if let url = Self.variable("CARILLON_TEST_REDIS_URL") { return url }
        let task =
            self.redis
            ?? Task {
                let server = try await RedisServer.start()
                ExitHandlers.add { server.dispose() }
                return server.url
            }
        self.redis = task
        return try await task.value
    }

    /// Returns `CARILLON_TEST_DATABASE_URL`, or the URL of a private server.
    func databaseURL() async throws -> String {
        if let url = Self.variable("CARILLON_TEST_DATABASE_URL") { return url }
        let task =
            self.postgres
            ?? Task {
                let server = try await PostgresServer.start()
                ExitHandlers.add { server.dispose() }
                return server.url
            }
        self.postgres = task
        return try await task.value
    }

    private static func variable(_ name: String) -> String? {
        guard let text = ProcessInfo.processInfo.environment[name], !text.isEmpty else { return nil }
        return text
    }
}

/// Handlers that run when the test process exits, newest first.
enum ExitHandlers {
    private static let handlers = Mutex<[@Sendable () -> Void]>([])

    /// Adds a handler, which must be quick.
    static func add(_ handler: @escaping @Sendable () -> Void) {
        let isFirst = Self.handlers.withLock { handlers in
            handlers.append(handler)
            return handlers.count == 1
        }
        if isFirst { atexit(runExitHandlers) }
    }

    static func run() {
        for handler in Self.handlers.withLock({ $0.reversed() }) { handler() }
    }
}

// At top level because C needs a function without isolation.
private func runExitHandlers() {
    ExitHandlers.run()
}
