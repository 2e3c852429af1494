// Carillon · SentinelGroup.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation

/// A Redis master with replicas, and three Sentinels that watch them.
package final class SentinelGroup: Sendable {
    package static let name = "carillon"

    /// The master at first, then its replicas.
    package let servers: [RedisServer]
    private let sentinels: [ChildProcess]
    /// The ports of the Sentinels.
    package let ports: [Int]
    private let directory: TemporaryDirectory

    private init(servers: [RedisServer], sentinels: [ChildProcess], ports: [Int], directory: TemporaryDirectory) {
        self.servers = servers
        self.sentinels = sentinels
        self.ports = ports
        self.directory = directory
    }

    deinit {
        for sentinel in self.sentinels { sentinel.send(SIGKILL) }
    }

    /// Starts the servers and the Sentinels, and waits until each Sentinel knows all of them.
    ///
    /// - Parameter failsOver: whether the Sentinels replace a master that stalls or dies.
    package static func start(replicas count: Int = 1, failsOver: Bool = true) async throws -> SentinelGroup {
        var options = RedisServer.Options()
        // A replica need not wait for others that may come.
        options.arguments = ["--repl-diskless-sync-delay", "0"]
        let master = try await RedisServer.start(options)
        var servers = [master]
        options.arguments += ["--replicaof", "127.0.0.1", "\(master.port)"]
        for _ in 0..<count { servers.append(try await RedisServer.start(options)) }
        let directory = try TemporaryDirectory("sentinels")
        var sentinels: [ChildProcess] = []
        var ports: [Int] = []
        for number in 1...3 {
            let port = try FreePort.next()
            let file = directory.file("sentinel-\(number).conf")
            let text = """
                port \(port)
                bind 127.0.0.1
                dir \(directory.path)
                sentinel monitor \(Self.name) 127.0.0.1 \(master.port) 2
                sentinel down-after-milliseconds \(Self.name) \(failsOver ? 1_500 : 600_000)
                sentinel failover-timeout \(Self.name) 6000
                sentinel parallel-syncs \(Self.name) 1

                """
            try Data(text.utf8).write(to: URL(fileURLWithPath: file))
            sentinels.append(
                try await ChildProcess.spawn(
                    "redis-server", [file, "--sentinel"], name: "sentinel-\(number)", directory: directory.path))
            ports.append(port)
        }
        let group = SentinelGroup(servers: servers, sentinels: sentinels, ports: ports, directory: directory)
        try await group.withSentinels { sentinel in
            try await eventually("the Sentinel knows the replicas and the other Sentinels") {
                let text = try await sentinel.send("INFO", "sentinel").string() ?? ""
                return text.contains("status=ok,") && text.contains("slaves=\(count),sentinels=3")
            }
        }
        return group
    }

    /// `redis+sentinel://…`, which names all Sentinels.
    package var url: String {
        "redis+sentinel://" + self.ports.map { "127.0.0.1:\($0)" }.joined(separator: ",") + "/\(Self.name)/0"
    }

    /// Writes values of a megabyte.
    package func fill(_ server: Int, megabytes: Int) async throws {
        let value = [UInt8](repeating: 0x78, count: 1_000_000)
        try await TestRedis.withPatience(self.servers[server].url) { redis in
            for _ in 0..<megabytes { try await redis.send("SET", "filler", .bytes(value)) }
        }
    }

    /// Makes a replica a master, and all Sentinels name it, while the old master goes on.
    package func name(_ server: Int) async throws {
        try await TestRedis.withPatience(self.servers[server].url) { redis in
            try await self.withSentinels { sentinel in
                try await sentinel.send("SENTINEL", "REMOVE", .text(Self.name))
                try await redis.send("REPLICAOF", "NO", "ONE")
                try await sentinel.send(
                    "SENTINEL", "MONITOR", .text(Self.name), "127.0.0.1", .text("\(self.servers[server].port)"), "2")
            }
        }
    }

    /// Waits until all Sentinels name another master than `old`.
    ///
    /// If that returned earlier, some would still take it for the master.
    package func waitForNewMaster(after old: Int = 0) async throws {
        try await self.withSentinels { sentinel in
            try await eventually("a Sentinel names the new master") {
                try await Self.master(by: sentinel) != self.servers[old].port
            }
        }
    }

    /// Kills the master while its replicas stand still, and starts it again once another has taken
    /// over; it returns as a replica.
    package func failOver(after stall: Duration) async throws {
        var master = 0
        try await self.withSentinels { sentinel in
            let port = try await Self.master(by: sentinel)
            master = self.servers.firstIndex { $0.port == port } ?? 0
        }
        let replicas = self.servers.filter { $0.port != self.servers[master].port }
        for replica in replicas { try await replica.stall() }
        // The time in which the master writes what its replicas lack.
        try await Task.sleep(for: stall)
        try await self.servers[master].kill()
        for replica in replicas { replica.resume() }
        try await self.waitForNewMaster(after: master)
        try await self.servers[master].start()
    }

    /// Returns the port of the master.
    private static func master(by sentinel: RedisClient) async throws -> Int? {
        let answer = try await sentinel.send("SENTINEL", "GET-MASTER-ADDR-BY-NAME", .text(Self.name)).strings()
        return answer.last.flatMap { Int($0) }
    }

    /// Runs `body` with a connection to each Sentinel in turn.
    private func withSentinels(_ body: (RedisClient) async throws -> Void) async throws {
        for port in self.ports {
            try await TestRedis.withPatience("redis://127.0.0.1:\(port)", body)
        }
    }

    /// Stops a Sentinel for good.
    package func killSentinel(_ number: Int) async throws {
        self.sentinels[number].send(SIGKILL)
        try await self.sentinels[number].waitForExit()
    }
}
