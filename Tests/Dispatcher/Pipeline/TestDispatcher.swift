// Carillon · TestDispatcher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Providers
import Storage
import Support

@testable import Pipeline

/// A dispatcher whose time stands still, or is set by the test.
enum TestDispatcher {
    static let now = Timestamp(seconds: 1_795_000_000)

    static func make(
        _ pool: PostgresPool,
        _ redis: RedisConnection,
        _ keys: Keyspace,
        _ types: [NotificationType],
        _ channels: any ProviderChannel...,
        now: @escaping @Sendable () -> Timestamp = { TestDispatcher.now },
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        eventsLength: Int? = nil
    ) throws -> Dispatcher {
        Dispatcher(
            name: "test",
            catalogs: CatalogRegister(try Catalog(types), now: now),
            keys: keys,
            redis: redis,
            notifications: NotificationStore(pool: pool),
            recipients: RecipientStore(pool: pool),
            deliveries: DeliveryStore(pool: pool),
            deadLetters: DeadLetterStore(pool: pool),
            followUps: FollowUpStore(pool: pool),
            digests: DigestStore(pool: pool),
            schedules: ScheduleStore(pool: pool),
            zones: ZoneDatabase(),
            defaultZone: "UTC",
            broadcasts: BroadcastStore(pool: pool),
            cancellations: CancellationStore(pool: pool),
            presence: PresenceRegistry(connection: redis, keys: keys),
            events: EventLog(keys: keys, length: eventsLength),
            channels: ChannelDirectory(channels.map { ChannelDirectory.Way($0) }),
            now: now,
            instant: instant,
            logger: TestLog.logger
        )
    }
}
