// Carillon · RedisCluster.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import NIOCore
import Synchronization

/// Sends each command to the master of a cluster that owns its key.
///
/// Connections open when they are first needed. A batch is split by master, and its replies are
/// gathered in order; commands with keys of one slot stay in order. Only commands that certainly
/// did not run are sent again. Source: redis.io, "Redis cluster specification".
final class RedisCluster: Sendable {
    private struct State {
        var connections: [RedisAddress.Server: RedisConnection] = [:]
        /// The changes of session of closed connections.
        var pastLogins = 0
        var isWatching = false
        var isClosed = false
        var refresh: RepeatedTask?
    }

    /// How often the client asks for the map while a server is away.
    private static let watchInterval: Duration = .milliseconds(250)
    /// The wait before a command is sent again that a server could not run yet.
    private static let pause: Duration = .milliseconds(25)
    /// A command is redirected no more often than this.
    private static let maximumRounds = 40

    private let configuration: RedisConfiguration
    private let eventLoop: any EventLoop
    private let logger: Logger
    private let state = Mutex(State())

    init(_ configuration: RedisConfiguration, on eventLoop: any EventLoop, logger: Logger) {
        self.configuration = configuration
        self.eventLoop = eventLoop
        self.logger = logger
        let interval = configuration.clusterRefresh
        let delay = TimeAmount(interval)
        let refresh = eventLoop.scheduleRepeatedTask(initialDelay: delay, delay: delay) { [weak self] _ in
            guard let self else { return }
            Task { await self.refresh(within: interval / 2) }
        }
        self.state.withLock { $0.refresh = refresh }
    }

    deinit {
        self.state.withLock { $0.refresh }?.cancel()
    }

    /// A number that changes when a server may have restarted, or another has taken over.
    ///
    /// The first login to a further server changes nothing; a new owner of a slot does, as it may
    /// lack the last writes of the old one.
    var session: Int {
        let ownerChanges = self.configuration.topology.ownerChanges
        return self.state.withLock { state in
            let sessions = state.connections.values.map(\.session)
            let again = sessions.reduce(state.pastLogins) { $0 + max(0, $1 - 1) }
            return ownerChanges + again + (sessions.contains { $0 > 0 } || again > 0 ? 1 : 0)
        }
    }

    /// Closes all connections for good.
    func close() async {
        let connections = self.state.withLock { state in
            state.isClosed = true
            state.refresh?.cancel()
            return Array(state.connections.values)
        }
        for connection in connections { await connection.close() }
    }

    /// Ends the commands that block this client's connections, as if their time were up.
    func unblock(through other: RedisCluster) async {
        for (server, connection) in self.state.withLock({ $0.connections }) {
            guard let sibling = try? other.connection(to: server) else { continue }
            await connection.unblock(through: sibling)
        }
    }

    // MARK: Commands

    /// Sends the batch and returns all replies, error replies included.
    ///
    /// A server that cannot be reached fails its commands alone, with an error as their reply.
    ///
    /// - Parameter isPatient: whether commands for a server that is away wait for it.
    /// - Throws: ``RedisError`` if no server could be reached.
    func send(
        _ batch: RedisBatch,
        deadline: NIODeadline,
        isPatient: Bool = true
    ) async throws(RedisError) -> [RedisReply] {
        var exchange = ClusterExchange(batch)
        for _ in 0..<Self.maximumRounds where !exchange.rest.isEmpty {
            let map = try await self.map(by: deadline)
            let shares = exchange.shares(by: map, general: self.anyServer(of: map))
            for (share, outcome) in await self.exchange(shares, deadline: deadline, isPatient: isPatient) {
                switch outcome {
                // Closed because another server has taken over.
                case .failure(let error) where error.code == .closed && !self.isClosed:
                    exchange.sendAgain(share.positions)
                case .failure(let error): exchange.fail(share.positions, error)
                case .success(let replies):
                    exchange.receive(replies, of: share) { self.redirect($0, from: share.server) }
                }
            }
            // No server tells when the slot has arrived. The pause has its own task, because a
            // cancelled one does not sleep.
            if exchange.mustPause { _ = await Task { try? await Task.sleep(for: Self.pause) }.value }
        }
        exchange.giveUp()
        return try exchange.finish()
    }

    /// Sends the batch to every master, one after the other.
    func sendToAll(_ batch: RedisBatch, deadline: NIODeadline) async throws(RedisError) -> [RedisClient.Answer] {
        var answers: [RedisClient.Answer] = []
        for server in try await self.map(by: deadline).servers {
            let replies = try await self.connection(to: server).send(batch, deadline: deadline).get()
            answers.append(RedisClient.Answer(server: "\(self.configuration.of(server).address)", replies: replies))
        }
        return answers
    }

    /// Returns a server for commands without a key: one that is connected, or that was not tried.
    private func anyServer(of map: RedisClusterMap) -> RedisAddress.Server {
        self.state.withLock { state in
            map.servers.first { state.connections[$0]?.isReady == true }
                ?? map.servers.first { state.connections[$0] == nil } ?? map.servers[0]
        }
    }

    private var isClosed: Bool { self.state.withLock { $0.isClosed } }

    /// Records a redirect, and returns it; nil for any other reply.
    ///
    /// Asks for the map if the server may have a successor.
    private func redirect(_ reply: RedisReply, from server: RedisAddress.Server) -> RedisRedirect? {
        guard case .error(let error) = reply else { return nil }
        let redirect = RedisRedirect(error, from: server)
        // A master that is cut off from the others answers CLUSTERDOWN while its successor serves.
        var mayBeReplaced = error.isOfDownCluster
        if case .moved(let slot, let owner) = redirect {
            self.configuration.topology.move(slot, to: owner)
            mayBeReplaced = true
        }
        if mayBeReplaced { Task { await self.refresh(within: Self.watchInterval) } }
        return redirect
    }

    /// Sends the shares side by side.
    private func exchange(
        _ shares: [ClusterShare],
        deadline: NIODeadline,
        isPatient: Bool
    ) async -> [(ClusterShare, Result<[RedisReply], RedisError>)] {
        guard shares.count > 1 else {
            guard let share = shares.first else { return [] }
            return [(share, await self.exchange(share, deadline: deadline, isPatient: isPatient))]
        }
        return await withTaskGroup(of: (ClusterShare, Result<[RedisReply], RedisError>).self) { group in
            for share in shares {
                group.addTask { (share, await self.exchange(share, deadline: deadline, isPatient: isPatient)) }
            }
            var outcomes: [(ClusterShare, Result<[RedisReply], RedisError>)] = []
            for await outcome in group { outcomes.append(outcome) }
            return outcomes
        }
    }

    private func exchange(
        _ share: ClusterShare,
        deadline: NIODeadline,
        isPatient: Bool
    ) async -> Result<[RedisReply], RedisError> {
        let connection: RedisConnection
        do throws(RedisError) { connection = try self.connection(to: share.server) } catch { return .failure(error) }
        guard isPatient || !connection.isAway else {
            return .failure(RedisError(.unavailable, "\(share.server) is away"))
        }
        return await connection.send(share.bytes, count: share.isWanted.count, deadline: deadline)
    }

    // MARK: Servers

    /// Returns the connection to a server; opens it if need be.
    private func connection(to server: RedisAddress.Server) throws(RedisError) -> RedisConnection {
        let result: Result<RedisConnection, RedisError> = self.state.withLock { state in
            guard !state.isClosed else { return .failure(RedisError(.closed, "the client was closed")) }
            if let connection = state.connections[server] { return .success(connection) }
            do throws(RedisError) {
                let connection = try RedisConnection(
                    self.configuration.of(server), on: self.eventLoop, logger: self.logger
                ) { [weak self] in self?.watch() }
                state.connections[server] = connection
                return .success(connection)
            } catch {
                return .failure(error)
            }
        }
        return try result.get()
    }

    /// Returns the map; waits for the first one.
    private func map(by deadline: NIODeadline) async throws(RedisError) -> RedisClusterMap {
        while true {
            if let map = self.configuration.topology.map { return map }
            guard let error = await self.refresh(within: Self.watchInterval) else { continue }
            guard self.configuration.waitsForServer, NIODeadline.now() < deadline,
                !self.isClosed, !Task.isCancelled
            else { throw error }
            // A cluster that is away does not tell when it is back.
            try? await Task.sleep(for: Self.watchInterval)
        }
    }

    /// Asks for the map and closes the connections to servers that own nothing any more.
    ///
    /// - Returns: why no server answered; nil if one did.
    @discardableResult
    private func refresh(within age: Duration) async -> RedisError? {
        let map: RedisClusterMap
        do {
            map = try await self.configuration.topology.refresh(self.configuration, within: age, on: self.eventLoop)
        } catch {
            return error as? RedisError ?? RedisError(.unavailable, "\(error)")
        }
        let gone = self.state.withLock { state in
            let gone = state.connections.filter { !map.servers.contains($0.key) }
            for (server, connection) in gone {
                state.connections[server] = nil
                // One more, as its successor may lack what this one had.
                state.pastLogins += max(0, connection.session - 1) + 1
            }
            return gone
        }
        for (server, connection) in gone {
            self.logger.notice(
                "a server of the Redis cluster owns no slot any more", metadata: ["redis.address": "\(server)"])
            // Closing sends waiting commands to its successor. A server that still answers keeps
            // its connection until the last reply.
            if !connection.isReady { await connection.close() }
        }
        return nil
    }

    /// Asks for the map until all connections are back or their servers are replaced.
    private func watch() {
        let isFirst = self.state.withLock { state in
            defer { state.isWatching = true }
            return !state.isWatching && !state.isClosed
        }
        guard isFirst else { return }
        Task { [weak self] in
            while let self, self.isAnyServerAway {
                await self.refresh(within: Self.watchInterval)
                // A cluster does not tell its clients that a replica has taken over.
                try? await Task.sleep(for: Self.watchInterval)
            }
        }
    }

    /// Whether a connection is down; if none is, the next loss starts a new watch.
    private var isAnyServerAway: Bool {
        self.state.withLock { state in
            state.isWatching = !state.isClosed && state.connections.values.contains { !$0.isReady }
            return state.isWatching
        }
    }
}
