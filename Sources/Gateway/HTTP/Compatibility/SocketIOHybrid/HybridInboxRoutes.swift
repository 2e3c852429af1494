// Carillon · HybridInboxRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Protocols
import Storage

/// The accounting app's `/api/notifications`.
struct HybridInboxRoutes {
    let services: APIServices
    private var inbox: CompatibilityInbox { CompatibilityInbox(services: self.services) }

    func add(to groups: CompatibilityGroups) {
        let group = groups.group("api/notifications")
        group.get("", Self.list, self.list)
        group.get("unread-count", Self.unreadCount, self.unreadCount)
        group.get("preferences", Self.preferences, self.preferences)
        group.put("preferences", Self.setPreference, self.setPreference)
        group.post("bulk-read", Self.bulkRead, self.bulkRead)
        group.get(":id", Self.find, self.find)
        group.post(":id/read", Self.read, self.read)
        group.delete(":id", Self.delete, self.delete)
    }

    // MARK: Inbox

    private static let list = Operation(
        "accountingListNotifications",
        "Accounting: lists the inbox, newest first; each 100 notifications count as a call of the user.",
        query: [
            "offset?": .integer(0...10_000, default: 0),
            "limit?": .integer(from: 1, default: 20)("At most 1,000."),
            "unread_only?": .bool(default: false),
        ],
        answers: [
            .ok(
                "A page.",
                .object([
                    "notifications": .list(of: .accountingNotification, max: 1_000),
                    "total": .count("The number of matching notifications."),
                    "unread_count": .count,
                    "offset": .count,
                    "limit": .integer(1...1_000),
                    "has_more": .bool,
                ]))
        ])

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let caller = try context.requireCaller()
        let user = caller.user
        let query = try PageQuery.byOffset(RequestQuery(of: request))
        let page = try await self.services.inbox.store.page(
            user: user,
            filter: InboxStore.Filter(limit: query.limit, unreadOnly: query.unreadOnly),
            offset: query.offset
        )
        // 100 notifications are the most that other lists have.
        self.services.identity.count(furtherCalls: (page.items.count - 1) / 100, of: caller)
        return Response.object { HybridShape.write(page, of: query, to: &$0) }
    }

    private static let unreadCount = Operation(
        "accountingCountUnread",
        "Accounting: counts unread notifications.",
        answers: [.ok("The count.", .object(["count": .count]))])

    private func unreadCount(_ request: Request, _ context: APIContext) async throws -> Response {
        let unread = try await self.inbox.unread(user: try context.user())
        return Response.object { writer in
            writer.member("count", unread)
        }
    }

    private static let find = Operation(
        "accountingGetNotification",
        "Accounting: returns a notification.",
        path: InboxRoutes.one,
        answers: [.ok("The notification.", .accountingNotification), 404])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        let store = self.services.inbox.store
        guard let item = try await store.item(user: try context.user(), id: try context.pathID()) else {
            throw Problem.noSuch("notification")
        }
        return .json { HybridShape.write(item.notification, sentVia: item.sentVia, to: &$0) }
    }

    private static let read = Operation(
        "accountingMarkRead",
        "Accounting: marks a notification as read.",
        path: InboxRoutes.one,
        answers: [
            .ok(
                "Done.",
                .object([
                    "status": .constant(.string("ok")),
                    "notification_id": .uuid,
                    "read_at": .time.orNull,
                    "unread_count": .count,
                ])),
            404,
        ])

    private func read(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let notification = try await self.inbox.markRead(user: user, id: try context.pathID())
        let unread = try await self.inbox.unread(user: user)
        return Response.object { writer in
            writer.member("status", "ok")
            writer.member("notification_id", notification.id.description)
            writer.member("read_at", notification.readAt?.rfc3339)
            writer.member("unread_count", unread)
        }
    }

    private static let bulkRead = Operation(
        "accountingMarkManyRead",
        "Accounting: marks notifications as read.",
        body: .object(["notification_ids": .list(of: .uuid, max: 1000)]),
        answers: [
            .ok(
                "Those of other users are ignored.",
                .object(["status": .constant(.string("ok")), "updated": .count, "unread_count": .count]))
        ])

    private func bulkRead(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        let ids = fields.notifications("notification_ids")
        if ids == nil, fields.faults.isEmpty { fields.fault("notification_ids", "is missing") }
        try fields.finish()
        let change = try await self.services.inbox.service.markRead(user: user, ids: ids ?? [], isBulk: true)
        return Response.object { writer in
            writer.member("status", "ok")
            writer.member("updated", change.ids.count)
            writer.member("unread_count", change.unread)
        }
    }

    private static let delete = Operation(
        "accountingDeleteNotification",
        "Accounting: deletes a notification.",
        path: InboxRoutes.one,
        answers: [
            .ok("Done.", .object(["status": .constant(.string("ok")), "unread_count": .count])),
            404,
        ])

    private func delete(_ request: Request, _ context: APIContext) async throws -> Response {
        let change = try await self.inbox.delete(user: try context.user(), id: try context.pathID())
        return Response.object { writer in
            writer.member("status", "ok")
            writer.member("unread_count", change.unread)
        }
    }

    // MARK: Preferences

    private static let preferences = Operation(
        "accountingGetPreferences",
        "Accounting: lists the preferences by type.",
        answers: [
            .ok("One entry per type.", .object(["preferences": .list(of: .accountingPreference, max: 100_000)]))
        ])

    private func preferences(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let preferences = try await self.services.users.preferences.preferences(user: user)
        let settings = try await self.services.users.preferences.settings(user: user)
        return Response.object { writer in
            writer.array("preferences", self.services.base.catalog.all.filter(\.isEnabled)) { writer, type in
                HybridShape.write(type, preferences: preferences, settings: settings, to: &writer)
            }
        }
    }

    private static let setPreference = Operation(
        "accountingSetPreference",
        "Accounting: sets the preference for a type.",
        body: .object([
            "type": .text(JobLimits.name),
            "in_app_enabled?": .bool.orNull,
            "push_enabled?": .bool.orNull,
            "quiet_hours_start?": .lenientTimeOfDay.orNull,
            "quiet_hours_end?": .lenientTimeOfDay.orNull,
        ])(
            "Absent fields and null channels stay. Quiet hours apply to this type only; null for both, or the "
                + "same time twice, means none. A required type cannot be switched off."
        ),
        answers: [.ok("The effective preference.", .accountingPreference), PreferenceRoutes.tooManyQuietChanges])

    private func setPreference(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        let name = fields.text("type", limit: JobLimits.name, isRequired: true)
        let inApp = fields.flag("in_app_enabled")
        let push = fields.flag("push_enabled")
        let type = name.flatMap { self.services.base.catalog[$0] }
        if name != nil, type == nil { fields.fault("type", "is not in the catalog") }
        if let type, EffectivePreference.isRefused(TypePreference(inApp: inApp, push: push), type) {
            fields.fault("type", "is required and cannot be switched off")
        }
        let quietHours = try await self.quietHours(&fields, of: type, user: user)
        try fields.finish()
        guard let type else { throw Problem(.badRequest, "type is missing") }
        let given = TypePreference(inApp: inApp, push: push, quietHours: quietHours)
        try await self.services.users.changePreferences(user: user, [type.name: given])
        let preferences = try await self.services.users.preferences.preferences(user: user)
        let settings = try await self.services.users.preferences.settings(user: user)
        return .json { HybridShape.write(type, preferences: preferences, settings: settings, to: &$0) }
    }

    /// Reads a type's quiet hours and records a fault if they are malformed.
    private func quietHours(
        _ fields: inout FieldReader,
        of type: NotificationType?,
        user: String
    ) async throws -> QuietOverride? {
        guard let type, fields.value["quiet_hours_start"] != nil || fields.value["quiet_hours_end"] != nil else {
            return nil
        }
        let preferences = try await self.services.users.preferences.preferences(user: user)
        let settings = try await self.services.users.preferences.settings(user: user)
        let shown = HybridShape.quietHours(of: type, preferences: preferences, settings: settings)
        let given = HybridShape.quietChange(&fields, shown: shown)
        if given != nil, type.isRequired { fields.fault("type", "is required and cannot have its own quiet hours") }
        return given
    }
}
