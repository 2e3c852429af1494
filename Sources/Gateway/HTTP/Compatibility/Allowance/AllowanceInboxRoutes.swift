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
    private var types: CodedTypes { CodedTypes(self.services.base.catalog.all) }
    private var inbox: CompatibilityInbox { CompatibilityInbox(services: self.services) }

    func add(to routes: Routes) {
        routes.get("", Self.list, self.list)
        routes.get("unread-count", Self.unreadCount, self.unreadCount)
        routes.post("read", Self.readMany, self.readMany)
        routes.post("test", Self.sendTest, self.sendTest)
        routes.delete("", Self.deleteRead, self.deleteRead)
        routes.get(":id", Self.find, self.find)
        routes.patch(":id/read", Self.read, self.read)
        routes.delete(":id", Self.delete, self.delete)
    }

    private static let list = Operation(
        "allowanceListNotifications",
        "Family finance: lists the inbox, newest first.",
        query: [
            "page?": .integer.with("default", .number("1"))(
                "From 1; covers the newest 10,000 notifications."),
            "pageSize?": .integer(from: 1, default: 20)("At most 50."),
            "unreadOnly?": .bool(default: false),
            "type?": .string("The code of a type, or its name in any letter case."),
        ],
        answers: [
            .ok(
                "A page.",
                .object([
                    "notifications": .list(of: .allowanceNotification, max: 50),
                    "unreadCount": .count,
                    "totalCount": .count("The number of matching notifications."),
                    "hasMore": .bool,
                ]))
        ])

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
        let page = try await self.services.inbox.store.page(user: user, filter: filter, offset: query.offset)
        return Response.object { writer in
            AllowanceShape.write(
                page,
                of: query,
                types: { self.services.base.catalog[$0] },
                now: self.services.base.now(),
                to: &writer
            )
        }
    }

    private static let unreadCount = Operation(
        "allowanceCountUnread",
        "Family finance: counts unread notifications.",
        answers: [.ok("The count.", .object(["count": .count]))])

    private func unreadCount(_ request: Request, _ context: APIContext) async throws -> Response {
        let unread = try await self.inbox.unread(user: try context.user())
        return Response.object { writer in
            writer.member("count", unread)
        }
    }

    private static let find = Operation(
        "allowanceGetNotification",
        "Family finance: returns a notification.",
        path: InboxRoutes.one,
        answers: [.ok("The notification.", .allowanceNotification), 404])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        self.answer(try await self.inbox.find(user: try context.user(), id: try context.pathID()))
    }

    private static let read = Operation(
        "allowanceMarkRead",
        "Family finance: marks a notification as read.",
        path: InboxRoutes.one,
        answers: [.ok("The notification.", .allowanceNotification), 404])

    private func read(_ request: Request, _ context: APIContext) async throws -> Response {
        self.answer(try await self.inbox.markRead(user: try context.user(), id: try context.pathID()))
    }

    private func answer(_ notification: Notification) -> Response {
        var writer = JSONWriter(capacity: 512)
        CamelCaseShape.write(
            notification,
            code: self.services.base.catalog[notification.type]?.code,
            now: self.services.base.now(),
            to: &writer
        )
        return Response.json(writer)
    }

    private static let readMany = Operation(
        "allowanceMarkManyRead",
        "Family finance: marks notifications as read.",
        body: .object([
            "notificationIds?": .list(of: .uuid, max: 1000).orNull("Absent or null means all, an empty array none.")
        ]),
        answers: [.ok("The number of marked notifications.", .object(["markedCount": .count]))])

    /// Missing or null `notificationIds` mean all; an empty array means none.
    private func readMany(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        guard fields.isPresent else { throw Problem(.badRequest, "a JSON object is required") }
        let ids = fields.notifications("notificationIds")
        try fields.finish()
        let change = try await self.services.inbox.service.markRead(user: user, ids: ids)
        return Response.object { writer in
            writer.member("markedCount", change.ids.count)
        }
    }

    private static let delete = Operation(
        "allowanceDeleteNotification",
        "Family finance: deletes a notification.",
        path: InboxRoutes.one,
        answers: [.done, 404])

    private func delete(_ request: Request, _ context: APIContext) async throws -> Response {
        _ = try await self.inbox.delete(user: try context.user(), id: try context.pathID())
        return Response(status: .noContent)
    }

    private static let deleteRead = Operation(
        "allowanceDeleteRead",
        "Family finance: deletes all read notifications.",
        answers: [.ok("The number of deleted notifications.", .object(["deletedCount": .count]))])

    private func deleteRead(_ request: Request, _ context: APIContext) async throws -> Response {
        let change = try await self.services.inbox.service.delete(user: try context.user(), id: nil)
        return Response.object { writer in
            writer.member("deletedCount", change.ids.count)
        }
    }

    private static let sendTest = Operation(
        "allowanceSendTest",
        "Family finance: sends a test notification, for operators.",
        scope: .service,
        body: .object([
            "userId": .text(JobLimits.user),
            "type": .integer("The code of a type."),
            "title": .text(JobLimits.title),
            "body?": .string(max: JobLimits.body).orNull,
        ]),
        answers: [.accepted("The id of the job.", .object(["id": .uuid]))])

    /// `SendTestNotificationDto`, for operators.
    private func sendTest(_ request: Request, _ context: APIContext) async throws -> Response {
        var fields = try await FieldReader(lenientBody: request)
        let user = fields.text("userId", limit: JobLimits.user, isRequired: true)
        let code = fields.integer("type", isRequired: true)
        let title = fields.text("title", limit: JobLimits.title, isRequired: true)
        let body = fields.text("body", limit: JobLimits.body)
        let type = code.flatMap { self.types[Int($0)] }
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
