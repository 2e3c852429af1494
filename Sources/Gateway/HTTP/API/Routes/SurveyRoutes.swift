// Carillon · SurveyRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// How much waits where, and who works, for admins: `/v1/admin/streams` and `/v1/admin/nodes`.
struct SurveyRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("admin/streams", use: self.streams)
        group.get("admin/nodes", use: self.nodes)
    }

    private func streams(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        let streams = try await self.services.survey.streams()
        let now = self.services.now()
        return Response.object { writer in
            writer.key("streams")
            writer.beginArray()
            for stream in streams {
                writer.beginObject()
                writer.member("name", stream.name)
                writer.member("length", stream.length)
                writer.key("lag")
                if let lag = stream.lag { writer.integer(lag) } else { writer.null() }
                writer.member("pending", stream.pending)
                writer.key("oldest_pending_seconds")
                if let oldest = stream.oldestPending {
                    writer.integer(max(0, (now - oldest).components.seconds))
                } else {
                    writer.null()
                }
                writer.member("retries", stream.retries)
                writer.key("oldest_waiting_seconds")
                if let oldest = stream.waitingSince {
                    writer.integer(max(0, (now - oldest).components.seconds))
                } else {
                    writer.null()
                }
                writer.endObject()
            }
            writer.endArray()
        }
    }

    private func nodes(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        let nodes = try await self.services.survey.nodes()
        let dispatchers = try await self.services.survey.dispatchers()
        return Response.object { writer in
            writer.key("gateways")
            writer.beginArray()
            for node in nodes {
                writer.beginObject()
                writer.member("id", node.id)
                writer.member("alive", node.isAlive)
                writer.key("connections")
                if let connections = node.connections { writer.integer(connections) } else { writer.null() }
                writer.endObject()
            }
            writer.endArray()
            writer.key("dispatchers")
            writer.beginArray()
            for dispatcher in dispatchers {
                writer.beginObject()
                writer.member("name", dispatcher.name)
                writer.member("alive", dispatcher.isAlive)
                writer.member("pending", dispatcher.pending)
                writer.endObject()
            }
            writer.endArray()
        }
    }
}
