// Carillon · RedisSentinels.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// Asks Sentinels for the master of their group.
///
/// Connections with copies of one configuration share the answer, so a process that loses all its
/// connections at once asks once. Source: redis.io, "Guidelines for Redis clients with support for
/// Redis Sentinel".
actor RedisSentinels {
    private var answer: (address: RedisAddress, at: ContinuousClock.Instant)?
    private var asking: Task<RedisAddress, any Error>?

    /// Returns the master's address.
    ///
    /// - Parameter age: the age up to which an earlier answer will do.
    /// - Throws: ``RedisError`` with code `unavailable` if no Sentinel names a master.
    func master(
        _ configuration: RedisConfiguration,
        within age: Duration,
        on eventLoop: any EventLoop
    ) async throws -> RedisAddress {
        if let answer, .now - answer.at <= age { return answer.address }
        if let asking { return try await asking.value }
        let asking = Task { try await self.ask(configuration, on: eventLoop) }
        self.asking = asking
        defer { self.asking = nil }
        let address = try await asking.value
        self.answer = (address, .now)
        return address
    }

    /// Asks all Sentinels and returns the master that most of them name; on a tie, the one named by
    /// the Sentinel that is listed first.
    ///
    /// A Sentinel that is cut off from the others goes on to name the old master.
    private func ask(_ configuration: RedisConfiguration, on eventLoop: any EventLoop) async throws -> RedisAddress {
        guard case .sentinels(let servers, let name) = configuration.address.endpoint else {
            return configuration.address
        }
        let (answers, continuation) = AsyncStream.makeStream(of: (Int, Result<RedisAddress.Server, RedisError>).self)
        for (index, server) in servers.enumerated() {
            // Not in a group, which would wait for the Sentinels that do not answer.
            Task {
                do throws(RedisError) {
                    let master = try await Self.ask(server, for: name, configuration, on: eventLoop)
                    continuation.yield((index, .success(master)))
                } catch {
                    continuation.yield((index, .failure(error)))
                }
            }
        }
        var masters = [RedisAddress.Server?](repeating: nil, count: servers.count)
        var reasons = [String](repeating: "", count: servers.count)
        for await (index, answer) in answers.prefix(servers.count) {
            switch answer {
            case .success(let master):
                masters[index] = master
                if masters.count(where: { $0 == master }) > servers.count / 2 {
                    return configuration.address.server(master)
                }
            case .failure(let error):
                reasons[index] = "\(servers[index]): \(error.message ?? error.code.rawValue)"
            }
        }
        let named = masters.compactMap { $0 }
        let votes = named.map { master in named.count { $0 == master } }
        guard let most = votes.max(), let first = votes.firstIndex(of: most) else {
            throw RedisError(.unavailable, "no Sentinel names a master: \(reasons.joined(separator: "; "))")
        }
        return configuration.address.server(named[first])
    }

    private static func ask(
        _ server: RedisAddress.Server,
        for name: String,
        _ configuration: RedisConfiguration,
        on eventLoop: any EventLoop
    ) async throws(RedisError) -> RedisAddress.Server {
        let address = configuration.address.sentinel(server, password: configuration.sentinelPassword)
        var batch = RedisBatch()
        batch.append("SENTINEL", "GET-MASTER-ADDR-BY-NAME", .text(name))
        let replies = try await RedisConnection.ask(address, batch, configuration, on: eventLoop)
        let answer = try replies[0].strings()
        guard answer.count == 2, let port = Int(answer[1]) else {
            throw RedisError(.unexpectedReply, "knows no group \(name)")
        }
        return RedisAddress.Server(host: answer[0], port: port)
    }
}
