// Carillon · TopicRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Subscriptions to topics, by users themselves and by services: `/v1/topics`.
struct TopicRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.put("topics/:topic/subscription", use: self.subscribe)
        group.delete("topics/:topic/subscription", use: self.unsubscribe)
        group.put("topics/:topic/members/:user", use: self.addMember)
        group.delete("topics/:topic/members/:user", use: self.removeMember)
    }

    private func topic(_ context: APIContext) throws -> String {
        try context.pathText("topic", limit: JobLimits.name)
    }

    private func subscribe(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let topic = try self.topic(context)
        guard self.services.catalog.isOpen(topic: topic) else {
            throw Problem(.forbidden, "users cannot subscribe to this topic themselves")
        }
        let limit = UserFields.mostTopics
        guard try await self.services.topics.subscribe(user: user, topic: topic, limit: limit) else {
            let reason = "would be one more than \(limit) subscriptions"
            throw Problem(.unprocessableContent, reason, faults: [JobFault("topic", reason)])
        }
        return Response(status: .noContent)
    }

    /// Leaving needs no leave: also a topic that was closed since may be left.
    private func unsubscribe(_ request: Request, _ context: APIContext) async throws -> Response {
        try await self.services.topics.unsubscribe(user: try context.user(), topic: try self.topic(context))
        return Response(status: .noContent)
    }

    private func addMember(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        let user = try context.pathText("user", limit: JobLimits.user)
        _ = try await self.services.topics.subscribe(user: user, topic: try self.topic(context))
        return Response(status: .noContent)
    }

    private func removeMember(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        let user = try context.pathText("user", limit: JobLimits.user)
        try await self.services.topics.unsubscribe(user: user, topic: try self.topic(context))
        return Response(status: .noContent)
    }
}
