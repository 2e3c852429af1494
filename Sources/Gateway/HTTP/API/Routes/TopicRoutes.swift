// Carillon · TopicRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Topic subscriptions, by users and by services: `/v1/topics`.
struct TopicRoutes {
    private static let one: Fields = ["topic": .text(JobLimits.name)("A topic, percent-encoded.")]
    private static let member = one + ["user": .text(JobLimits.user)("A user, percent-encoded.")]

    let users: UserServices

    func add(to routes: Routes) {
        routes.put("topics/:topic/subscription", Self.subscribe, self.subscribe)
        routes.delete("topics/:topic/subscription", Self.unsubscribe, self.unsubscribe)
        routes.put("topics/:topic/members/:user", Self.addMember, self.addMember)
        routes.delete("topics/:topic/members/:user", Self.removeMember, self.removeMember)
    }

    private func topic(_ context: APIContext) throws -> String {
        try context.pathText("topic", limit: JobLimits.name)
    }

    private static let subscribe = Operation(
        "subscribe",
        "Subscribes the caller to a topic that the catalog opens to users.",
        path: one,
        answers: [.done, 403, 422])

    private func subscribe(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let topic = try self.topic(context)
        guard self.users.base.catalog.isOpen(topic: topic) else {
            throw Problem(.forbidden, "users cannot subscribe to this topic themselves")
        }
        let limit = UserFields.mostTopics
        guard try await self.users.topics.subscribe(user: user, topic: topic, limit: limit) else {
            let reason = "exceeds the limit of \(limit) subscriptions; remove one first"
            throw Problem(.unprocessableContent, reason, faults: [JobFault("topic", reason)])
        }
        return Response(status: .noContent)
    }

    private static let unsubscribe = Operation(
        "unsubscribeFromTopic",
        "Unsubscribes the caller.",
        path: one,
        answers: [.done])

    /// A user may leave any topic, even one that is closed now.
    private func unsubscribe(_ request: Request, _ context: APIContext) async throws -> Response {
        try await self.users.topics.unsubscribe(user: try context.user(), topic: try self.topic(context))
        return Response(status: .noContent)
    }

    private static let addMember = Operation(
        "addMember",
        "Subscribes a user to a topic.",
        scope: .service,
        path: member,
        answers: [.done])

    private func addMember(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.pathText("user", limit: JobLimits.user)
        _ = try await self.users.topics.subscribe(user: user, topic: try self.topic(context))
        return Response(status: .noContent)
    }

    private static let removeMember = Operation(
        "removeMember",
        "Unsubscribes a user from a topic.",
        scope: .service,
        path: member,
        answers: [.done])

    private func removeMember(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.pathText("user", limit: JobLimits.user)
        try await self.users.topics.unsubscribe(user: user, topic: try self.topic(context))
        return Response(status: .noContent)
    }
}
