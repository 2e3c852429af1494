// Carillon · SharedServers.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The servers that the tests of one process share, started at the first use where the environment names none.
actor SharedServers {
    static let shared = SharedServers()

    private var redis: Task<String, any Error>?
    private var postgres: Task<String, any Error>?

    /// `CARILLON_TEST_REDIS_URL`, or the URL of a server of this process.
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

    /// `CARILLON_TEST_DATABASE_URL`, or the URL of a server of this process.
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
