// Carillon · TestServices.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Logging
import NIOPosix
import Operations
import Storage

/// Services without a backend, for tests that call no route.
enum TestServices {
    static func with<Value>(_ body: (APIServices) async throws -> Value) async throws -> Value {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let address = try RedisAddress(url: "unix:///nowhere/redis.sock")
        let redis = try RedisConnection(
            RedisConfiguration(address: address, clientName: "test"),
            on: MultiThreadedEventLoopGroup.singleton.next(),
            logger: logger
        )
        let configuration = PostgresConfiguration(connectionString: "host=/nowhere", applicationName: "test")
        let pool = try PostgresPool(configuration, logger: logger)
        let now: @Sendable () -> Timestamp = { Timestamp(seconds: 1_795_000_000) }
        let keys = Keyspace()
        let database = Database(pool)
        let live = Live(redis, keys: keys)
        let presence = PresenceRegistry(live)
        let unconfirmed = live.unconfirmed
        let inbox = InboxStore(database)
        let users = database.users
        let revocations = RevocationRegister(
            store: database.revocations,
            redis: redis,
            keys: keys,
            now: now,
            logger: logger
        )
        let tickets = SocketTickets(redis: redis, keys: keys, revocations: nil, now: now)
        let verifier = TokenVerifier(
            secrets: ["a-secret-of-thirty-two-characters"],
            keySet: nil,
            rules: TokenRules(),
            now: now
        )
        let services = APIServices(
            credentials: CredentialResolver(verifier: verifier, tickets: tickets, cookie: nil),
            tickets: tickets,
            revocations: revocations,
            inbox: inbox,
            inboxService: InboxService(
                store: inbox,
                publisher: FramePublisher(live, presence: presence),
                unconfirmed: unconfirmed,
                now: now,
                logger: logger
            ),
            notifications: database.notifications,
            devices: database.devices,
            preferences: database.preferences,
            users: users,
            exports: database.exports,
            erasure: ErasureService(
                revocations: revocations,
                users: users,
                deadLetters: database.deadLetters,
                schedules: database.schedules,
                traces: live.userTraces,
                unconfirmed: unconfirmed
            ),
            topics: database.topics,
            schedules: database.schedules,
            presence: presence,
            recipients: database.recipients,
            usage: live.usageCaps,
            traces: database.traces,
            digests: database.digests,
            survey: live.survey,
            providerBoard: live.providerBoard,
            testSends: live.testSends,
            jobs: live.jobs,
            broadcasts: database.broadcasts,
            jobControl: JobControl(
                cancellations: database.cancellations,
                broadcasts: database.broadcasts,
                schedules: database.schedules,
                publisher: FramePublisher(live, presence: presence),
                keys: keys,
                now: now,
                logger: logger
            ),
            catalogs: CatalogRegister(try Catalog([]), now: now),
            catalogAnnouncer: live.catalogAnnouncer,
            zones: ZoneDatabase(),
            redis: redis,
            metrics: PrometheusRegistry(),
            checkDatabase: {},
            now: now,
            webhooks: database.webhooks,
            deadLetters: database.deadLetters,
            statistics: database.statistics,
            clientReports: database.clientReports,
            inboxPages: InboxPageCache(bytes: 0, now: now)
        )
        let value: Value
        do {
            value = try await body(services)
        } catch {
            await redis.close()
            pool.close()
            throw error
        }
        await redis.close()
        pool.close()
        return value
    }
}
