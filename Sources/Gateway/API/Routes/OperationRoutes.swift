// Carillon · OperationRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import HTTPTypes
import Hummingbird
import JSON
import NIOCore
import Postgres
import Redis
import Telemetry

/// What operators and their tools ask: `/healthz`, `/readyz`, `/metrics`, `/openapi.json`.
struct OperationRoutes {
    let services: APIServices

    func add(to router: Router<APIContext>) {
        router.get("healthz") { _, _ in
            Response.object { writer in
                writer.member("status", "alive")
            }
        }
        router.get("readyz", use: self.ready)
        router.get("metrics") { _, _ -> Response in
            // Measured by asking, so that whoever watches the metrics sees what `/readyz` says.
            DependencyMetrics.redis.record(await self.redisFault() == nil ? 1 : 0)
            DependencyMetrics.postgres.record(await self.databaseFault() == nil ? 1 : 0)
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

    private func ready(_ request: Request, _ context: APIContext) async throws -> Response {
        let redis = await self.redisFault()
        let database = await self.databaseFault()
        let isReady = redis == nil && database == nil
        return Response.object(status: isReady ? .ok : .serviceUnavailable) { writer in
            writer.member("ready", isReady)
            writer.member("redis", redis ?? "ok")
            writer.member("postgres", database ?? "ok")
        }
    }

    private func redisFault() async -> String? {
        await Self.fault { try await self.services.redis.send("PING", timeout: .seconds(1)) }
    }

    private func databaseFault() async -> String? {
        await Self.fault { try await self.services.checkDatabase() }
    }

    private static func fault(_ check: () async throws -> Void) async -> String? {
        do {
            try await check()
            return nil
        } catch let error as RedisError {
            return "\(error.code.rawValue): \(error.message ?? "no reason given")"
        } catch let error as PostgresError {
            return "\(error.code.rawValue): \(error.message ?? error.sqlState ?? "no reason given")"
        } catch {
            return "out of reach"
        }
    }
}
