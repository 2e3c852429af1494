// Carillon · InboxRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird
import JSON
import Model
import Services
import Shapes
import Stores

/// The inbox: `/v1/notifications`.
struct InboxRoutes {
    private static let largestPage = 100
    private static let changesLimit = 500

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        let inbox = group.group("notifications")
        inbox.get(use: self.list)
        inbox.get("unread-count", use: self.unreadCount)
        inbox.post("read", use: self.readMany)
        inbox.delete(use: self.deleteRead)
        inbox.get(":id", use: self.find)
        inbox.post(":id/read", use: self.read)
        inbox.post(":id/opened", use: self.opened)
        inbox.post(":id/delivered", use: self.delivered)
        inbox.delete(":id", use: self.delete)
    }

    private func id(_ context: APIContext) throws -> NotificationID {
        guard let id = NotificationID(try context.parameters.require("id")) else { throw Problem.notFound }
        return id
    }

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let query = request.uri.queryParameters
        if let since = query["since_version"] {
            guard let version = Int64(since), version >= 0 else {
                throw Problem(.badRequest, "since_version must be a whole number from 0")
            }
            return try await self.changes(user, since: version)
        }
        guard let limit = Int(query["limit"] ?? "20"), (1...Self.largestPage).contains(limit) else {
            throw Problem(.badRequest, "limit must be a whole number from 1 to \(Self.largestPage)")
        }
        // One more than asked for tells whether there is a next page.
        var filter = InboxStore.Filter(limit: limit + 1)
        if let cursor = query["cursor"] {
            guard let id = NotificationID(cursor) else { throw Problem(.badRequest, "cursor is not one of ours") }
            filter.before = id
        }
        switch query["unread_only"] {
        case nil, "false": break
        case "true": filter.unreadOnly = true
        default: throw Problem(.badRequest, "unread_only must be true or false")
        }
        filter.type = query["type"].map { String($0) }
        let state = try await self.services.inbox.states([user]).first ?? InboxStore.State()
        let found = try await self.services.inbox.list(user: user, filter: filter)
        return Response.object { writer in
            writer.key("notifications")
            writer.beginArray()
            for notification in found.prefix(limit) { CanonicalShape.write(notification, to: &writer) }
            writer.endArray()
            writer.key("next_cursor")
            writer.string(found.count > limit ? found[limit - 1].id.description : nil)
            self.write(state, to: &writer)
        }
    }

    private func changes(_ user: String, since: Int64) async throws -> Response {
        let state = try await self.services.inbox.states([user]).first ?? InboxStore.State()
        let isReset = since < state.floor || since > state.version
        let found =
            isReset ? [] : try await self.services.inbox.changes(user: user, since: since, limit: Self.changesLimit)
        return Response.object { writer in
            writer.key("reset")
            writer.bool(isReset)
            writer.key("notifications")
            writer.beginArray()
            for notification in found where notification.deletedAt == nil {
                CanonicalShape.write(notification, to: &writer)
            }
            writer.endArray()
            writer.key("deleted")
            writer.beginArray()
            for notification in found where notification.deletedAt != nil {
                writer.string(notification.id.description)
            }
            writer.endArray()
            // The last change may share its version with others beyond the limit; they come again.
            writer.key("next_version")
            writer.integer(found.count == Self.changesLimit ? (found.last?.version ?? since) - 1 : state.version)
            self.write(state, to: &writer)
        }
    }

    private func write(_ state: InboxStore.State, to writer: inout JSONWriter) {
        writer.key("unread")
        writer.integer(state.unread)
        writer.key("total")
        writer.integer(state.total)
        writer.key("version")
        writer.integer(state.version)
    }

    private func unreadCount(_ request: Request, _ context: APIContext) async throws -> Response {
        let state = try await self.services.inbox.states([try context.user()]).first ?? InboxStore.State()
        return Response.object { self.write(state, to: &$0) }
    }

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        guard let notification = try await self.services.inbox.find(user: user, id: try self.id(context)) else {
            throw Problem.notFound
        }
        var writer = JSONWriter()
        CanonicalShape.write(notification, to: &writer)
        return .json(writer)
    }

    private func answer(_ change: InboxStore.Change) -> Response {
        Response.object { writer in
            writer.key("changed")
            writer.integer(change.ids.count)
            writer.key("unread")
            writer.integer(change.unread)
            writer.key("version")
            writer.integer(change.version)
        }
    }

    private func read(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try self.id(context)
        guard try await self.services.inbox.find(user: user, id: id) != nil else { throw Problem.notFound }
        return self.answer(try await self.services.inboxService.markRead(user: user, ids: [id]))
    }

    private func readMany(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request))
        body.allow(["ids", "all"])
        var ids: [NotificationID]?
        if body.flag("all") != true {
            let texts = body.value["ids"]?.strings ?? []
            let parsed = texts.compactMap { NotificationID($0) }
            if parsed.isEmpty || parsed.count != texts.count || parsed.count > 1_000 {
                body.fault("ids", "must be an array of 1 to 1000 notification ids, or give all: true")
            }
            ids = parsed
        }
        try body.finish()
        return self.answer(try await self.services.inboxService.markRead(user: user, ids: ids))
    }

    private func opened(_ request: Request, _ context: APIContext) async throws -> Response {
        let id = try self.id(context)
        let isKnown = try await self.services.inbox.markOpened(
            user: try context.user(),
            id: id,
            at: self.services.now()
        )
        guard isKnown else { throw Problem.notFound }
        return Response(status: .noContent)
    }

    private func delivered(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try self.id(context)
        guard try await self.services.inbox.find(user: user, id: id) != nil else { throw Problem.notFound }
        try await self.services.notifications.markDelivered([(user, id, self.services.now())], via: "client")
        return Response(status: .noContent)
    }

    private func delete(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let change = try await self.services.inboxService.delete(user: user, id: try self.id(context))
        guard !change.isEmpty else { throw Problem.notFound }
        return self.answer(change)
    }

    private func deleteRead(_ request: Request, _ context: APIContext) async throws -> Response {
        self.answer(try await self.services.inboxService.delete(user: try context.user(), id: nil))
    }
}
