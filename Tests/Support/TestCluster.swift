// Carillon · TestCluster.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation

/// A Redis cluster of masters, each with a replica.
package final class TestCluster: Sendable {
    /// The masters at first, then a replica of each, in the same order.
    package let servers: [RedisServer]
    private let masters: Int
    /// The first server's port for other servers.
    private let busPort: Int

    private init(servers: [RedisServer], masters: Int, busPort: Int) {
        self.servers = servers
        self.masters = masters
        self.busPort = busPort
    }

    /// Starts the servers, spreads the slots, and waits until every server sees a whole cluster.
    package static func start(masters: Int = 3, replicas: Bool = true) async throws -> TestCluster {
        var servers: [RedisServer] = []
        let busPort = try FreePort.next()
        for number in 0..<(replicas ? 2 * masters : masters) {
            servers.append(try await Self.server(busPort: number == 0 ? busPort : try FreePort.next()))
        }
        let cluster = TestCluster(servers: servers, masters: masters, busPort: busPort)
        for (number, server) in servers.enumerated() {
            try await TestRedis.withPatience(server.url) { redis in
                // Masters with one epoch resolve that later, and a replica that has not heard of it
                // when its master dies gets no votes.
                try await redis.send("CLUSTER", "SET-CONFIG-EPOCH", .integer(Int64(number + 1)))
                try await cluster.meet(redis)
                guard number < masters else { return }
                let first = number * RedisSlot.count / masters
                let last = (number + 1) * RedisSlot.count / masters - 1
                try await redis.send("CLUSTER", "ADDSLOTSRANGE", .integer(Int64(first)), .integer(Int64(last)))
            }
        }
        try await cluster.waitUntilWhole(servers)
        guard replicas else { return cluster }
        for number in 0..<masters {
            let identifier = try await cluster.identifier(of: number)
            try await TestRedis.withPatience(servers[masters + number].url) { redis in
                try await eventually("the replica knows its master") {
                    (try? await redis.send("CLUSTER", "REPLICATE", .text(identifier))) != nil
                }
            }
        }
        for number in 0..<masters {
            try await TestRedis.withPatience(servers[number].url) { redis in
                try await eventually("the master has its replica") {
                    try await redis.send("WAIT", "1", "100").integer() == 1
                }
            }
        }
        try await cluster.waitUntilWhole(servers)
        return cluster
    }

    private func meet(_ redis: RedisClient) async throws {
        try await redis.send(
            "CLUSTER", "MEET", "127.0.0.1", .text("\(self.servers[0].port)"), .text("\(self.busPort)"))
    }

    private static func server(busPort: Int) async throws -> RedisServer {
        var options = RedisServer.Options()
        options.arguments = [
            // Not the port and 10,000, which may be taken.
            "--cluster-enabled", "yes", "--cluster-port", "\(busPort)", "--cluster-node-timeout", "1500",
            "--repl-diskless-sync-delay", "0",
            // A replica that stood still may take over, too.
            "--cluster-replica-validity-factor", "0",
            // A master that gives its last slot away stays one.
            "--cluster-allow-replica-migration", "no",
            // Servers get what they lack from each other.
            "--appendonly", "no",
        ]
        return try await RedisServer.start(options)
    }

    /// `redis+cluster://…`, which names two of the masters.
    package var url: String {
        "redis+cluster://" + self.servers.prefix(2).map { "127.0.0.1:\($0.port)" }.joined(separator: ",")
    }

    package func configuration(clientName: String = "test") throws -> RedisConfiguration {
        RedisConfiguration(address: try RedisAddress(url: self.url), clientName: clientName)
    }

    /// Adds a master without slots.
    package func join() async throws -> RedisServer {
        let server = try await Self.server(busPort: try FreePort.next())
        try await TestRedis.withPatience(server.url) { redis in
            try await self.meet(redis)
        }
        try await self.waitUntilWhole([server])
        return server
    }

    /// Moves a slot with its keys from one master to another, key by key.
    ///
    /// - Parameter pause: runs after each key, while the slot is on its way.
    package func move(
        _ slot: Int,
        from source: RedisServer,
        to target: RedisServer,
        pause: () async throws -> Void = {}
    ) async throws {
        let (from, to) = (try await Self.identifier(of: source), try await Self.identifier(of: target))
        let number = RedisArgument.integer(Int64(slot))
        try await TestRedis.withPatience(source.url) { old in
            try await TestRedis.withPatience(target.url) { new in
                try await eventually("the servers know each other") {
                    guard (try? await new.send("CLUSTER", "SETSLOT", number, "IMPORTING", .text(from))) != nil else {
                        return false
                    }
                    return (try? await old.send("CLUSTER", "SETSLOT", number, "MIGRATING", .text(to))) != nil
                }
                try await pause()
                while true {
                    let keys = try await old.send("CLUSTER", "GETKEYSINSLOT", number, "1").strings()
                    guard let key = keys.first else { break }
                    try await old.send(
                        "MIGRATE", "127.0.0.1", .text("\(target.port)"), .text(key), "0", "10000",
                        timeout: .seconds(20))
                    try await pause()
                }
                try await new.send("CLUSTER", "SETSLOT", number, "NODE", .text(to))
                try await old.send("CLUSTER", "SETSLOT", number, "NODE", .text(to))
            }
        }
    }

    /// Kills the master of a slot, and starts it again once its replica has taken over; it returns
    /// as a replica.
    ///
    /// - Parameters:
    ///   - stall: how long the replica stands still before, while the master writes what it lacks.
    ///   - filler: a key of the slot, written with more than the kernel's buffers hold while the
    ///     replica stands still; it would still read those. Nil for none.
    package func failOver(slot: Int, after stall: Duration? = nil, filler: String? = nil) async throws {
        // On a busy machine, servers may take each other for dead for a moment.
        let master = try await eventualValue("a server knows the master") { try? await self.master(of: slot) }
        let number = self.servers.firstIndex { $0.port == master.port } ?? 0
        let replica = self.servers[(number + self.masters) % self.servers.count]
        if let stall {
            try await replica.stall()
            if let filler { try await Self.fill(master, filler) }
            // The replica lags for as long as the caller asks.
            try await Task.sleep(for: stall)
        }
        try await master.kill()
        replica.resume()
        try await eventually("the replica takes over") { (try? await self.master(of: slot))?.port == replica.port }
        try await master.start()
    }

    /// Kills a master that has no successor; the others go on to serve their slots.
    package func lose(_ number: Int) async throws {
        for server in self.servers {
            try await TestRedis.withPatience(server.url) { redis in
                _ = try await redis.send("CONFIG", "SET", "cluster-require-full-coverage", "no")
            }
        }
        try await self.servers[number].kill()
    }

    /// Removes a master from the cluster; another gets its slots, but not their keys.
    ///
    /// The master keeps running. For a cluster without replicas.
    package func expel(_ number: Int) async throws {
        let others = self.servers.filter { $0.port != self.servers[number].port }
        let identifier = try await self.identifier(of: number)
        try await TestRedis.withPatience(self.servers[number].url) { redis in
            _ = try await redis.send("CLUSTER", "RESET", "SOFT")
        }
        for other in others {
            try await TestRedis.withPatience(other.url) { redis in
                _ = try await redis.send("CLUSTER", "FORGET", .text(identifier))
            }
        }
        let first = Int64(number * RedisSlot.count / self.masters)
        let last = Int64((number + 1) * RedisSlot.count / self.masters - 1)
        try await TestRedis.withPatience(others[0].url) { redis in
            _ = try await redis.send("CLUSTER", "ADDSLOTSRANGE", .integer(first), .integer(last))
        }
        try await self.waitUntilWhole(others)
    }

    /// Returns the number of the master that has a key's slot at first.
    package func number(ofKey key: String) -> Int {
        let slot = RedisSlot.of(Array(key.utf8))
        return (0..<self.masters).first { slot < ($0 + 1) * RedisSlot.count / self.masters } ?? 0
    }

    private static func fill(_ server: RedisServer, _ key: String) async throws {
        let value = [UInt8](repeating: 0x78, count: 1_000_000)
        try await TestRedis.withPatience(server.url) { redis in
            for _ in 0..<32 { try await redis.send("SET", .text(key), .bytes(value)) }
        }
    }

    /// Returns the master of a slot, as a server of the cluster sees it that is up.
    package func master(of slot: Int) async throws -> RedisServer {
        for server in self.servers {
            var configuration = try server.configuration()
            configuration.waitsForServer = false
            configuration.commandTimeout = .seconds(1)
            let ranges = try? await TestRedis.with(configuration) { redis in
                try await redis.send("CLUSTER", "NODES").string()
            }
            for line in (ranges ?? "").split(separator: "\n") {
                let words = line.split(separator: " ")
                guard words.count > 8, words[2].contains("master"), !words[2].contains("fail") else { continue }
                let owns = words[8...].contains { range in
                    let ends = range.split(separator: "-").compactMap { Int($0) }
                    return !ends.isEmpty && (ends[0]...ends[ends.count - 1]).contains(slot)
                }
                let port = words[1].split(separator: "@").first?.split(separator: ":").last.flatMap { Int($0) }
                if owns, let found = self.servers.first(where: { $0.port == port }) { return found }
            }
        }
        throw FixtureError("no server knows the master of slot \(slot)")
    }

    private func waitUntilWhole(_ servers: [RedisServer]) async throws {
        for server in servers {
            try await TestRedis.withPatience(server.url) { redis in
                try await eventually("the server sees a whole cluster") {
                    try await redis.send("CLUSTER", "INFO").string()?.contains("cluster_state:ok") == true
                }
            }
        }
    }

    private func identifier(of server: Int) async throws -> String {
        try await Self.identifier(of: self.servers[server])
    }

    private static func identifier(of server: RedisServer) async throws -> String {
        try await TestRedis.withPatience(server.url) { redis in
            try await redis.send("CLUSTER", "MYID").string() ?? ""
        }
    }
}
