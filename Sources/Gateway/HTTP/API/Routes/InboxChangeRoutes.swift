// Carillon · InboxChangeRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// Changes of single notifications besides reading: unread again, archive, snooze and undo.
struct InboxChangeRoutes {
    /// In days.
    private static let longestSnooze = 366

    let inbox: InboxServices

    func add(to routes: Routes) {
        let inbox = routes.group("notifications")
        inbox.get("archived", Self.archived, self.archived)
        inbox.post(":id/unread", Self.unread, self.unread)
        inbox.post(":id/archive", Self.archive, self.archive)
        inbox.post(":id/snooze", Self.snooze, self.snooze)
        inbox.post(":id/restore", Self.restore, self.restore)
    }

    private static let unread = Operation(
        "unreadNotification",
        "Marks a notification as unread again; open sockets receive it as a silent notification.",
        path: InboxRoutes.one,
        answers: [.ok("The change.", InboxStore.Change.shape.schema), 404, InboxRoutes.tooManyRepeatedEvents])

    private func unread(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try context.pathID()
        try await self.inbox.base.countRepeatedEvent(of: user)
        let change = try await self.inbox.service.markUnread(user: user, id: id)
        if change.isEmpty, try await self.inbox.store.find(user: user, id: id) == nil {
            throw Problem.noSuch("notification")
        }
        return InboxRoutes.answer(change)
    }

    // MARK: The archive

    private static let archived = Operation(
        "listArchivedNotifications",
        "Lists the archive, newest first.",
        query: [
            "limit?": .integer(1...100, default: 20)("The most items."),
            "cursor?": .uuid("`next_cursor` of the previous page."),
        ],
        answers: [
            .ok(
                "The page.",
                .object([
                    "notifications": .list(of: CanonicalShape.schema, max: 100),
                    "next_cursor": .uuid.orNull,
                ]))
        ])

    private func archived(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var query = FieldReader(query: request, of: Self.archived)
        let limit = query.limit()
        let cursor = query.cursor()
        try query.finish()
        let found = try await self.inbox.store.archived(
            user: user, before: cursor, limit: limit + 1, at: self.inbox.base.now())
        return Response.object { writer in
            writer.array("notifications", found.prefix(limit)) { CanonicalShape.write($1, to: &$0) }
            writer.member("next_cursor", found.count > limit ? found[limit - 1].id.description : nil)
        }
    }

    private static let archive = Operation(
        "archiveNotification",
        "Moves a notification to the archive, which keeps it for a year; open sockets drop it as if it were deleted.",
        path: InboxRoutes.one,
        answers: [.ok("The change.", InboxStore.Change.shape.schema), 404])

    private func archive(_ request: Request, _ context: APIContext) async throws -> Response {
        let change = try await self.inbox.service.archive(
            user: try context.user(), id: try context.pathID())
        guard !change.isEmpty else { throw Problem.noSuch("notification") }
        return InboxRoutes.answer(change)
    }

    // MARK: Snooze

    private static let snooze = Operation(
        "snoozeNotification",
        "Takes a notification out of the inbox and sends it again at a later moment, as a new notification.",
        path: InboxRoutes.one,
        body: .object(["until": .time("When it comes back; at most 366 days from now.")], isClosed: true),
        answers: [
            .ok("The change.", InboxStore.Change.shape.schema), 404,
            Answer(429, "The user exceeds the rate limit, or snoozes or sends tests too often."),
        ])

    private func snooze(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try context.pathID()
        var body = try await FieldReader(body: request, of: Self.snooze)
        if body.value["until"] ?? .null == .null { body.fault("until", "is missing") }
        let until = body.moment("until")
        let now = self.inbox.base.now()
        if let until, until <= now { body.fault("until", "is in the past") }
        if let until, until > now + .seconds(Self.longestSnooze * 24 * 3_600) {
            body.fault("until", "is more than \(Self.longestSnooze) days from now")
        }
        try body.finish()
        guard let until, let notification = try await self.inbox.store.find(user: user, id: id) else {
            throw Problem.noSuch("notification")
        }
        guard self.inbox.base.catalog[notification.type] != nil else {
            let reason = "is not in the catalog any more, so the notification cannot be sent again"
            throw Problem(.unprocessableContent, "type \(reason)", faults: [JobFault("type", reason)])
        }
        if let end = notification.keepUntil, end <= until {
            let reason = "is after \(end.rfc3339), when the notification is removed"
            throw Problem(.unprocessableContent, "until \(reason)", faults: [JobFault("until", reason)])
        }
        try await self.inbox.base.countOwnSend(of: user)
        do {
            let change = try await self.inbox.service.snooze(notification, until: until)
            guard !change.isEmpty else { throw Problem.noSuch("notification") }
            return InboxRoutes.answer(change)
        } catch let faults as JobFaults {
            throw Problem(.unprocessableContent, "it cannot be sent again: \(faults)", faults: faults.faults)
        }
    }

    // MARK: Undo

    private static let restore = Operation(
        "restoreNotification",
        "Brings an archived, snoozed or deleted notification back into the inbox.",
        "A deleted one can be restored as long as its tombstone is kept. Open sockets receive it as a silent "
            + "notification.",
        path: InboxRoutes.one,
        answers: [.ok("The change.", InboxStore.Change.shape.schema), 404])

    private func restore(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try context.pathID()
        let change = try await self.inbox.service.restore(user: user, id: id)
        if change.isEmpty, try await self.inbox.store.find(user: user, id: id) == nil {
            throw Problem.noSuch("notification")
        }
        return InboxRoutes.answer(change)
    }
}
