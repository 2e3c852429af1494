// Carillon · TestDispatcher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Operations
import Providers
import Storage
import Support

@testable import Core
@testable import Pipeline

/// A dispatcher whose clock stands still or is set by the test.
enum TestDispatcher {
    static let now = Timestamp(seconds: 1_795_000_000)

    static func make(
        _ pool: PostgresPool,
        _ redis: RedisClient,
        _ keys: Keyspace,
        _ types: [NotificationType],
        _ channels: any ProviderChannel...,
        now: @escaping @Sendable () -> Timestamp = { TestDispatcher.now },
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        eventsLength: Int? = nil,
        logger: Logger = TestLog.logger
    ) throws -> Dispatcher {
        Dispatcher(
            name: "test",
            database: Database(pool),
            live: Live(redis, keys: keys),
            eventsLength: eventsLength,
            catalogs: CatalogRegister(try Catalog(types), now: now),
            zones: Dispatcher.Zones(ZoneDatabase(), fallback: "UTC"),
            channels: ChannelDirectory(channels.map { ChannelDirectory.Entry($0) }),
            clock: Dispatcher.Clock(now: now, instant: instant),
            logger: logger
        )
    }
}
