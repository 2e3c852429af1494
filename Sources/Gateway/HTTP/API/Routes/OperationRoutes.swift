// Carillon · OperationRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import Operations
import Synchronization

/// What operators and their tools ask: `/healthz`, `/readyz`, `/metrics`, `/openapi.json`.
struct OperationRoutes {
    let services: APIServices
    private let log = DependencyLog()

    init(services: APIServices) {
        self.services = services
    }

    func add(to router: Router<APIContext>) {
        router.get("healthz") { _, _ in
            Response.object { writer in
                writer.member("status", "alive")
            }
        }
        router.get("readyz", use: self.ready)
        router.get("metrics") { _, context -> Response in
            // Measured by asking, so that whoever watches the metrics sees what `/readyz` says.
            DependencyMetrics.redis.record(await self.isRedisUp(context) ? 1 : 0)
            DependencyMetrics.postgres.record(await self.isDatabaseUp(context) ? 1 : 0)
            return Response(
                status: .ok,
                headers: [.contentType: "text/plain; version=0.0.4"],
                body: ResponseBody(byteBuffer: ByteBuffer(string: self.services.metrics.render()))
            )
        }
        DescriptionRoute.add(try? OpenAPIDocument.make(), at: "openapi.json", to: router)
        router.get("v1/socket") { _, _ -> Response in
            throw Problem(.upgradeRequired, "this is a WebSocket; open it on a connection of its own")
        }
    }

    /// Says which store is out of reach; the reason may name hosts and roles, so it is only logged.
    private func ready(_ request: Request, _ context: APIContext) async throws -> Response {
        let isRedisUp = await self.isRedisUp(context)
        let isDatabaseUp = await self.isDatabaseUp(context)
        let isReady = isRedisUp && isDatabaseUp
        return Response.object(status: isReady ? .ok : .serviceUnavailable) { writer in
            writer.member("ready", isReady)
            writer.member("redis", isRedisUp ? "ok" : "out of reach")
            writer.member("postgres", isDatabaseUp ? "ok" : "out of reach")
        }
    }

    private func isRedisUp(_ context: APIContext) async -> Bool {
        await self.isUp("redis", context) { try await self.services.redis.send("PING", timeout: .seconds(1)) }
    }

    private func isDatabaseUp(_ context: APIContext) async -> Bool {
        await self.isUp("postgres", context) { try await self.services.checkDatabase() }
    }

    private func isUp(_ name: String, _ context: APIContext, _ check: () async throws -> Void) async -> Bool {
        do {
            try await check()
            self.log.note(name, fault: nil, context.logger)
            return true
        } catch {
            self.log.note(name, fault: "\(error)", context.logger)
            return false
        }
    }
}

/// Logs when a store stops answering and when it answers again, and not each time that it is asked.
private final class DependencyLog: Sendable {
    private let faults = Mutex<[String: String]>([:])

    func note(_ name: String, fault: String?, _ logger: Logger) {
        let isNew = self.faults.withLock { faults in
            defer { faults[name] = fault }
            return faults[name] != fault
        }
        guard isNew else { return }
        guard let fault else { return logger.info("\(name) answers again") }
        logger.warning("\(name) is out of reach", metadata: ["error": "\(fault)"])
    }
}
