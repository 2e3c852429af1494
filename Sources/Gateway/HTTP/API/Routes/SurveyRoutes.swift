// Carillon · SurveyRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Backlogs and live processes, for admins: `/v1/admin/streams` and `/v1/admin/nodes`.
struct SurveyRoutes {
    let base: GatewayBase

    func add(to routes: Routes) {
        routes.get("admin/streams", Self.streams, self.streams)
        routes.get("admin/nodes", Self.nodes, self.nodes)
    }

    private static let streams = Operation(
        "listStreams",
        "Returns the backlogs of the streams.",
        scope: .admin,
        answers: [
            .ok(
                "The current state in Redis.",
                .object([
                    "streams": .list(
                        of: .object([
                            "name": .string,
                            "length": .count,
                            "lag": .count.orNull,
                            "pending": .count,
                            "oldest_pending_seconds": .count.orNull,
                            "retries": .count,
                            "oldest_waiting_seconds": .count.orNull(
                                "The age of the oldest entry since it was first appended, whether queued, in "
                                    + "flight, waiting for a retry or held back. Null without entries."
                            ),
                        ]), max: 100)
                ]))
        ])

    private func streams(_ request: Request, _ context: APIContext) async throws -> Response {
        let streams = try await self.base.live.survey.streams()
        let now = try await self.base.live.survey.time()
        return Response.object { writer in
            writer.array("streams", streams) { writer, stream in
                writer.beginObject()
                writer.member("name", stream.name)
                writer.member("length", stream.length)
                writer.member("lag", stream.lag)
                writer.member("pending", stream.pending)
                writer.member("oldest_pending_seconds", stream.oldestPending.map { Self.seconds(since: $0, now) })
                writer.member("retries", stream.retries)
                writer.member("oldest_waiting_seconds", stream.waitingSince.map { Self.seconds(since: $0, now) })
                writer.endObject()
            }
        }
    }

    private static func seconds(since oldest: Timestamp, _ now: Timestamp) -> Int64 {
        max(0, (now - oldest).components.seconds)
    }

    private static let nodes = Operation(
        "listNodes",
        "Lists gateways and dispatchers.",
        scope: .admin,
        answers: [
            .ok(
                "The current state in Redis.",
                .object([
                    "gateways": .list(
                        of: .object([
                            "id": .string,
                            "alive": .bool,
                            "connections": .count.orNull(
                                "Sockets and event streams at the last lease renewal, every five seconds; null "
                                    + "if unknown."
                            ),
                        ]), max: 100_000),
                    "dispatchers": .list(
                        of: .object(["name": .string, "alive": .bool, "pending": .count]), max: 100_000),
                ]))
        ])

    private func nodes(_ request: Request, _ context: APIContext) async throws -> Response {
        let nodes = try await self.base.live.survey.nodes()
        let dispatchers = try await self.base.live.survey.dispatchers()
        return Response.object { writer in
            writer.array("gateways", nodes) { writer, node in
                writer.beginObject()
                writer.member("id", node.id)
                writer.member("alive", node.isAlive)
                writer.member("connections", node.connections)
                writer.endObject()
            }
            writer.array("dispatchers", dispatchers) { writer, dispatcher in
                writer.beginObject()
                writer.member("name", dispatcher.name)
                writer.member("alive", dispatcher.isAlive)
                writer.member("pending", dispatcher.pending)
                writer.endObject()
            }
        }
    }
}
