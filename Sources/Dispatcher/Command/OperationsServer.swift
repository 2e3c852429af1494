// Carillon · OperationsServer.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import CoreMetrics
import Hummingbird
import Logging
import Metrics
import NIOCore
import Operations
import ServiceLifecycle
import Storage

/// The dispatcher's listener for operators: `/healthz`, `/readyz`, `/metrics`.
enum OperationsServer {
    /// Makes the server, which answers `/readyz` with 503 until the start has finished.
    static func make(
        _ settings: DispatcherSettings,
        _ metrics: PrometheusRegistry,
        _ clients: DispatcherComposition.Clients,
        _ startup: Startup,
        logger: Logger
    ) -> any Service {
        let (live, pool) = (clients.live, clients.database.pool)
        let (host, port) = (settings.metricsHost, settings.metricsPort)
        let router = Router()
        router.get("healthz") { _, _ in "alive\n" }
        router.get("readyz") { _, _ -> Response in
            var faults = startup.isFinished ? [] : ["starting"]
            if let fault = await Self.redisFault(live) { faults.append("redis: \(fault)") }
            if let fault = await Self.databaseFault(pool) { faults.append("postgres: \(fault)") }
            let text = faults.isEmpty ? "ready" : faults.joined(separator: ", ")
            return Response(
                status: faults.isEmpty ? .ok : .serviceUnavailable,
                body: ResponseBody(byteBuffer: ByteBuffer(string: text + "\n"))
            )
        }
        let redisUp = Gauge(label: "carillon.dependency.up", dimensions: [("dependency", "redis")])
        let databaseUp = Gauge(label: "carillon.dependency.up", dimensions: [("dependency", "postgres")])
        router.get("metrics") { _, _ -> Response in
            // Checked at each scrape, so that metrics and `/readyz` agree.
            redisUp.record(await Self.redisFault(live) == nil ? 1 : 0)
            databaseUp.record(await Self.databaseFault(pool) == nil ? 1 : 0)
            return Response(
                status: .ok,
                headers: [.contentType: "text/plain; version=0.0.4"],
                body: ResponseBody(byteBuffer: ByteBuffer(string: metrics.render()))
            )
        }
        return Application(
            router: router,
            configuration: .init(address: .hostname(host, port: port), serverName: nil),
            onServerRunning: { channel in startup.bound(to: channel.localAddress?.port ?? port) },
            eventLoopGroupProvider: .shared(clients.eventLoops),
            logger: logger
        )
    }

    private static func redisFault(_ live: Live) async -> String? {
        do throws(RedisError) {
            // A write, because Redis answers PING even when out of memory; XX leaves the set
            // unchanged.
            try await live.connection.send(
                "ZADD", .text(live.keys.dispatchers), "XX", 0, "", timeout: .seconds(1))
            return nil
        } catch {
            if error.isOutOfMemory { return "out of memory" }
            return error.serverCode.map { String($0) } ?? error.code.rawValue
        }
    }

    private static func databaseFault(_ pool: PostgresPool) async -> String? {
        do throws(PostgresError) {
            try await pool.query("SELECT 1", timeout: .seconds(1))
            return nil
        } catch {
            return error.code.rawValue
        }
    }
}
