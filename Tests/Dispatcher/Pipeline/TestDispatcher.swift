// Carillon · TestDispatcher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Operations
import Providers
import Support

@testable import Core
@testable import Pipeline
@testable import Storage

/// A dispatcher whose clock stands still or is set by the test.
enum TestDispatcher {
    static let now = Timestamp(seconds: 1_795_000_000)

    /// Runs `body` with a dispatcher that has its own keys and database.
    ///
    /// - Parameters:
    ///   - catalogPath: the file from which its catalog can be reloaded.
    ///   - isLeased: whether the dispatcher holds its lease.
    static func with<Result>(
        _ channels: any ProviderChannel...,
        types: [NotificationType] = [NotificationType(name: "news")],
        catalog: Catalog? = nil,
        catalogPath: String? = nil,
        now: @escaping @Sendable () -> Timestamp = { TestDispatcher.now },
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        eventsLength: Int? = nil,
        lease: Duration = Lease.usualLifetime,
        isLeased: Bool = true,
        logger: Logger = TestLog.logger,
        _ body: (Dispatcher, TestDatabase) async throws -> Result
    ) async throws -> Result {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let dispatcher = try Self.make(
                    database.pool, redis, Keyspace(prefix: prefix), channels, types: types,
                    catalog: catalog, catalogPath: catalogPath, now: now, instant: instant, eventsLength: eventsLength,
                    lease: lease, logger: logger)
                if isLeased { dispatcher.leaseClock.hold() }
                return try await body(dispatcher, database)
            }
        }
    }

    /// Makes a dispatcher without a lease, such as one of several on the same database.
    static func make(
        _ pool: PostgresPool,
        _ redis: RedisClient,
        _ keys: Keyspace,
        _ channels: [any ProviderChannel] = [],
        types: [NotificationType] = [NotificationType(name: "news")],
        catalog: Catalog? = nil,
        catalogPath: String? = nil,
        now: @escaping @Sendable () -> Timestamp = { TestDispatcher.now },
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        eventsLength: Int? = nil,
        replicated: ReplicatedWrites? = nil,
        zones: ZoneDatabase = ZoneDatabase(),
        lease: Duration = Lease.usualLifetime,
        logger: Logger = TestLog.logger
    ) throws -> Dispatcher {
        Dispatcher(
            name: "test",
            database: Database(pool),
            live: Live(redis, keys: keys, replicated: replicated),
            eventsLength: eventsLength,
            catalogs: CatalogRegister(try catalog ?? Catalog(types), path: catalogPath, now: now),
            zones: Dispatcher.Zones(zones, fallback: "UTC"),
            channels: ChannelDirectory(channels.map { ChannelDirectory.Entry($0) }),
            clock: Dispatcher.Clock(now: now, instant: instant, lease: lease),
            logger: logger
        )
    }

    /// A notification of this number, created now, and by default for all channels.
    static func notification(
        _ number: UInt64 = 1,
        of user: String = "ada",
        channels: Channels = .all
    ) -> Notification {
        var notification = Notification(
            id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number), user: user,
            type: "news", createdAt: Self.now)
        notification.channels = channels
        return notification
    }

    /// A user's phone, registered now.
    static func phone(_ number: UInt64 = 3, of user: String = "ada", token: String = "phone") -> Device {
        Device(
            id: NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0000 + number), user: user,
            platform: .android, provider: .fcm, app: "default", environment: .production, token: token,
            registeredAt: Self.now)
    }

    /// Stores Ada, her ``phone(_:of:token:)``, and notifications 1 to `count`, whose pushes are
    /// queued; the audit stays empty.
    static func storePushes(_ count: UInt64 = 1, in pool: PostgresPool) async throws {
        let now = PostgresValue.timestamp(Self.now)
        try await pool.run([
            PostgresStatement("INSERT INTO carillon.users (user_id) VALUES ('ada')"),
            PostgresStatement(
                """
                INSERT INTO carillon.devices (id, user_id, platform, provider, app, environment, token, registered_at,
                    last_used_at)
                VALUES ($1, 'ada', 'android', 'fcm', 'default', 'production', 'phone', $2, $2)
                """,
                [.id(Self.phone().id), now]),
            PostgresStatement(
                """
                INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery,
                    lane, channels, title, body, status, status_reason, created_at, stored_at)
                SELECT 'ada', unnest($1), 1, 'x', '', 'news', 'info', 'push', 'normal', 3, 'hello', '', 'pending',
                    'queued', $2, $2
                """,
                [.ids((1...count).map { Self.notification($0).id }), now]),
        ])
    }
}

extension LeaseClock {
    /// Holds the lease for longer than a test takes, however busy the machine is.
    ///
    /// - Parameter withoutGap: whether the lease had not expired; otherwise a new term begins.
    func hold(withoutGap: Bool = true) {
        self.renewed(at: .now + .seconds(3_600), withoutGap: withoutGap)
    }
}

extension Catalog {
    /// A catalog of these types alone.
    convenience init(_ types: [NotificationType]) throws(CatalogFaults) {
        var document = CatalogDocument()
        let location = CatalogLocation(file: "test", line: nil)
        document.types = types.map { Located(TypeEntry(type: $0), at: location) }
        let log = CatalogFaultLog()
        self.init([document], digest: "", log: log)
        try log.finish()
    }
}

/// A provider whose answers the test chooses; without a choice, it sends nothing.
struct FakeChannel: ProviderChannel {
    let provider: Provider
    let app: String
    let account: String
    let retractionsHaveBadge: Bool
    /// The push service of all devices; nil if there is only one.
    var service: String?
    private let reply: @Sendable (PushMessage, Device) async -> ProviderReply.Result

    init(
        provider: Provider = .fcm,
        app: String = "default",
        account: String? = nil,
        retractionsHaveBadge: Bool = false,
        reply: @escaping @Sendable (PushMessage, Device) async -> ProviderReply.Result = { _, _ in
            .noCredential(reason: "nothing is sent here")
        }
    ) {
        self.provider = provider
        self.app = app
        self.account = account ?? app
        self.retractionsHaveBadge = retractionsHaveBadge
        self.reply = reply
    }

    /// A provider that accepts every message, after `meanwhile`.
    static func accepting(
        retractionsHaveBadge: Bool = false,
        _ meanwhile: @escaping @Sendable (PushMessage) async -> Void = { _ in }
    ) -> FakeChannel {
        FakeChannel(retractionsHaveBadge: retractionsHaveBadge) { message, _ in
            await meanwhile(message)
            return .answered(.accepted(id: "1"))
        }
    }

    func service(of device: Device) -> String? { self.service }

    func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
        ProviderReply(await self.reply(message, device))
    }
}
