// Carillon · TestServices.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import HTTP
import Logging
import NIOPosix
import Operations
import Storage

@testable import Core

/// Services without a backend, for tests that call no route.
enum TestServices {
    static func with<Value>(_ body: (APIServices) async throws -> Value) async throws -> Value {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let address = try RedisAddress(url: "unix:///nowhere/redis.sock")
        let redis = try RedisClient(
            RedisConfiguration(address: address, clientName: "test"),
            on: MultiThreadedEventLoopGroup.singleton.next(),
            logger: logger
        )
        let configuration = PostgresConfiguration(connectionString: "host=/nowhere", applicationName: "test")
        let pool = try PostgresPool(configuration, logger: logger)
        let now: @Sendable () -> Timestamp = { Timestamp(seconds: 1_795_000_000) }
        let base = GatewayBase(
            database: Database(pool),
            live: Live(redis),
            catalogs: CatalogRegister(try Catalog([]), now: now),
            now: now,
            logger: logger
        )
        let revocations = RevocationRegister(
            store: base.database.revocations, live: base.live, now: now, logger: logger)
        let tickets = SocketTickets(base.live, revocations: nil, now: now)
        let verifier = TokenVerifier(
            secrets: ["a-secret-of-thirty-two-characters"], keySet: nil, rules: TokenRules(), now: now)
        let services = APIServices(
            base,
            identity: IdentityServices(
                credentials: CredentialResolver(verifier: verifier, tickets: tickets, cookie: nil),
                tickets: tickets,
                revocations: revocations
            ),
            inbox: InboxServices(base),
            users: UserServices(base, revocations: revocations),
            jobs: JobServices(base),
            metrics: PrometheusRegistry()
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
