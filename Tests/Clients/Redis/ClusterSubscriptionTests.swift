// Carillon · ClusterSubscriptionTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOPosix
import Support
import Synchronization
import Testing

@testable import Clients

/// Subscriptions of a real cluster.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ClusterSubscriptionTests {
    /// Collects the reports of a subscription.
    private final class Reports: Sendable {
        let messages = Mutex<[String]>([])
        let subscriptions = Mutex(0)
        let resumptions = Mutex(0)

        func note(_ event: RedisSubscription.Event) {
            switch event {
            case .subscribed: self.subscriptions.withLock { $0 += 1 }
            case .resumed: self.resumptions.withLock { $0 += 1 }
            case .lost: break
            case .message(_, let payload):
                self.messages.withLock { $0.append(String(decoding: payload, as: UTF8.self)) }
            }
        }
    }

    private static let sharded = ["{a}", "{b}", "{c}", "{d}"]

    private static func subscribe(
        _ configuration: RedisConfiguration,
        _ reports: Reports,
        sharded: [String] = Self.sharded
    ) throws -> RedisSubscription {
        try RedisSubscription(
            configuration, channels: ["news"], sharded: sharded,
            on: MultiThreadedEventLoopGroup.singleton.any(), logger: TestLog.logger
        ) { reports.note($0) }
    }

    /// Publishes to every channel, and waits for all messages.
    private static func expectAll(_ mark: String, _ reports: Reports, _ redis: RedisClient) async throws {
        try await eventually("every channel is heard") {
            for channel in Self.sharded { _ = try? await redis.send("SPUBLISH", .text(channel), .text(mark + channel)) }
            _ = try? await redis.send("PUBLISH", "news", .text(mark + "news"))
            let messages = reports.messages.withLock { Set($0) }
            return (Self.sharded + ["news"]).allSatisfy { messages.contains(mark + $0) }
        }
    }

    /// Returns the number of the master where the channel `news` is subscribed.
    private static func newsMaster(_ cluster: TestCluster) async throws -> Int {
        try await eventualValue("a master has the subscriber") {
            for (number, server) in cluster.servers.enumerated() {
                let channels = try await TestRedis.with(try server.configuration()) { redis in
                    try await redis.send("PUBSUB", "CHANNELS").strings()
                }
                if channels.contains("news") { return number }
            }
            return nil
        }
    }

    /// Publishes `news` at a master, until a message arrives.
    private static func expectNews(_ reports: Reports, from server: RedisServer) async throws {
        try await TestRedis.with(try server.configuration()) { redis in
            try await eventually("the message arrives") {
                _ = try await redis.send("PUBLISH", "news", "late")
                return reports.messages.withLock { $0.contains("late") }
            }
        }
    }

    @Test("hears the channels of every master, and follows them when a slot moves")
    func moves() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let fourth = try await cluster.join()
        let reports = Reports()
        let subscription = try Self.subscribe(try cluster.configuration(), reports)
        try await TestRedis.with(try cluster.configuration()) { redis in
            try await eventually("it is subscribed") { reports.subscriptions.withLock { $0 } == 1 }
            try await Self.expectAll("first ", reports, redis)
            let slot = RedisSlot.of(Array("{a}".utf8))
            try await cluster.move(slot, from: try await cluster.master(of: slot), to: fourth)
            try await eventually("it is subscribed again") { reports.subscriptions.withLock { $0 } > 1 }
            try await Self.expectAll("second ", reports, redis)
        }
        await subscription.close()
    }

    @Test("hears general channels at another master once theirs is lost", arguments: [Self.sharded, []])
    func lostMaster(sharded: [String]) async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let reports = Reports()
        let subscription = try Self.subscribe(try cluster.configuration(), reports, sharded: sharded)
        try await eventually("it is subscribed") { reports.subscriptions.withLock { $0 } == 1 }
        let lost = try await Self.newsMaster(cluster)
        try await cluster.lose(lost)
        try await Self.expectNews(reports, from: cluster.servers[(lost + 1) % 3])
        await subscription.close()
    }

    @Test("hears general channels at another master once theirs has left the cluster")
    func expelledMaster() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let reports = Reports()
        let subscription = try Self.subscribe(try cluster.configuration(), reports)
        try await eventually("it is subscribed") { reports.subscriptions.withLock { $0 } == 1 }
        let expelled = try await Self.newsMaster(cluster)
        try await cluster.expel(expelled)
        try await Self.expectNews(reports, from: cluster.servers[(expelled + 1) % 3])
        await subscription.close()
    }

    @Test("subscribes general channels while a master is away from the start")
    func lostFromTheStart() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await cluster.lose(0)
        let reports = Reports()
        let subscription = try Self.subscribe(try cluster.configuration(), reports, sharded: [])
        try await Self.expectNews(reports, from: cluster.servers[1])
        await subscription.close()
    }

    @Test("reports the channels that it hears while a master is away from the start")
    func absentFromTheStart() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await cluster.lose(cluster.number(ofKey: "{c}"))
        let reports = Reports()
        let subscription = try Self.subscribe(try cluster.configuration(), reports)
        try await eventually("some are subscribed") { reports.resumptions.withLock { $0 } > 0 }
        #expect(reports.subscriptions.withLock { $0 } == 0)
        await subscription.close()
    }

    @Test("hears a dead master's channels at its replica")
    func failover() async throws {
        let cluster = try await TestCluster.start()
        let reports = Reports()
        let subscription = try Self.subscribe(try cluster.configuration(), reports)
        try await TestRedis.with(try cluster.configuration()) { redis in
            try await eventually("it is subscribed") { reports.subscriptions.withLock { $0 } == 1 }
            try await cluster.failOver(slot: RedisSlot.of(Array("{b}".utf8)))
            try await eventually("it is subscribed again") { reports.subscriptions.withLock { $0 } > 1 }
            try await Self.expectAll("after ", reports, redis)
        }
        await subscription.close()
    }
}
