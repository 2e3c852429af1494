// Carillon · OperationsServer.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird
import Logging
import NIOCore
import Postgres
import Redis
import ServiceLifecycle
import Telemetry

/// The dispatcher's listener for operators: `/healthz`, `/readyz`, `/metrics`.
enum OperationsServer {
    static func make(
        host: String,
        port: Int,
        metrics: PrometheusRegistry,
        redis: RedisConnection,
        pool: PostgresPool,
        eventLoops: any EventLoopGroup,
        logger: Logger
    ) -> any Service {
        let router = Router()
        router.get("healthz") { _, _ in "alive\n" }
        router.get("readyz") { _, _ -> Response in
            var faults: [String] = []
            do throws(RedisError) {
                try await redis.send("PING", timeout: .seconds(1))
            } catch {
                faults.append("redis: \(error.code.rawValue)")
            }
            do throws(PostgresError) {
                try await pool.query("SELECT 1", timeout: .seconds(1))
            } catch {
                faults.append("postgres: \(error.code.rawValue)")
            }
            let text = faults.isEmpty ? "ready" : faults.joined(separator: ", ")
            return Response(
                status: faults.isEmpty ? .ok : .serviceUnavailable,
                body: ResponseBody(byteBuffer: ByteBuffer(string: text + "\n"))
            )
        }
        router.get("metrics") { _, _ in
            Response(
                status: .ok,
                headers: [.contentType: "text/plain; version=0.0.4"],
                body: ResponseBody(byteBuffer: ByteBuffer(string: metrics.render()))
            )
        }
        return Application(
            router: router,
            configuration: .init(address: .hostname(host, port: port), serverName: nil),
            onServerRunning: { channel in
                Terminal.line("ready http://\(host):\(channel.localAddress?.port ?? port)")
            },
            eventLoopGroupProvider: .shared(eventLoops),
            logger: logger
        )
    }
}
