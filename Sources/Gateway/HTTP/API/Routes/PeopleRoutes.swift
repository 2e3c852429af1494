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
        answers: [.ok("The users, at most 20.", found.schema)])

    private static let found: Shape<[PeopleStore.Person]> = [
        "users": .list(of: PeopleStore.Person.shape, max: 20) { $0 }
    ]

    private func find(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.find)
        let text = query.text("q", limit: Self.longestQuery, isRequired: true)
        try query.finish()
        return .json(try await self.people.find(text ?? ""), as: Self.found)
    }

    private static let show = Operation(
        "getUserOverview",
        "Returns a user's settings, inbox, presence, devices, preferences, topics, and what waits.",
        scope: .admin,
        path: UserRoutes.user,
        answers: [.ok("The user.", overview.schema), 404])

    private func show(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.pathText("id", limit: JobLimits.user)
        guard let person = try await self.people.find(user).first(where: { ExactText($0.user) == ExactText(user) })
        else { throw Problem.noSuch("user") }
        let report = try await PersonReport(person, self.users.base.database, self.users.base.presence)
        let preferences = try await EffectivePreferences(of: user, self.users)
        return .json((report, preferences), as: Self.overview)
    }

    private static let overview = Shape<(person: PersonReport, preferences: EffectivePreferences)>(
        "PersonOverview",
        PersonReport.head.of { $0.person } + [
            "settings": .object(PreferenceRoutes.settingsShape) {
                ($0.person.settings, $0.preferences.isEmailMissing)
            }
        ] + PersonReport.inbox.of { $0.person } + [
            "preferences": .object(EffectivePreferences.shape) { $0.preferences }
        ] + PersonReport.rest.of { $0.person })

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
        answers: [.ok("The page.", page.schema)])

    private static let page = Shape.page("notifications", of: PeopleStore.Item.shape, cursor: .uuid)

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
        return .json(Page(items, limit: limit) { $0.notification.id }, as: Self.page)
    }
}

extension PeopleStore.Person {
    fileprivate static let shape = Shape<PeopleStore.Person>(
        "Person",
        [
            "user_id": .value(.text(JobLimits.user)) { $0.user },
            "email": .value(.string) { $0.email },
            "locale": .value(.string) { $0.locale },
            "zone": .value(.string) { $0.zone },
            "created_at": .value(.time) { $0.createdAt },
            "last_seen": .value(.time) { $0.lastSeen },
        ])
}
