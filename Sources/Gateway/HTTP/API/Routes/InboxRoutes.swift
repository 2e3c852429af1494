// Carillon · InboxRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import HTTPTypes
import Hummingbird
import Operations
import Storage

/// The inbox: `/v1/notifications`.
struct InboxRoutes {
    private static let changesLimit = 500

    /// The path of calls about one notification.
    static let one: Fields = ["id": .uuid("A notification of the caller's.")]
    private static let tag: Fields = ["ETag": .string("Identifies the state of the inbox.")]
    private static let unchanged = Answer(304, "The inbox has not changed.", headers: tag)
    static let tooManyRepeatedEvents = Answer(
        429, "The user exceeds the rate limit, or presses buttons or makes notifications unread too often.")

    let inbox: InboxServices

    func add(to routes: Routes) {
        let inbox = routes.group("notifications")
        inbox.get("", Self.list, self.list)
        inbox.get("unread-count", Self.unreadCount, self.unreadCount)
        inbox.post("read", Self.readMany, self.readMany)
        inbox.delete("", Self.deleteRead, self.deleteRead)
        inbox.get(":id", Self.find, self.find)
        inbox.post(":id/read", Self.read, self.read)
        inbox.post(":id/opened", Self.opened, self.opened)
        inbox.post(":id/delivered", Self.delivered, self.delivered)
        inbox.post(":id/actions", Self.act, self.act)
        inbox.delete(":id", Self.delete, self.delete)
    }

    private static let list = Operation(
        "listNotifications",
        "Lists the inbox, newest first, or the changes since a version.",
        query: [
            "limit?": .integer(1...100, default: 20)("The most items."),
            "cursor?": .uuid("`next_cursor` of the previous page."),
            "unread_only?": .bool(default: false)("Only unread notifications."),
            "type?": .text(JobLimits.name)("Only of this type."),
            "category?": .text(JobLimits.name)("Only of this category."),
            "org?": .text(JobLimits.org)("Only of this organisation."),
            "since_version?": .integer(0...9_223_372_036_854_775_807)(
                "Returns at most 500 changes after this version; the other parameters are ignored."),
        ],
        headers: .ifNoneMatch,
        answers: [.ok("The page, or the changes.", .oneOf(.inboxPage, .inboxChanges), headers: tag), unchanged])

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var query = FieldReader(query: request, of: Self.list)
        let limit = query.limit()
        let since = query.integer("since_version", in: 0...Int64.max)
        // One extra row shows whether there is a next page.
        var filter = InboxStore.Filter(limit: limit + 1)
        filter.before = query.cursor()
        filter.unreadOnly = query.flag("unread_only") ?? false
        filter.type = query.text("type", limit: JobLimits.name)
        filter.category = query.text("category", limit: JobLimits.name)
        filter.org = query.text("org", limit: JobLimits.org)
        try query.finish()
        let known = InboxTag.known(request, of: user)
        if let since { return try await self.changes(user, since: since, known: known) }
        // A client with a tag bypasses the cache: it gets 304, or a page that has changed.
        let isKept = known == nil && filter.before == nil && !filter.isOfFeed
        let selection = InboxPageCache.Selection(limit: limit, unreadOnly: filter.unreadOnly)
        let kept = isKept ? self.inbox.pages.page(of: user, selection) : nil
        if let kept {
            let state = try await self.inbox.store.state(of: user)
            if kept.state == state {
                InboxPageMetrics.kept.increment()
                return InboxTag.answer(state, of: user, unless: nil) { .json(kept.json) }
            }
        }
        if isKept { (kept == nil ? InboxPageMetrics.read : InboxPageMetrics.changed).increment() }
        let page = try await self.inbox.store.page(user: user, filter: filter, unless: known)
        return try InboxTag.answer(page.state, of: user, unless: known) {
            let json = try self.json(page, limit: limit)
            if isKept {
                self.inbox.pages.keep(.init(state: page.state, json: json), of: user, selection)
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

    /// The bytes of a typical page with that many rows.
    private static func capacity(_ page: InboxStore.Page) -> Int { 256 + 512 * page.notifications.count }

    /// Answers the changes since a version; `reset` if the client is too far behind.
    private func changes(_ user: String, since: Int64, known: InboxStore.State?) async throws -> Response {
        let limit = Self.changesLimit
        let page = try await self.inbox.store.changes(user: user, since: since, limit: limit + 1, unless: known)
        let state = page.state
        let isReset = since < state.floor || since > state.version || page.notifications.count > limit
        let found = isReset ? [] : page.notifications
        return try InboxTag.answer(state, of: user, unless: known) {
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

    private static let unreadCount = Operation(
        "countUnread",
        "The counts of the inbox.",
        query: [
            "by_category?": .bool(default: false)("Also counts the newest 10,000 unread by category."),
            "org?": .text(JobLimits.org)("Counts by category only those of this organisation."),
        ],
        headers: .ifNoneMatch,
        answers: [.ok("The counts.", InboxStore.State.shape.schema, headers: tag), unchanged])

    private func unreadCount(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var query = FieldReader(query: request, of: Self.unreadCount)
        let isByCategory = query.flag("by_category") ?? false
        let org = query.text("org", limit: JobLimits.org)
        if org != nil, !isByCategory { query.fault("org", "needs by_category=true") }
        try query.finish()
        let state = try await self.inbox.store.state(of: user)
        let known = InboxTag.known(request, of: user)
        let isKnown = known.map { state.showsSame(as: $0) } ?? false
        let counts = isByCategory && !isKnown ? try await self.inbox.store.unreadByCategory(user: user, org: org) : nil
        return InboxTag.answer(state, of: user, unless: known) {
            .json((state, counts), as: InboxStore.State.shape)
        }
    }

    private static let find = Operation(
        "getNotification",
        "Returns a notification.",
        path: one,
        answers: [.ok("The notification.", CanonicalShape.schema), 404])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        guard let notification = try await self.inbox.store.find(user: user, id: try context.pathID()) else {
            throw Problem.noSuch("notification")
        }
        return .json { CanonicalShape.write(notification, to: &$0) }
    }

    /// Answers with a change and the state after it.
    static func answer(_ change: InboxStore.Change) -> Response {
        .json(change, as: InboxStore.Change.shape)
    }

    private static let read = Operation(
        "readNotification",
        "Marks a notification as read.",
        path: one,
        answers: [.ok("The change.", InboxStore.Change.shape.schema), 404])

    private func read(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try context.pathID()
        let change = try await self.inbox.service.markRead(user: user, ids: [id])
        // Either it was read before, or it does not exist.
        if change.isEmpty, try await self.inbox.store.find(user: user, id: id) == nil {
            throw Problem.noSuch("notification")
        }
        return Self.answer(change)
    }

    private static let readMany = Operation(
        "readNotifications",
        "Marks several or all notifications as read.",
        body: .oneOf(
            .object(
                [
                    "ids": .list(of: .uuid, min: 1, max: 1000),
                    "all?": .constant(.bool(false)).orNull,
                ], isClosed: true), .object(["all": .constant(.bool(true)), "ids?": .null], isClosed: true)),
        answers: [.ok("The change.", InboxStore.Change.shape.schema)])

    private func readMany(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try FieldReader(try await FieldReader.body(request))
        body.allow(["ids", "all"])
        let isAll = body.flag("all") == true
        let ids = body.notifications("ids", atLeast: 1)
        let hasIDs = (body.value["ids"] ?? .null) != .null
        if isAll, hasIDs { body.fault("ids", "cannot be combined with all") }
        if !isAll, !hasIDs { body.fault("ids", "is missing; give ids, or all: true") }
        try body.finish()
        return Self.answer(try await self.inbox.service.markRead(user: user, ids: ids))
    }

    private static let opened = Operation(
        "openNotification",
        "Records that the user opened a notification; only the first time counts.",
        path: one,
        answers: [.done, 404])

    private func opened(_ request: Request, _ context: APIContext) async throws -> Response {
        let id = try context.pathID()
        guard try await self.inbox.service.markOpened(user: try context.user(), id: id) else {
            throw Problem.noSuch("notification")
        }
        return Response(status: .noContent)
    }

    private static let act = Operation(
        "actOnNotification",
        "Reports that the user pressed a button of a notification.",
        "Upstream apps get the event `acted` with the button's id; each call is one. It also records that the "
            + "notification was opened.",
        path: one,
        body: .object(
            ["action": .text(JobLimits.name)("The id of one of the `actions` of its data.")], isClosed: true),
        answers: [.done, 404, 422, Self.tooManyRepeatedEvents])

    private func act(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try context.pathID()
        var body = try await FieldReader(body: request, of: Self.act)
        let action = body.text("action", limit: JobLimits.name, isRequired: true) ?? ""
        try body.finish()
        try await self.inbox.base.countRepeatedEvent(of: user)
        switch try await self.inbox.service.act(user: user, id: id, action: action) {
        case nil: throw Problem.noSuch("notification")
        case false?:
            let fault = JobFault("action", "is not among the `actions` of the notification's data")
            throw Problem(.unprocessableContent, "action \(fault.reason)", faults: [fault])
        case true?: return Response(status: .noContent)
        }
    }

    private static let delivered = Operation(
        "confirmNotification",
        "Confirms delivery, which cancels the fallback push.",
        path: one,
        answers: [.done, 404])

    private func delivered(_ request: Request, _ context: APIContext) async throws -> Response {
        let id = try context.pathID()
        guard try await self.inbox.service.markDelivered(user: try context.user(), id: id) else {
            throw Problem.noSuch("notification")
        }
        return Response(status: .noContent)
    }

    private static let delete = Operation(
        "deleteNotification",
        "Deletes a notification.",
        path: one,
        answers: [.ok("The change.", InboxStore.Change.shape.schema), 404])

    private func delete(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let change = try await self.inbox.service.delete(user: user, id: try context.pathID())
        guard !change.isEmpty else { throw Problem.noSuch("notification") }
        return Self.answer(change)
    }

    private static let deleteRead = Operation(
        "deleteReadNotifications",
        "Deletes all read notifications.",
        answers: [.ok("The change.", InboxStore.Change.shape.schema)])

    private func deleteRead(_ request: Request, _ context: APIContext) async throws -> Response {
        Self.answer(try await self.inbox.service.delete(user: try context.user(), id: nil))
    }
}

extension InboxStore.Change {
    static let shape = Shape<InboxStore.Change>(
        "InboxChange",
        [
            "changed": .value(.count) { $0.ids.count },
            "unread": .value(.count) { $0.unread },
            "version": .value(.count) { $0.version },
        ])
}

/// The pages that are written row by row, straight into the answer.
extension Schema {
    static let inboxPage = Schema(
        "InboxPage",
        [
            "notifications": .list(of: CanonicalShape.schema, max: 100),
            "next_cursor": .uuid.orNull,
            "unread": .count,
            "total": .count,
            "version": .count,
        ], isClosed: true)

    static let inboxChanges = Schema(
        "InboxChanges",
        [
            "reset": .bool,
            "notifications": .list(of: CanonicalShape.schema, max: 500),
            "deleted": .list(of: .uuid, max: 500),
            "next_version": .count,
            "unread": .count,
            "total": .count,
            "version": .count,
        ], isClosed: true)
}

/// The entity tag of an inbox (RFC 9110 section 8.8.3): its version, unread, total, notes,
/// beginning and user.
///
/// The beginning distinguishes an inbox from its predecessor that was erased. The user
/// distinguishes inboxes that began at the same time, because the users of a browser share its
/// cache.
enum InboxTag {
    static func text(_ state: InboxStore.State, of user: String) -> String {
        let begun = String(UInt64(bitPattern: state.begun), radix: 36)
        return "\"\(state.version)-\(state.unread)-\(state.total)-\(state.notes)-\(begun)-\(Self.mark(user))\""
    }

    /// Returns a hash of the user that is the same on every gateway.
    private static func mark(_ user: String) -> String { String(FNV1a.hash32(user), radix: 36) }

    /// Returns the state that `If-None-Match` names; nil without a valid tag of the user's inbox.
    static func known(_ request: Request, of user: String) -> InboxStore.State? {
        guard let header = request.headers[.ifNoneMatch] else { return nil }
        let mark = Self.mark(user)
        for candidate in header.split(separator: ",") {
            var tag = candidate.drop { $0 == " " }
            // The comparison is weak (RFC 9110 section 13.1.2); proxies weaken tags when they
            // compress.
            if tag.hasPrefix("W/") { tag = tag.dropFirst(2) }
            let parts = tag.filter { $0 != "\"" && $0 != " " }.split(separator: "-")
            guard parts.count == 6, parts[5] == mark, let version = Int64(parts[0]), let unread = Int32(parts[1]),
                let total = Int32(parts[2]), let notes = Int64(parts[3]), let begun = UInt64(parts[4], radix: 36)
            else { continue }
            var state = InboxStore.State()
            state.version = version
            state.unread = unread
            state.total = total
            state.notes = notes
            state.begun = Int64(bitPattern: begun)
            return state
        }
        return nil
    }

    /// Returns 304 if the client has this state, else the result of `make` with the tag.
    static func answer(
        _ state: InboxStore.State,
        of user: String,
        unless known: InboxStore.State?,
        _ make: () throws -> Response
    ) rethrows -> Response {
        let isKnown = known.map { state.showsSame(as: $0) } ?? false
        var response = isKnown ? Response(status: .notModified) : try make()
        response.headers[.eTag] = Self.text(state, of: user)
        response.headers[.cacheControl] = "private, no-cache"
        return response
    }
}
