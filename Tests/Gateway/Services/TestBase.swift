// Carillon · TestBase.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Operations
import Storage
import Support

@testable import Core
@testable import HTTP

extension GatewayBase {
    /// Creates the base of a gateway that has an empty catalog.
    static func forTests(
        _ pool: PostgresPool, _ redis: RedisClient, _ keys: Keyspace, events: EventPublisher = EventPublisher(),
        now: @escaping @Sendable () -> Timestamp = { Tokens.now }, logger: Logger = TestLog.logger
    ) throws -> GatewayBase {
        GatewayBase(
            database: Database(pool),
            live: Live(redis, keys: keys),
            catalogs: CatalogRegister(try CatalogParser.parse([]), now: now),
            events: events,
            now: now,
            logger: logger
        )
    }
}

extension EventPublisher {
    static func forTests(
        _ redis: RedisClient, _ keys: Keyspace, logger: Logger = TestLog.logger
    ) -> EventPublisher {
        EventPublisher(log: EventLog(keys: keys, length: 100), connection: redis, logger: logger)
    }
}
