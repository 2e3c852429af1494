// Carillon · SurveyRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
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
                            "lane": .lane,
                            "provider": .string.orNull("Null for jobs."),
                            "length": .count,
                            "lag": .count.orNull,
                            "pending": .count,
                            "oldest_seconds": .count.orNull("The age of the oldest entry."),
                            "oldest_pending_seconds": .count.orNull,
                            "consumers": .count,
                            "retries": .count,
                            "overdue_seconds": .count.orNull(
                                "How long the first delivery that waits for a retry or is held back has been due."),
                            "waited_seconds": .count.orNull(
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
            writer.array("streams", streams) { StreamShape($1, now: now).write(to: &$0) }
        }
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
                            "version": .string.orNull,
                            "started_at": .time.orNull,
                            "alive": .bool,
                            "connections": .count.orNull(
                                "Sockets and event streams at the last lease renewal, every five seconds; null "
                                    + "if unknown."
                            ),
                        ]), max: 100_000),
                    "dispatchers": .list(
                        of: .object([
                            "name": .string,
                            "version": .string.orNull,
                            "started_at": .time.orNull,
                            "alive": .bool,
                            "pending": .count,
                        ]), max: 100_000),
                ]))
        ])

    private func nodes(_ request: Request, _ context: APIContext) async throws -> Response {
        let nodes = try await self.base.live.survey.nodes()
        let dispatchers = try await self.base.live.survey.dispatchers()
        return Response.object { writer in
            writer.array("gateways", nodes) { writer, node in
                writer.beginObject()
                writer.member("id", node.id)
                writer.member("version", node.process?.version)
                writer.member("started_at", node.process?.startedAt.rfc3339)
                writer.member("alive", node.isAlive)
                writer.member("connections", node.connections)
                writer.endObject()
            }
            writer.array("dispatchers", dispatchers) { writer, dispatcher in
                writer.beginObject()
                writer.member("name", dispatcher.name)
                writer.member("version", dispatcher.process?.version)
                writer.member("started_at", dispatcher.process?.startedAt.rfc3339)
                writer.member("alive", dispatcher.isAlive)
                writer.member("pending", dispatcher.pending)
                writer.endObject()
            }
        }
    }
}
