// Carillon · AllowanceInboxRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Protocols
import Storage

/// The family-finance app's `/api/v1/notifications`.
struct AllowanceInboxRoutes {
    let services: APIServices
    private var types: CodedTypes { CodedTypes(self.services.catalog.all) }
    private var inbox: InboxKeeper { InboxKeeper(services: self.services) }

    func add(to group: RouterGroup<APIContext>) {
        group.get(use: self.list)
        group.get("unread-count", use: self.unreadCount)
        group.post("read", use: self.readMany)
        group.post("test", use: self.sendTest)
        group.delete(use: self.deleteRead)
        group.get(":id", use: self.find)
        group.patch(":id/read", use: self.read)
        group.delete(":id", use: self.delete)
    }

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let parameters = try RequestQuery(of: request)
        let query = try PageQuery.byPage(parameters)
        var filter = InboxStore.Filter(limit: query.limit, unreadOnly: query.unreadOnly)
        if let text = parameters["type"], !text.isEmpty {
            guard let type = self.types.find(text) else {
                throw Problem(
                    .badRequest,
                    "invalid query parameters",
                    faults: [JobFault("type", "is not a code in the catalog")]
                )
            }
            filter.type = type.name
        }
        let page = try await self.services.inbox.page(user: user, filter: filter, offset: query.offset)
        return Response.object { writer in
            AllowanceShape.write(
                page,
                of: query,
                types: { self.services.catalog[$0] },
                now: self.services.now(),
                to: &writer
            )
        }
    }

    private func unreadCount(_ request: Request, _ context: APIContext) async throws -> Response {
        let unread = try await self.inbox.unread(user: try context.user())
        return Response.object { writer in
            writer.member("count", unread)
        }
    }

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        self.answer(try await self.inbox.find(user: try context.user(), id: try InboxKeeper.id(context)))
    }

    private func read(_ request: Request, _ context: APIContext) async throws -> Response {
        self.answer(try await self.inbox.markRead(user: try context.user(), id: try InboxKeeper.id(context)))
    }

    private func answer(_ notification: Notification) -> Response {
        var writer = JSONWriter(capacity: 512)
        CamelCaseShape.write(
            notification,
            code: self.services.catalog[notification.type]?.code,
            now: self.services.now(),
            to: &writer
        )
        return Response.json(writer)
    }

    /// Missing or null `notificationIds` mean all; an empty array means none.
    private func readMany(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await RequestFields.read(request)
        guard fields.isPresent else { throw Problem(.badRequest, "a JSON object is required") }
        let ids = fields.notifications("notificationIds")
        try fields.finish()
        let change = try await self.services.inboxService.markRead(user: user, ids: ids)
        return Response.object { writer in
            writer.member("markedCount", change.ids.count)
        }
    }

    private func delete(_ request: Request, _ context: APIContext) async throws -> Response {
        _ = try await self.inbox.delete(user: try context.user(), id: try InboxKeeper.id(context))
        return Answer.noContent
    }

    private func deleteRead(_ request: Request, _ context: APIContext) async throws -> Response {
        let change = try await self.services.inboxService.delete(user: try context.user(), id: nil)
        return Response.object { writer in
            writer.member("deletedCount", change.ids.count)
        }
    }

    /// `SendTestNotificationDto`, for operators.
    private func sendTest(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireService()
        var fields = try await RequestFields.read(request)
        let user = fields.text("userId", limit: JobLimits.user, isRequired: true)
        let code = fields.integer("type", isRequired: true)
        let title = fields.text("title", limit: JobLimits.title, isRequired: true)
        let body = fields.text("body", limit: JobLimits.body)
        let type = code.flatMap { self.types[$0] }
        if code != nil, type == nil { fields.fault("type", "is not a code in the catalog") }
        try fields.finish()
        guard let user, let title, let type else { throw Problem(.badRequest, "fields are missing") }
        let id = try await JobSender(services: self.services)
            .send(type, [("user", user), ("title", title), ("body", body ?? "")])
        return Response.object(status: .accepted) { writer in
            writer.member("id", id)
        }
    }
}
