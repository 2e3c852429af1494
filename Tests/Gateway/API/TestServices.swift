// Carillon · TestServices.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Logging
import NIOPosix
import Operations
import Storage

/// What the routes stand on, with nothing behind it: for tests that call none of them.
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
        let presence = PresenceRegistry(connection: redis, keys: keys)
        let unconfirmed = UnconfirmedSet(connection: redis, keys: keys)
        let inbox = InboxStore(pool: pool)
        let users = UserStore(pool: pool)
        let revocations = RevocationRegister(
            store: RevocationStore(pool: pool),
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
                publisher: FramePublisher(connection: redis, keys: keys, presence: presence),
                unconfirmed: unconfirmed,
                now: now,
                logger: logger
            ),
            notifications: NotificationStore(pool: pool),
            devices: DeviceStore(pool: pool),
            preferences: PreferenceStore(pool: pool),
            users: users,
            exports: UserExportStore(pool: pool),
            erasure: ErasureService(
                revocations: revocations,
                users: users,
                deadLetters: DeadLetterStore(pool: pool),
                schedules: ScheduleStore(pool: pool),
                traces: UserTraces(connection: redis, keys: keys),
                unconfirmed: unconfirmed
            ),
            topics: TopicStore(pool: pool),
            schedules: ScheduleStore(pool: pool),
            presence: presence,
            recipients: RecipientStore(pool: pool),
            usage: UsageCaps(connection: redis, keys: keys),
            traces: TraceStore(pool: pool),
            digests: DigestStore(pool: pool),
            survey: StreamSurvey(connection: redis, keys: keys),
            providerBoard: ProviderBoard(connection: redis, keys: keys),
            testSends: TestSends(connection: redis, keys: keys),
            jobs: JobStream(connection: redis, keys: keys),
            broadcasts: BroadcastStore(pool: pool),
            jobControl: JobControl(
                cancellations: CancellationStore(pool: pool),
                broadcasts: BroadcastStore(pool: pool),
                schedules: ScheduleStore(pool: pool),
                publisher: FramePublisher(connection: redis, keys: keys, presence: presence),
                keys: keys,
                now: now,
                logger: logger
            ),
            catalogs: CatalogRegister(try Catalog([]), now: now),
            catalogAnnouncer: CatalogAnnouncer(connection: redis, keys: keys),
            zones: ZoneDatabase(),
            redis: redis,
            metrics: PrometheusRegistry(),
            checkDatabase: {},
            now: now,
            webhooks: WebhookStore(pool: pool),
            deadLetters: DeadLetterStore(pool: pool),
            statistics: StatisticsStore(pool: pool),
            clientReports: ClientReportStore(pool: pool),
            providers: KnownProviders(),
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
