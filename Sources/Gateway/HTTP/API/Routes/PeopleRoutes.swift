// Carillon · PeopleRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Single users, for admins: `/v1/admin/users`.
struct PeopleRoutes {
    /// The most characters of an id or an address.
    private static let longestQuery = 254

    let users: UserServices

    func add(to routes: Routes) {
        routes.get("admin/users", Self.find, self.find)
        routes.get("admin/users/:id", Self.show, self.show)
        routes.get("admin/users/:id/notifications", Self.notifications, self.notifications)
    }

    private var people: PeopleStore { self.users.base.database.people }

    private static let find = Operation(
        "findUsers",
        "Finds users by their id or e-mail address.",
        scope: .admin,
        query: ["q": .text(longestQuery)("A whole id, or a whole address in any letter case.")],
        answers: [.ok("The users, at most 20.", .object(["users": .list(of: .person, max: 20)]))])

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.find)
        let text = query.text("q", limit: Self.longestQuery, isRequired: true)
        try query.finish()
        let found = try await self.people.find(text ?? "")
        return Response.object { writer in
            writer.array("users", found) { writer, person in
                writer.beginObject()
                writer.member("user_id", person.user)
                writer.member("email", person.email)
                writer.member("locale", person.locale)
                writer.member("zone", person.zone)
                writer.member("created_at", person.createdAt.rfc3339)
                writer.member("last_seen", person.lastSeen?.rfc3339)
                writer.endObject()
            }
        }
    }

    private static let show = Operation(
        "getUserOverview",
        "Returns a user's settings, inbox, presence, devices, preferences, topics, and what waits.",
        scope: .admin,
        path: UserRoutes.user,
        answers: [.ok("The user.", .personOverview), 404])

    private func show(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.pathText("id", limit: JobLimits.user)
        guard let person = try await self.people.find(user).first(where: { ExactText($0.user) == ExactText(user) })
        else { throw Problem.noSuch("user") }
        let report = try await PersonReport(person, self.users.base.database, self.users.base.presence)
        let preferences = try await EffectivePreferences(of: user, self.users)
        return Response.object { writer in
            report.write(isEmailMissing: preferences.isEmailMissing, to: &writer)
            writer.key("preferences")
            writer.beginObject()
            preferences.write(to: &writer)
            writer.endObject()
        }
    }

    private static let notifications = Operation(
        "listUserNotifications",
        "Lists a user's notifications, newest first, whether they are in the inbox or not.",
        scope: .admin,
        path: UserRoutes.user,
        query: [
            "limit?": .integer(1...100, default: 20)("The most items."),
            "cursor?": .uuid("`next_cursor` of the previous page."),
            "type?": .text(JobLimits.name)("Only of this type."),
            "status?": .cases(of: NotificationStatus.self)("Only with this status."),
        ],
        answers: [
            .ok(
                "The page.",
                .object(["notifications": .list(of: .personNotification, max: 100), "next_cursor": .uuid.orNull]))
        ])

    private func notifications(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.pathText("id", limit: JobLimits.user)
        var query = FieldReader(query: request, of: Self.notifications)
        let limit = query.limit()
        var filter = PeopleStore.Filter()
        filter.limit = limit + 1
        filter.before = query.cursor()
        filter.type = query.text("type", limit: JobLimits.name)
        filter.status = query.choice("status", of: NotificationStatus.self)
        try query.finish()
        let items = try await self.people.notifications(user: user, filter)
        return Response.object { writer in
            writer.array("notifications", items.prefix(limit)) { OperatorNotification.write($1, to: &$0) }
            writer.member("next_cursor", items.count > limit ? items[limit - 1].notification.id.description : nil)
        }
    }
}

extension Schema {
    static let person = Schema(
        "Person",
        [
            "user_id": .text(JobLimits.user),
            "email": .string.orNull,
            "locale": .string.orNull,
            "zone": .string.orNull,
            "created_at": .time,
            "last_seen": .time.orNull,
        ])

    static let personOverview = Schema(
        "PersonOverview",
        [
            "user_id": .text(JobLimits.user),
            "created_at": .time,
            "last_seen": .time.orNull,
            "email_fault": .string.orNull("Why mail to the address comes back; null if it does not."),
            "settings": .settings,
            "inbox": .inboxState,
            "presence": .presenceState,
            "devices": .list(of: .device, max: 1_000),
            "preferences": .preferences,
            "topics": .list(of: .string, max: 1_000)("The first 1,000."),
            "waiting": .list(
                of: .object([
                    "notification_id": .uuid.orNull("Null for a scheduled job."),
                    "kind": .choice("release", "attention", "email", "summary", "snooze", "schedule"),
                    "due_at": .time,
                    "reason": .string.orNull,
                    "job_id": .string.orNull("Of a scheduled job."),
                ]), max: 100)(
                    "Postponed steps, digests, and jobs scheduled for this user alone, the first ones due."),
        ])

    static let personNotification = Schema("PersonNotification", Self.operatorNotification)

    static let jobNotification = Schema(
        "JobNotification", ["user_id": .text(JobLimits.user)] + Self.operatorNotification)

    private static let operatorNotification: Fields =
        [
            "id": .uuid,
            "type": .text(JobLimits.name),
            "title": .string,
            "status": .cases(of: NotificationStatus.self),
            "status_reason": .string.orNull,
            "decision": .string.orNull("Why less was done than requested."),
            "sent_via": .string.orNull,
            "created_at": .time,
            "delivered_at": .time.orNull,
            "opened_at": .time.orNull,
            "read_at": .time.orNull,
            "archived_at": .time.orNull,
            "deleted_at": .time.orNull,
            "job_id": .string.orNull,
            "org_id": .string,
        ]
}
