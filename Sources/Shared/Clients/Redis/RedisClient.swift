// Carillon · RedisClient.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import NIOCore

/// Redis: one server, the master that Sentinels name, or a cluster.
///
/// Callers on any thread may call at once; their commands are pipelined. Use a client of its own
/// for blocking commands: every other command would wait behind them.
package final class RedisClient: Sendable {
    private enum Backend: Sendable {
        case server(RedisConnection)
        case cluster(RedisCluster)
    }

    private let backend: Backend
    private let configuration: RedisConfiguration

    /// Creates a client that connects, and connects again after each loss, until ``close()`` or
    /// deallocation.
    ///
    /// - Throws: ``RedisError`` with code `configuration`.
    package init(
        _ configuration: RedisConfiguration,
        on eventLoop: any EventLoop,
        logger: Logger
    ) throws(RedisError) {
        self.configuration = configuration
        if case .cluster = configuration.address.endpoint {
            self.backend = .cluster(RedisCluster(configuration, on: eventLoop, logger: logger))
        } else {
            self.backend = .server(try RedisConnection(configuration, on: eventLoop, logger: logger))
        }
    }

    /// Whether it is a cluster.
    package var isCluster: Bool { self.configuration.address.isCluster }

    /// The number of its database.
    package var database: Int { self.configuration.address.database }

    /// The masters that a batch writes to, as far as they are known; one without a cluster.
    package func masters(of batch: RedisBatch) -> Set<String> {
        guard case .cluster = self.backend else { return [""] }
        let map = self.configuration.topology.map
        return Set(batch.slots.map { slot in map?.owner(of: slot).map { "\($0)" } ?? "" })
    }

    /// The master that has a key, as far as it is known; the same for all keys without a cluster.
    package func master(of key: String) -> String {
        guard case .cluster = self.backend else { return "" }
        let slot = RedisSlot.of(Array(key.utf8))
        return self.configuration.topology.map?.owner(of: slot).map { "\($0)" } ?? ""
    }

    /// A number that changes when a server may have restarted, or another has taken over.
    package var session: Int {
        switch self.backend {
        case .server(let connection): connection.session
        case .cluster(let cluster): cluster.session
        }
    }

    /// Whether the only server is away: the connection is down, and a try to open it again has
    /// failed.
    ///
    /// Always false for a cluster, whose masters are away one by one.
    package var isAway: Bool {
        switch self.backend {
        case .server(let connection): connection.isAway
        case .cluster: false
        }
    }

    /// Throws `unavailable` if the only server is away.
    package func failIfAway() throws(RedisError) {
        guard !self.isAway else { throw RedisError(.unavailable, "Redis is away") }
    }

    /// Sends one command and returns its reply; throws an error reply.
    ///
    /// - Parameter timeout: the time limit; nil means the configuration's.
    @discardableResult
    package func send(_ arguments: RedisArgument..., timeout: Duration? = nil) async throws(RedisError) -> RedisReply {
        try await self.send(arguments, timeout: timeout)
    }

    /// Sends one command and returns its reply; throws an error reply.
    ///
    /// - Parameter timeout: the time limit; nil means the configuration's.
    @discardableResult
    package func send(_ arguments: [RedisArgument], timeout: Duration? = nil) async throws(RedisError) -> RedisReply {
        let deadline = self.configuration.deadline(timeout)
        switch self.backend {
        case .server(let connection):
            return try await connection.send(arguments, deadline: deadline).get().checked()
        case .cluster(let cluster):
            var batch = RedisBatch()
            batch.append(arguments)
            return try await cluster.send(batch, deadline: deadline)[0].checked()
        }
    }

    /// Sends the batch at once and returns all replies, error replies included.
    ///
    /// Scripts that Redis has forgotten are sent again with their source, in order, after the rest
    /// of the batch. In a cluster, commands with keys of one slot stay in order.
    ///
    /// - Parameters:
    ///   - timeout: the time limit; nil means the configuration's.
    ///   - isPatient: whether commands for a server of a cluster that is away wait for it; if not,
    ///     they fail at once with `unavailable`.
    @discardableResult
    package func send(
        _ batch: RedisBatch,
        timeout: Duration? = nil,
        isPatient: Bool = true
    ) async throws(RedisError) -> [RedisReply] {
        guard !batch.isEmpty else { return [] }
        let deadline = self.configuration.deadline(timeout)
        var replies: [RedisReply]
        switch self.backend {
        case .server(let connection): replies = try await connection.send(batch, deadline: deadline).get()
        case .cluster(let cluster):
            replies = try await cluster.send(batch, deadline: deadline, isPatient: isPatient)
        }
        for (position, call) in batch.scripts {
            guard case .error(let error) = replies[position], error.serverCode == "NOSCRIPT" else { continue }
            do throws(RedisError) {
                let count = RedisArgument.integer(Int64(call.keys.count))
                replies[position] = try await self.send(
                    ["EVAL", .text(call.script.source), count] + call.keys + call.arguments,
                    timeout: timeout
                )
            } catch {
                replies[position] = .error(error)
            }
        }
        return replies
    }

    /// Sends the batch at once and returns all replies; throws the first error reply.
    ///
    /// - Parameter isPatient: as for ``send(_:timeout:isPatient:)``.
    @discardableResult
    package func run(_ batch: RedisBatch, isPatient: Bool = true) async throws(RedisError) -> [RedisReply] {
        let replies = try await self.send(batch, isPatient: isPatient)
        for reply in replies { _ = try reply.checked() }
        return replies
    }

    /// The replies of one server.
    package struct Answer: Sendable {
        /// The server's address, without credentials.
        package let server: String
        package let replies: [RedisReply]
    }

    /// Sends the batch, which has no keys, to every master of a cluster, or to the only server.
    package func sendToAll(_ batch: RedisBatch) async throws(RedisError) -> [Answer] {
        switch self.backend {
        case .server(let connection):
            let replies = try await connection.send(batch, deadline: self.configuration.deadline()).get()
            return [Answer(server: "\(self.configuration.address)", replies: replies)]
        case .cluster(let cluster): return try await cluster.sendToAll(batch, deadline: self.configuration.deadline())
        }
    }

    /// Runs a script; sends its source if Redis does not know it.
    @discardableResult
    package func run(
        _ script: RedisScript,
        keys: [RedisArgument],
        arguments: [RedisArgument] = []
    ) async throws(RedisError) -> RedisReply {
        var batch = RedisBatch()
        batch.append(script, keys: keys, arguments: arguments)
        guard let reply = try await self.send(batch).first else { return .null }
        return try reply.checked()
    }

    /// Ends the command that blocks this client, as if its time were up.
    ///
    /// Does nothing if no command blocks. A server that does not allow it lets the time run out.
    ///
    /// - Parameter other: a client of the same Redis.
    package func unblock(through other: RedisClient) async {
        switch (self.backend, other.backend) {
        case (.server(let connection), .server(let sibling)): await connection.unblock(through: sibling)
        case (.cluster(let cluster), .cluster(let sibling)): await cluster.unblock(through: sibling)
        case (.server, .cluster), (.cluster, .server): break
        }
    }

    /// Closes for good; calls that were not sent fail with `closed`.
    package func close() async {
        switch self.backend {
        case .server(let connection): await connection.close()
        case .cluster(let cluster): await cluster.close()
        }
    }
}
