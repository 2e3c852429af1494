// Carillon · RedisTopology.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Synchronization

/// Knows which master of a cluster owns which slot.
///
/// Clients with copies of one configuration share it, so a process asks once however many
/// connections it has.
actor RedisTopology {
    private struct State {
        /// The last map; nil before the first.
        var map: RedisClusterMap?
        /// How often slots turned out to have another owner.
        var ownerChanges = 0
    }

    private nonisolated let state = Mutex(State())
    private var askedAt: ContinuousClock.Instant?
    private var asking: Task<RedisClusterMap, any Error>?
    /// The server that answered last, which is asked first.
    private var preferred: RedisAddress.Server?

    /// The last map; nil before the first.
    nonisolated var map: RedisClusterMap? { self.state.withLock { $0.map } }

    /// A number that grows when a slot turns out to have another owner.
    nonisolated var ownerChanges: Int { self.state.withLock { $0.ownerChanges } }

    /// Records the owner of a slot that a server has named.
    nonisolated func move(_ slot: Int, to server: RedisAddress.Server) {
        self.state.withLock { state in
            if let owner = state.map?.owner(of: slot), owner != server { state.ownerChanges += 1 }
            state.map?.move(slot, to: server)
        }
    }

    /// Asks the cluster for its map.
    ///
    /// - Parameter age: the age up to which an earlier answer will do.
    /// - Throws: ``RedisError`` with code `unavailable` if no server answers.
    @discardableResult
    func refresh(
        _ configuration: RedisConfiguration,
        within age: Duration,
        on eventLoop: any EventLoop
    ) async throws -> RedisClusterMap {
        if let map = self.map, let askedAt, .now - askedAt <= age { return map }
        if let asking { return try await asking.value }
        let asking = Task { try await self.ask(configuration, on: eventLoop) }
        self.asking = asking
        defer { self.asking = nil }
        let map = try await asking.value
        self.askedAt = .now
        self.state.withLock { state in
            if let former = state.map, map.hasOtherOwners(than: former) { state.ownerChanges += 1 }
            state.map = map
        }
        return map
    }

    /// Asks one server after the other, and prefers one that sees a healthy cluster.
    private func ask(_ configuration: RedisConfiguration, on eventLoop: any EventLoop) async throws -> RedisClusterMap {
        guard case .cluster(let seeds) = configuration.address.endpoint else { return RedisClusterMap() }
        var servers: [RedisAddress.Server] = []
        for server in (self.preferred.map { [$0] } ?? []) + (self.map?.servers ?? []) + seeds
        where !servers.contains(server) { servers.append(server) }
        var reasons: [String] = []
        var doubtful: RedisClusterMap?
        for server in servers {
            do throws(RedisError) {
                let (map, isHealthy) = try await Self.ask(server, configuration, on: eventLoop)
                if isHealthy {
                    self.preferred = server
                    return map
                }
                doubtful = doubtful ?? map
                reasons.append("\(server): the cluster is down")
            } catch {
                reasons.append("\(server): \(error.message ?? error.code.rawValue)")
            }
        }
        // A part of the cluster may still serve while the rest fails over.
        if let doubtful { return doubtful }
        throw RedisError(.unavailable, "no server of the cluster answers: \(reasons.joined(separator: "; "))")
    }

    private static func ask(
        _ server: RedisAddress.Server,
        _ configuration: RedisConfiguration,
        on eventLoop: any EventLoop
    ) async throws(RedisError) -> (map: RedisClusterMap, isHealthy: Bool) {
        var batch = RedisBatch()
        batch.append("CLUSTER", "SLOTS")
        batch.append("CLUSTER", "INFO")
        let replies = try await RedisConnection.ask(
            configuration.address.server(server), batch, configuration, on: eventLoop)
        let map = try RedisClusterMap(replies[0], from: server)
        guard !map.servers.isEmpty else { throw RedisError(.unexpectedReply, "no master has a slot") }
        return (map, (try replies[1].string() ?? "").contains("cluster_state:ok"))
    }
}
