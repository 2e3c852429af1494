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
    private var inbox: InboxKeeper { InboxKeeper(services: self.services) }

    func add(to groups: CompatibilityGroups) {
        let group = groups.group("api/notifications")
        group.get(use: self.list)
        group.get("unread-count", use: self.unreadCount)
        group.get("preferences", use: self.preferences)
        group.put("preferences", use: self.setPreference)
        group.post("bulk-read", use: self.bulkRead)
        group.get(":id", use: self.find)
        group.post(":id/read", use: self.read)
        group.delete(":id", use: self.delete)
    }

    // MARK: Inbox

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let query = try PageQuery.byOffset(RequestQuery(of: request))
        let page = try await self.services.inbox.page(
            user: user,
            filter: InboxStore.Filter(limit: query.limit, unreadOnly: query.unreadOnly),
            offset: query.offset
        )
        return Response.object { HybridShape.write(page, of: query, to: &$0) }
    }

    private func unreadCount(_ request: Request, _ context: APIContext) async throws -> Response {
        let unread = try await self.inbox.unread(user: try context.user())
        return Response.object { writer in
            writer.member("count", unread)
        }
    }

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try InboxKeeper.id(context)
        // Only a page, here of one item, includes `sent_via`.
        let page = try await self.services.inbox.page(
            user: user,
            filter: InboxStore.Filter(limit: 1, before: id.successor),
            offset: 0
        )
        guard let item = page.items.first, item.notification.id == id else { throw Answer.notFound }
        var writer = JSONWriter()
        HybridShape.write(item.notification, sentVia: item.sentVia, to: &writer)
        return Response.json(writer)
    }

    private func read(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let notification = try await self.inbox.markRead(user: user, id: try InboxKeeper.id(context))
        let unread = try await self.inbox.unread(user: user)
        return Response.object { writer in
            writer.member("status", "ok")
            writer.member("notification_id", notification.id.description)
            writer.member("read_at", notification.readAt?.rfc3339)
            writer.member("unread_count", unread)
        }
    }

    private func bulkRead(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await RequestFields.read(request)
        let ids = fields.notifications("notification_ids")
        if ids == nil, fields.faults.isEmpty { fields.fault("notification_ids", "is missing") }
        try fields.finish()
        let change = try await self.services.inboxService.markRead(user: user, ids: ids ?? [], isBulk: true)
        return Response.object { writer in
            writer.member("status", "ok")
            writer.member("updated", change.ids.count)
            writer.member("unread_count", change.unread)
        }
    }

    private func delete(_ request: Request, _ context: APIContext) async throws -> Response {
        let change = try await self.inbox.delete(user: try context.user(), id: try InboxKeeper.id(context))
        return Response.object { writer in
            writer.member("status", "ok")
            writer.member("unread_count", change.unread)
        }
    }

    // MARK: Preferences

    private func preferences(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let wishes = try await self.services.preferences.preferences(user: user)
        let settings = try await self.services.preferences.settings(user: user)
        return Response.object { writer in
            writer.key("preferences")
            writer.beginArray()
            for type in self.services.catalog.all {
                HybridShape.write(type, wishes: wishes, settings: settings, to: &writer)
            }
            writer.endArray()
        }
    }

    private func setPreference(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await RequestFields.read(request)
        let name = fields.text("type", limit: JobLimits.name, isRequired: true)
        let inApp = fields.flag("in_app_enabled")
        let push = fields.flag("push_enabled")
        let type = name.flatMap { self.services.catalog[$0] }
        if name != nil, type == nil { fields.fault("type", "is not in the catalog") }
        if let type, type.isRequired, inApp == false || push == false {
            fields.fault("type", "is required and cannot be switched off")
        }
        let quietHours = try await self.quietHours(&fields, of: type, user: user)
        try fields.finish()
        guard let type else { throw Problem(.badRequest, "type is missing") }
        let said = TypePreference(inApp: inApp, push: push, quietHours: quietHours)
        try await self.services.changePreferences(user: user, [type.name: said])
        let wishes = try await self.services.preferences.preferences(user: user)
        let settings = try await self.services.preferences.settings(user: user)
        var writer = JSONWriter()
        HybridShape.write(type, wishes: wishes, settings: settings, to: &writer)
        return Response.json(writer)
    }

    /// Reads a type's quiet hours and records a fault if they are malformed.
    private func quietHours(
        _ fields: inout RequestFields,
        of type: NotificationType?,
        user: String
    ) async throws -> QuietOverride? {
        guard let type, fields.value["quiet_hours_start"] != nil || fields.value["quiet_hours_end"] != nil else {
            return nil
        }
        let wishes = try await self.services.preferences.preferences(user: user)
        let settings = try await self.services.preferences.settings(user: user)
        let shown = HybridShape.quietHours(of: type, wishes: wishes, settings: settings)
        let said = HybridShape.quietChange(&fields, shown: shown)
        if said != nil, type.isRequired { fields.fault("type", "is required and cannot have its own quiet hours") }
        return said
    }
}

extension NotificationID {
    /// The next id; the greatest id returns itself.
    var successor: NotificationID {
        if self.low < .max { return NotificationID(high: self.high, low: self.low + 1) }
        return self.high < .max ? NotificationID(high: self.high + 1, low: 0) : self
    }
}
