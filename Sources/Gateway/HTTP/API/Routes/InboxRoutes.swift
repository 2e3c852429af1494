// Carillon · InboxRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Hummingbird
import Storage

/// The inbox: `/v1/notifications`.
struct InboxRoutes {
    private static let largestPage = 100
    private static let changesLimit = 500
    private static let largestChange = 1_000

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
        var query = QueryFields(request, allowing: ["limit", "cursor", "unread_only", "type", "since_version"])
        let limit = Int(query.integer("limit", in: 1...Int64(Self.largestPage)) ?? 20)
        let since = query.integer("since_version", in: 0...Int64.max)
        // One more than asked for tells whether there is a next page.
        var filter = InboxStore.Filter(limit: limit + 1)
        if let cursor = query.text("cursor", limit: JobLimits.id) {
            filter.before = NotificationID(cursor)
            if filter.before == nil { query.fault("cursor", "is not one of ours") }
        }
        filter.unreadOnly = query.flag("unread_only")
        filter.type = query.text("type", limit: JobLimits.name)
        try query.finish()
        let known = InboxTag.known(request)
        if let since { return try await self.changes(user, since: since, known: known) }
        // Who has a tag gets no page, or one that has changed.
        let isKept = known == nil && filter.before == nil && filter.type == nil
        let selection = InboxPageCache.Selection(limit: limit, unreadOnly: filter.unreadOnly)
        let kept = isKept ? self.services.inboxPages.page(of: user, selection) : nil
        if let kept {
            let state = try await self.services.inbox.state(of: user)
            if kept.state == state {
                InboxPageMetrics.kept.increment()
                return InboxTag.answer(state, unless: nil) { .json(kept.json) }
            }
        }
        if isKept { (kept == nil ? InboxPageMetrics.read : InboxPageMetrics.changed).increment() }
        let page = try await self.services.inbox.page(user: user, filter: filter, unless: known)
        return try InboxTag.answer(page.state, unless: known) {
            let json = try self.json(page, limit: limit)
            if isKept {
                self.services.inboxPages.keep(.init(state: page.state, json: json), of: user, selection)
            }
            return .json(json)
        }
    }

    private func json(_ page: InboxStore.Page, limit: Int) throws -> [UInt8] {
        var writer = JSONWriter(capacity: Self.capacity(page))
        writer.beginObject()
        writer.key("notifications")
        writer.beginArray()
        for notification in page.notifications.prefix(limit) { try CanonicalShape.write(notification, to: &writer) }
        writer.endArray()
        writer.key("next_cursor")
        let hasMore = page.notifications.count > limit
        writer.string(hasMore ? page.notifications[limit - 1].id.description : nil)
        self.write(page.state, to: &writer)
        writer.endObject()
        return writer.bytes
    }

    /// Bytes that most pages of that many rows take.
    private static func capacity(_ page: InboxStore.Page) -> Int { 256 + 512 * page.notifications.count }

    /// What changed since a version; a client that is too far behind for one answer begins afresh.
    private func changes(_ user: String, since: Int64, known: InboxStore.State?) async throws -> Response {
        let limit = Self.changesLimit
        let page = try await self.services.inbox.changes(user: user, since: since, limit: limit + 1, unless: known)
        let state = page.state
        let isReset = since < state.floor || since > state.version || page.notifications.count > limit
        let found = isReset ? [] : page.notifications
        return try InboxTag.answer(state, unless: known) {
            try Response.object(capacity: Self.capacity(page)) { writer in
                writer.member("reset", isReset)
                writer.key("notifications")
                writer.beginArray()
                for notification in found where !notification.isDeleted {
                    try CanonicalShape.write(notification, to: &writer)
                }
                writer.endArray()
                writer.key("deleted")
                writer.beginArray()
                for notification in found where notification.isDeleted {
                    writer.string(notification.id.description)
                }
                writer.endArray()
                writer.member("next_version", state.version)
                self.write(state, to: &writer)
            }
        }
    }

    private func write(_ state: InboxStore.State, to writer: inout JSONWriter) {
        writer.member("unread", state.unread)
        writer.member("total", state.total)
        writer.member("version", state.version)
    }

    private func unreadCount(_ request: Request, _ context: APIContext) async throws -> Response {
        let state = try await self.services.inbox.state(of: try context.user())
        return InboxTag.answer(state, unless: InboxTag.known(request)) {
            Response.object { self.write(state, to: &$0) }
        }
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
            writer.member("changed", change.ids.count)
            writer.member("unread", change.unread)
            writer.member("version", change.version)
        }
    }

    private func read(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try self.id(context)
        let change = try await self.services.inboxService.markRead(user: user, ids: [id])
        // Nothing changed: it was read before, or there is no such notification.
        if change.isEmpty, try await self.services.inbox.find(user: user, id: id) == nil { throw Problem.notFound }
        return self.answer(change)
    }

    private func readMany(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(["ids", "all"])
        let isAll = body.flag("all") == true
        var ids: [NotificationID]?
        if let value = body.value["ids"], value != .null {
            let parsed = value.array?.compactMap { $0.string.flatMap { NotificationID($0) } } ?? []
            if parsed.isEmpty || parsed.count != value.array?.count || parsed.count > Self.largestChange {
                body.fault("ids", "must be an array of 1 to \(Self.largestChange) notification ids")
            }
            if isAll { body.fault("ids", "does not go with all") }
            ids = parsed
        } else if !isAll {
            body.fault("ids", "is missing; give ids, or all: true")
        }
        try body.finish()
        return self.answer(try await self.services.inboxService.markRead(user: user, ids: ids))
    }

    private func opened(_ request: Request, _ context: APIContext) async throws -> Response {
        let id = try self.id(context)
        guard try await self.services.inboxService.markOpened(user: try context.user(), id: id) else {
            throw Problem.notFound
        }
        return Response(status: .noContent)
    }

    private func delivered(_ request: Request, _ context: APIContext) async throws -> Response {
        let id = try self.id(context)
        guard try await self.services.inboxService.markDelivered(user: try context.user(), id: id) else {
            throw Problem.notFound
        }
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
