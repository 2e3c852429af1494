// Carillon · NodeServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Dispatch
import HTTP
import NIOCore
import NIOPosix
import Storage
import Support
import Synchronization
import Testing

@testable import Sockets

@Suite("Frames of a gateway", .timeLimit(.minutes(10)))
struct NodeServiceTests {
    /// A clock that stands still until a test advances it.
    private final class Clock: Sendable {
        private let start = ContinuousClock.now
        private let ahead = Mutex(Duration.zero)

        func advance(by duration: Duration) { self.ahead.withLock { $0 += duration } }
        var wasSet: Bool { self.ahead.withLock { $0 > .zero } }
        var now: ContinuousClock.Instant { self.start + self.ahead.withLock { $0 } }
    }

    private static func frame(_ version: Int64, user: String = "a") -> NodeFrame {
        NodeFrame(
            kind: .notification, user: user, previous: version - 1, version: version, unread: 1,
            id: NotificationID(high: 1, low: UInt64(version)), body: Array("{}".utf8))
    }

    /// Returns a node whose lease is on the first master of a cluster, and a user on the second.
    private static func names(_ cluster: TestCluster, _ keys: Keyspace) throws -> (node: String, user: String) {
        let nodes = (0..<200).map { "node-\($0)" }
        let node = nodes.first { cluster.number(ofKey: keys.nodeLease($0)) == 0 }
        let found = try #require(node)
        let users = (0..<200).map { "user-\($0)" }
        let user = users.first { cluster.number(ofKey: keys.part(of: $0).nodeChannel(found)) == 1 }
        return (found, try #require(user))
    }

    @Test("subscribes again while its channel brings nothing that is published")
    func silent() async throws {
        // The server of the subscription answers, but others publish to another one.
        let deaf = try await RedisServer.start()
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await RunningHub.with(ScriptedBackend()) { running in
                    let keys = Keyspace(prefix: prefix)
                    let live = Live(redis, keys: keys)
                    let service = NodeService(
                        node: "n",
                        lease: Lease(
                            key: keys.nodeLease("n"), value: "gateway", lifetime: .seconds(3), connection: redis),
                        configuration: try deaf.configuration(), live: live, hub: running.hub,
                        revocations: RevocationRegister(
                            store: Database(database.pool).revocations, live: live,
                            logger: TestLog.logger),
                        eventLoop: running.eventLoop, logger: TestLog.logger)
                    try await withThrowingTaskGroup(of: Void.self) { group in
                        group.addTask { try? await service.run() }
                        try await TestRedis.with(try deaf.configuration()) { watcher in
                            try await eventually("it subscribes again") {
                                let text = try await watcher.send("INFO", "commandstats").string() ?? ""
                                let line = text.split(whereSeparator: \.isNewline).first {
                                    $0.hasPrefix("cmdstat_subscribe:calls=")
                                }
                                let calls = line?.split(separator: "=").dropFirst().first?.prefix { $0.isNumber }
                                return (calls.flatMap { Int($0) } ?? 0) >= 2
                            }
                        }
                        group.cancelAll()
                    }
                }
            }
        }
    }

    @Test("registers sockets and brings them up to date once more after it has subscribed again")
    func secondCatchUp() async throws {
        let server = try await RedisServer.start()
        let configuration = try server.configuration()
        let asked = Notes<Int64>()
        var backend = ScriptedBackend()
        // A change was published to the former master until after the catch-up.
        backend.changed = { request in
            asked.note([request.since])
            return InboxSnapshot(version: asked.all.count > 2 ? 8 : request.since, unread: 0, total: 0)
        }
        try await TestRedis.with(configuration) { redis in
            try await TestDatabase.with { database in
                try await RunningHub.with(backend) { running in
                    let keys = Keyspace()
                    let live = Live(redis, keys: keys)
                    let service = NodeService(
                        node: "n", lease: Lease(key: keys.nodeLease("n"), value: "gateway", connection: redis),
                        configuration: configuration, live: live, hub: running.hub,
                        revocations: RevocationRegister(
                            store: Database(database.pool).revocations, live: live,
                            logger: TestLog.logger),
                        eventLoop: running.eventLoop, secondCatchUp: .seconds(1), logger: TestLog.logger)
                    let socket = try await running.open("a").synced()
                    try await withThrowingTaskGroup(of: Void.self) { group in
                        group.addTask { try? await service.run() }
                        try await eventually("it has subscribed and caught up") { !asked.all.isEmpty }
                        try await redis.send("CLIENT", "KILL", "TYPE", "pubsub")
                        try await eventually("the socket has the change") {
                            try await socket.on { _, wire in wire.syncs.contains(8) }
                        }
                        group.cancelAll()
                    }
                }
            }
        }
    }

    @Test("shows frames while the master of its lease is away for longer than the lease")
    func absentMaster() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let configuration = try cluster.configuration()
        let keys = Keyspace(parts: 16)
        let (node, user) = try Self.names(cluster, keys)
        let channel = keys.part(of: user).nodeChannel(node)
        let renewals = Notes<ContinuousClock.Instant>()
        try await TestRedis.with(configuration) { redis in
            try await TestDatabase.with { database in
                try await RunningHub.with(ScriptedBackend()) { running in
                    let live = Live(redis, keys: keys)
                    let lease = Lease(
                        key: keys.nodeLease(node), value: "gateway", lifetime: .seconds(3), connection: redis
                    ) {
                        let now = ContinuousClock.now
                        renewals.note([now])
                        return now
                    }
                    let service = NodeService(
                        node: node, lease: lease, configuration: configuration, live: live, hub: running.hub,
                        revocations: RevocationRegister(
                            store: Database(database.pool).revocations, live: live,
                            logger: TestLog.logger),
                        eventLoop: running.eventLoop, logger: TestLog.logger)
                    func publish(_ version: Int64) async throws {
                        var batch = NodeFrameBatch()
                        batch.append(Self.frame(version, user: user))
                        try await redis.send(keys.publishCommand, .text(channel), .bytes(batch.bytes))
                    }
                    try await withThrowingTaskGroup(of: Void.self) { group in
                        group.addTask { try? await service.run() }
                        let socket = try await running.open(user).synced()
                        try await eventually("frames are shown") {
                            try await publish(5)
                            return try await socket.on { _, wire in wire.versions == [5] }
                        }
                        try await cluster.lose(0)
                        let end = ContinuousClock.now + lease.lifetime
                        try await eventually("a renewal begins after the lease has ended") {
                            renewals.all.contains { $0 > end }
                        }
                        try await eventually("frames are still shown") {
                            try await publish(6)
                            return try await socket.on { _, wire in wire.versions == [5, 6] }
                        }
                        group.cancelAll()
                    }
                }
            }
        }
    }

    @Test("brings sockets up to date each minute while only this gateway cannot reach the master of its lease")
    func cutOff() async throws {
        let clock = Clock()
        let renewals = Notes<ContinuousClock.Instant>()
        let cluster = try await TestCluster.start(replicas: false)
        for server in cluster.servers {
            try await TestRedis.withPatience(server.url) { redis in
                _ = try await redis.send("ACL", "SETUSER", "gateway", "on", ">secret", "~*", "&*", "+@all")
            }
        }
        let url = cluster.url.replacing("://", with: "://gateway:secret@")
        let configuration = RedisConfiguration(address: try RedisAddress(url: url), clientName: "test")
        let keys = Keyspace(parts: 16)
        let (node, user) = try Self.names(cluster, keys)
        let connection = ConnectionPresence(
            connection: "c", node: node, dialect: .native, state: .active, since: Timestamp(seconds: 1_795_000_000))
        let missed = Notes<Int64>()
        var backend = ScriptedBackend()
        backend.changed = { InboxSnapshot(version: missed.all.last ?? $0.since, unread: 0, total: 0) }
        try await TestRedis.with(configuration) { redis in
            try await TestDatabase.with { database in
                try await RunningHub.with(backend) { running in
                    let live = Live(redis, keys: keys)
                    let lease = Lease(
                        key: keys.nodeLease(node), value: "gateway", lifetime: .seconds(3), connection: redis
                    ) {
                        renewals.note([clock.now])
                        return clock.now
                    }
                    let service = NodeService(
                        node: node, lease: lease, configuration: configuration, live: live, hub: running.hub,
                        revocations: RevocationRegister(
                            store: Database(database.pool).revocations, live: live,
                            logger: TestLog.logger),
                        eventLoop: running.eventLoop, now: { clock.now }, logger: TestLog.logger)
                    try await withThrowingTaskGroup(of: Void.self) { group in
                        group.addTask { try? await service.run() }
                        let socket = try await running.open(user).synced()
                        try await TestRedis.with(try cluster.configuration()) { other in
                            let presence = PresenceRegistry(Live(other, keys: keys))
                            try await eventually("the publishers see it") {
                                _ = try await presence.register([(user, connection)])
                                return try await presence.lookUp([user]) == [.online([connection])]
                            }
                            try await TestRedis.withPatience(cluster.servers[0].url) { redis in
                                _ = try await redis.send("ACL", "DELUSER", "gateway")
                            }
                            try await eventually("they take it for dead") {
                                try await presence.lookUp([user]) == [.offline]
                            }
                        }
                        missed.note([8])
                        clock.advance(by: lease.lifetime)
                        try await eventually("the socket has what they did not publish") {
                            try await socket.on { _, wire in wire.syncs.contains(8) }
                        }
                        // A catch-up before the minute is over would delay the one at its end.
                        clock.advance(by: .seconds(59))
                        let begun = renewals.all.count
                        try await eventually("another renewal fails") { renewals.all.count >= begun + 2 }
                        missed.note([9])
                        clock.advance(by: .seconds(1))
                        try await eventually("the socket has what they did not publish since") {
                            try await socket.on { _, wire in wire.syncs.contains(9) }
                        }
                        group.cancelAll()
                    }
                }
            }
        }
    }

    @Test("drops frames that waited while the gateway was suspended and brings sockets up to date")
    func stale() async throws {
        let clock = Clock()
        var backend = ScriptedBackend()
        // Two notifications arrived and were cancelled while the gateway was suspended.
        let gone = [Int64(5), 6].map { number in
            InboxSnapshot.Deletion(id: NotificationID(high: 1, low: UInt64(number)), version: number + 2)
        }
        backend.changed = { request in
            guard clock.wasSet, request.since < 8 else {
                return InboxSnapshot(version: request.since, unread: 0, total: 0)
            }
            return InboxSnapshot(version: 8, unread: 0, total: 0, deleted: gone)
        }
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await RunningHub.with(backend) { running in
                    let keys = Keyspace(prefix: prefix)
                    let service = NodeService(
                        node: "n",
                        lease: Lease(key: keys.nodeLease("n"), value: "gateway", connection: redis),
                        configuration: try await TestRedis.configuration(), live: Live(redis, keys: keys),
                        hub: running.hub,
                        revocations: RevocationRegister(
                            store: Database(database.pool).revocations, live: Live(redis, keys: keys),
                            logger: TestLog.logger),
                        eventLoop: running.eventLoop, now: { clock.now }, logger: TestLog.logger)
                    func publish(_ versions: Int64...) async throws {
                        var batch = NodeFrameBatch()
                        for version in versions { batch.append(Self.frame(version)) }
                        try await redis.send("PUBLISH", .text(keys.nodeChannel("n")), .bytes(batch.bytes))
                    }
                    func isSubscribed() async throws -> Bool {
                        let reply = try await redis.send("PUBSUB", "NUMSUB", .text(keys.nodeChannel("n")))
                        guard var cursor = try reply.cursor(), try cursor.array() == 2 else { return false }
                        _ = try cursor.string()
                        return try cursor.integer() == 1
                    }
                    try await withThrowingTaskGroup(of: Void.self) { group in
                        group.addTask { try? await service.run() }
                        try await eventually("the node is subscribed") { try await isSubscribed() }
                        let socket = try await running.open("a").synced()
                        // As after a suspended process: the lease may have expired by now.
                        clock.advance(by: .seconds(20))
                        try await publish(5, 6)
                        try await eventually("the socket has the inbox as it is") {
                            try await socket.on { _, wire in wire.syncs.contains(8) }
                        }
                        #expect(try await socket.on { _, wire in wire.versions } == [])
                        try await eventually("frames are shown again") {
                            try await publish(9)
                            return try await socket.on { _, wire in wire.versions == [9] }
                        }
                        group.cancelAll()
                    }
                }
            }
        }
    }
}

@Suite("Changes for several event loops", .timeLimit(.minutes(10)))
struct EventLoopTests {
    @Test("hands each loop the changes of its own users, and notes users without a socket")
    func loops() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        var configuration = SocketConfiguration()
        configuration.changesPerLoop = 2
        let hub = SocketHub(
            eventLoopGroup: group, configuration: configuration, backend: ScriptedBackend(),
            logger: TestLog.logger, now: { Timestamp(seconds: 1_795_000_000) })
        let standstill = DispatchSemaphore(value: 0)
        try await withCleanUp {
            standstill.signal()
            try? await group.shutdownGracefully()
        } _: {
            let users = ["a", "b"]
            var sockets: [LiveSocket] = []
            for (user, eventLoop) in zip(users, hub.loops.eventLoops) {
                let socket = try await LiveSocket.open(user, of: hub, on: eventLoop)
                try await socket.on { session, _ in
                    session.opened(InboxSnapshot(version: 0, unread: 0, total: 0))
                }
                sockets.append(socket)
            }
            // The second loop stands still, and its queue takes no more than two changes.
            hub.loops.eventLoops[1].execute { standstill.wait() }
            for version in 1...5 {
                hub.deliver([HubHarness.notification("a", Int64(version))])
                try await eventually("the first has it") {
                    try await sockets[0].on { _, wire in wire.versions.last == Int64(version) }
                }
            }
            hub.deliver([HubHarness.notification("nobody", 1), HubHarness.notification("b", 1)])
            standstill.signal()
            try await eventually("the second gets its own") {
                try await sockets[1].on { _, wire in wire.versions == [1] }
            }
            #expect(await hub.presence.ghosts.next(limit: 10) == ["nobody"])
        }
    }
}
