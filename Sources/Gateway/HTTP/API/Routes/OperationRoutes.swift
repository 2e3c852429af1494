// Carillon · OperationRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import HTTPTypes
import Hummingbird
import Logging
import Metrics
import NIOCore
import Operations
import Storage
import Synchronization

/// Endpoints for operators: `/healthz`, `/readyz`, `/metrics` and `/openapi.json`.
struct OperationRoutes {
    let base: GatewayBase
    let credentials: CredentialResolver
    let metrics: PrometheusRegistry
    private let log = DependencyLog()

    func add(to routes: Routes) {
        routes.get("healthz", Self.health) { _, _ in Response.object { $0.member("status", "alive") } }
        routes.get("readyz", Self.ready, self.ready)
        routes.get("metrics", Self.metrics, self.metrics)
        routes.get("v1/socket", Self.socket) { _, _ in
            throw Problem(.upgradeRequired, "this is a WebSocket; open it on a connection of its own")
        }
    }

    private static let health = Operation(
        "getHealth", "Whether the process is alive.",
        answers: [.ok("It is.", .object(["status": .constant(.string("alive"))]))])

    private static let socket = Operation(
        "openSocket", "Opens the native WebSocket; docs/sockets.md explains its messages.",
        answers: [Answer(101, "The socket is open."), 426])

    /// `GET /openapi.json`; ``APIRouter`` adds it after all other routes.
    static let describe = Operation("getDescription", "This description.", answers: [.ok("OpenAPI 3.1.", .anyObject)])

    private static let metrics = Operation(
        "getMetrics", "Metrics in Prometheus' text format.",
        answers: [Answer(200, "The metrics.", .string, type: "text/plain")])

    private func metrics(_ request: Request, _ context: APIContext) async throws -> Response {
        // Measured on demand, so that the metrics agree with `/readyz`.
        DependencyMetrics.redis.record(await self.isRedisUp(context) ? 1 : 0)
        DependencyMetrics.postgres.record(await self.isDatabaseUp(context) ? 1 : 0)
        return Response(
            status: .ok,
            headers: [.contentType: "text/plain; version=0.0.4"],
            body: ResponseBody(byteBuffer: ByteBuffer(string: self.metrics.render()))
        )
    }

    private static let readiness = Schema.object([
        "ready": .bool, "redis": .choice("ok", "out of reach"), "postgres": .choice("ok", "out of reach"),
        "key_set?": .constant(.string("not read yet")),
    ])
    private static let ready = Operation(
        "getReadiness", "Whether Redis and PostgreSQL are reachable, and tokens can be verified.",
        answers: [.ok("All of it.", readiness), Answer(503, "Not all of it.", readiness)])

    /// Reports which store is unreachable, and whether the gateway lacks keys to check tokens.
    ///
    /// The reason may contain hosts and roles, so it is only logged.
    private func ready(_ request: Request, _ context: APIContext) async throws -> Response {
        let isRedisUp = await self.isRedisUp(context)
        let isDatabaseUp = await self.isDatabaseUp(context)
        let hasKeys = self.credentials.isReady
        let isReady = isRedisUp && isDatabaseUp && hasKeys
        return Response.object(status: isReady ? .ok : .serviceUnavailable) { writer in
            writer.member("ready", isReady)
            writer.member("redis", isRedisUp ? "ok" : "out of reach")
            writer.member("postgres", isDatabaseUp ? "ok" : "out of reach")
            if !hasKeys { writer.member("key_set", "not read yet") }
        }
    }

    private func isRedisUp(_ context: APIContext) async -> Bool {
        // Not PING: with a full disk Redis refuses it like a write, but inboxes and sockets still
        // work.
        await self.isUp("redis", context) { try await self.base.live.connection.send("TIME", timeout: .seconds(1)) }
    }

    private func isDatabaseUp(_ context: APIContext) async -> Bool {
        await self.isUp("postgres", context) {
            _ = try await self.base.database.pool.query("SELECT 1", timeout: .seconds(1))
        }
    }

    private func isUp(_ name: String, _ context: APIContext, _ check: () async throws -> Void) async -> Bool {
        do {
            try await check()
            self.log.record(name, fault: nil, context.logger)
            return true
        } catch {
            self.log.record(name, fault: "\(error)", context.logger)
            return false
        }
    }
}

/// Logs only when a store becomes unreachable or reachable.
private final class DependencyLog: Sendable {
    private let faults = Mutex<[String: String]>([:])

    func record(_ name: String, fault: String?, _ logger: Logger) {
        let isNew = self.faults.withLock { faults in
            defer { faults[name] = fault }
            return faults[name] != fault
        }
        guard isNew else { return }
        guard let fault else { return logger.info("\(name) answers again") }
        logger.warning("\(name) is out of reach", metadata: ["error": "\(fault)"])
    }
}

/// Gauges of the stores' reachability.
enum DependencyMetrics {
    static let redis = Gauge(label: "carillon.dependency.up", dimensions: [("dependency", "redis")])
    static let postgres = Gauge(label: "carillon.dependency.up", dimensions: [("dependency", "postgres")])
}
