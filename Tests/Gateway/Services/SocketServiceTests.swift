// Carillon · SocketServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Operations
import Storage
import Support
import Testing

@testable import Core
@testable import HTTP
@testable import Sockets

@Suite("Services of sockets", .timeLimit(.minutes(10)))
struct SocketServiceTests {
    @Test("counts the events of proofs as lost if Redis goes away after the proofs are stored")
    func lostEvents() async throws {
        try await TestDatabase.with { database in
            let redis = try await TestRedis.connect()
            await redis.close()
            let keys = Keyspace(prefix: TestRedis.prefix())
            let lines = LogRecorder { "\($0.message) \($0.metadata?["count"]?.description ?? "")" }
            let base = GatewayBase(
                database: Database(database.pool),
                live: Live(redis, keys: keys),
                catalogs: CatalogRegister(try Catalog([]), now: { Tokens.now }),
                events: EventPublisher(
                    log: EventLog(keys: keys, length: 100), connection: redis,
                    logger: lines.logger),
                now: { Tokens.now },
                logger: TestLog.logger
            )
            let credentials = CredentialResolver(
                verifier: try Tokens.verifier(),
                tickets: SocketTickets(base.live, revocations: nil, now: { Tokens.now }),
                cookie: nil
            )
            let service = SocketService(
                base, node: "n", credentials: credentials, inbox: InboxServices(base),
                users: base.database.users(limits: DeviceLimits()), messageRate: nil)
            let id = NotificationID(high: 1, low: 1)
            var notification = Notification(id: id, user: "ada", type: "t", createdAt: Tokens.now)
            notification.jobEntry = "jobs/1"
            notification.channels = [.inApp]
            _ = try await base.database.notifications.store([notification], areRepeats: false)
            let proofs = [ReceiptProof(user: "ada", id: id, awaitingLane: .normal, at: Tokens.now)]
            // The hub repeats a failed call, whose events are lost by then.
            for _ in 0..<2 {
                await #expect(throws: RedisError.self) { try await service.confirm(proofs) }
            }
            #expect(lines.all == ["lost events for upstream apps; check Redis 1"])
            #expect(try await base.database.notifications.load([("ada", id)]).map(\.status) == [.delivered])
        }
    }

    @Test("an outage of Redis is logged once, not for each call that loses events")
    func lostOften() async throws {
        let redis = try await TestRedis.connect()
        await redis.close()
        let keys = Keyspace(prefix: TestRedis.prefix())
        let lines = LogRecorder { "\($0.message) \($0.metadata?["count"]?.description ?? "")" }
        let publisher = EventPublisher(
            log: EventLog(keys: keys, length: 100), connection: redis, logger: lines.logger)
        let label = NotificationLabel(
            id: NotificationID(high: 1, low: 1), user: "ada", type: "t", category: nil, org: "", job: nil)
        let event = LifecycleEvent(.read, label, at: Tokens.now)
        for _ in 0..<2 { await publisher.publish(Array(repeating: event, count: 600)) }
        #expect(lines.all == ["lost events for upstream apps; check Redis 600"])
    }
}
