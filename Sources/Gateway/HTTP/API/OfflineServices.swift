// Carillon · OfflineServices.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import NIOPosix
import Operations
import Storage

/// Services without Redis, PostgreSQL or a catalog, from which routes can be described but not
/// called.
package enum OfflineServices {
    /// Runs `body` with the services, then closes them.
    package static func with<Value>(_ body: (APIServices) async throws -> Value) async throws -> Value {
        let logger = Logger(label: "carillon.offline") { _ in SwiftLogNoOpLogHandler() }
        let redis = try RedisClient(
            RedisConfiguration(address: try RedisAddress(url: "unix:///nowhere/redis.sock"), clientName: "offline"),
            on: MultiThreadedEventLoopGroup.singleton.next(), logger: logger)
        let pool = try PostgresPool(
            PostgresConfiguration(connectionString: "host=/nowhere", applicationName: "offline"), logger: logger)
        let result: Result<Value, any Error>
        do {
            result = .success(try await body(try Self.services(redis, pool, logger)))
        } catch {
            result = .failure(error)
        }
        await redis.close()
        pool.close()
        return try result.get()
    }

    /// The document of `GET /openapi.json`, or of `GET /openapi/compatibility.json`.
    package static func document(compatibility: Bool) async throws -> [UInt8] {
        try await Self.with { services in
            guard compatibility else { return JSONWriter.bytes(of: APIRouter.document(services)) }
            return JSONWriter.bytes(of: CompatibilityRouter.document(services, environment: .production))
        }
    }

    private static func services(
        _ redis: RedisClient,
        _ pool: PostgresPool,
        _ logger: Logger
    ) throws -> APIServices {
        let now: @Sendable () -> Timestamp = { Timestamp(seconds: 0) }
        let base = GatewayBase(
            database: Database(pool), live: Live(redis),
            catalogs: CatalogRegister(try CatalogParser.parse([("none", "types: {}")]), now: now), now: now,
            logger: logger)
        let revocations = RevocationRegister(
            store: base.database.revocations, live: base.live, logger: logger)
        let tickets = SocketTickets(base.live, revocations: nil, now: now)
        let verifier = TokenVerifier(secrets: [], keySet: nil, rules: TokenRules(), now: now)
        return APIServices(
            base,
            identity: IdentityServices(
                credentials: CredentialResolver(verifier: verifier, tickets: tickets, cookie: nil),
                tickets: tickets, revocations: revocations),
            inbox: InboxServices(base),
            users: UserServices(base, revocations: revocations),
            jobs: JobServices(base),
            metrics: PrometheusRegistry())
    }
}
