// Carillon · TestRedis.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import NIOPosix

/// The Redis that tests share: `CARILLON_TEST_REDIS_URL`, or a private one.
package enum TestRedis {
    package static func url() async throws -> String {
        try await SharedServers.shared.redisURL()
    }

    package static func configuration(clientName: String = "test") async throws -> RedisConfiguration {
        RedisConfiguration(address: try RedisAddress(url: try await Self.url()), clientName: clientName)
    }

    /// Opens a connection, to be closed by the caller.
    package static func connect(_ configuration: RedisConfiguration) throws(RedisError) -> RedisConnection {
        try RedisConnection(
            configuration, on: MultiThreadedEventLoopGroup.singleton.next(), logger: TestLog.logger)
    }

    /// Opens a connection to the shared Redis, to be closed by the caller.
    package static func connect(clientName: String = "test") async throws -> RedisConnection {
        try Self.connect(try await Self.configuration(clientName: clientName))
    }

    /// A prefix for keys that no other test uses.
    package static func prefix() -> String {
        "test-\(String(UInt64.random(in: .min ... .max), radix: 36)):"
    }

    /// Runs `body` with a connection and a key prefix of its own; the keys are deleted and the connection closed in the end.
    package static func with<Result>(
        _ configure: (inout RedisConfiguration) -> Void = { _ in },
        _ body: (RedisConnection, String) async throws -> Result
    ) async throws -> Result {
        var configuration = try await Self.configuration()
        configure(&configuration)
        let prefix = Self.prefix()
        return try await Self.with(configuration) { redis in
            do {
                let result = try await body(redis, prefix)
                try await Self.deleteKeys(prefix: prefix, redis)
                return result
            } catch {
                try? await Self.deleteKeys(prefix: prefix, redis)
                throw error
            }
        }
    }

    /// Runs `body` with a connection that is closed in the end.
    package static func with<Result>(
        _ configuration: RedisConfiguration,
        _ body: (RedisConnection) async throws -> Result
    ) async throws -> Result {
        let redis = try Self.connect(configuration)
        do {
            let result = try await body(redis)
            await redis.close()
            return result
        } catch {
            await redis.close()
            throw error
        }
    }

    /// Deletes every key that contains `prefix`.
    package static func deleteKeys(prefix: String, _ redis: RedisConnection) async throws {
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
