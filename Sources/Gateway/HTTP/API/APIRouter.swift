// Carillon · APIRouter.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// The routes of Carillon's own API.
package enum APIRouter {
    private static let summary = "Notifications: inbox, devices, preferences, topics, jobs, users."
    private static let details = """
        Errors are problem documents (RFC 9457) that name the faulty fields. Unknown ids and other people's ids are \
        both 404. Repeating a call changes nothing more, unless the call creates something or acts on the current \
        state, such as all notifications. /openapi/compatibility.json describes the paths for clients of other systems.
        """
    private static let tags = [
        "inbox", "devices", "preferences", "topics", "jobs", "users", "webhooks", "admin", "operations",
    ].map { (name: $0, description: String?.none) }

    /// Creates the router.
    ///
    /// - Parameters:
    ///   - errors: rewrites errors of the routes that `extend` adds.
    ///   - extend: adds further routes.
    package static func make(
        _ services: APIServices,
        errors: (any MiddlewareProtocol<Request, Response, APIContext>)? = nil,
        extend: (Router<APIContext>, APIServices) -> Void = { _, _ in }
    ) -> Router<APIContext> {
        let router = Router(context: APIContext.self, options: .autoGenerateHeadEndpoints)
        router.add(middleware: RequestMiddleware())
        router.add(middleware: ProblemMiddleware())
        if let errors { router.add(middleware: errors) }
        router.add(middleware: SpellingMiddleware())
        Self.addRoutes(to: router, services)
        extend(router, services)
        router.add(middleware: MethodMiddleware(of: router))
        return router
    }

    /// Returns the document that `GET /openapi.json` serves.
    static func document(_ services: APIServices) -> JSONValue {
        Self.addRoutes(to: Router(context: APIContext.self), services).document()
    }

    @discardableResult
    private static func addRoutes(to router: Router<APIContext>, _ services: APIServices) -> APIDescription {
        let description = APIDescription(
            title: "Carillon", Self.summary, Self.details, tags: Self.tags, security: [.bearer])
        let open = Routes(router.group(), problems: .canonical, isOpen: true, in: description)
        let group = router.group("v1")
            .add(middleware: IdentityMiddleware(credentials: services.identity.credentials, accepting: .canonical))
            .add(middleware: CallRateMiddleware(rate: services.identity.callRate))
            .add(middleware: BodyBudgetMiddleware(budget: services.identity.bodies))
        let version = Routes(group, at: "/v1", problems: .canonical, in: description)
        UnsubscribeRoutes(users: services.users, callRate: services.identity.callRate)
            .add(to: open.group(tag: "preferences"))
        InboxRoutes(inbox: services.inbox).add(to: version.group(tag: "inbox"))
        InboxChangeRoutes(inbox: services.inbox).add(to: version.group(tag: "inbox"))
        TypeRoutes(base: services.base).add(to: version.group(tag: "inbox"))
        DeviceRoutes(users: services.users).add(to: version.group(tag: "devices"))
        PreferenceRoutes(users: services.users, identity: services.identity).add(to: version.group(tag: "preferences"))
        JobRoutes(jobs: services.jobs).add(to: version.group(tag: "jobs"))
        JobControlRoutes(jobs: services.jobs).add(to: version.group(tag: "jobs"))
        ScheduleRoutes(jobs: services.jobs).add(to: version.group(tag: "jobs"))
        BroadcastRoutes(jobs: services.jobs).add(to: version)
        AdminJobRoutes(jobs: services.jobs).add(to: version.group(tag: "admin"))
        OverviewRoutes(base: services.base).add(to: version.group(tag: "admin"))
        PreviewRoutes(base: services.base).add(to: version.group(tag: "admin"))
        TokenRoutes(identity: services.identity).add(to: version.group(tag: "users"))
        UserRoutes(users: services.users, pages: services.inbox.pages).add(to: version.group(tag: "users"))
        TopicRoutes(users: services.users).add(to: version.group(tag: "topics"))
        PeopleRoutes(users: services.users).add(to: version.group(tag: "admin"))
        PresenceRoutes(base: services.base).add(to: version.group(tag: "admin"))
        TraceRoutes(base: services.base).add(to: version.group(tag: "admin"))
        SurveyRoutes(base: services.base).add(to: version.group(tag: "admin"))
        ProviderRoutes(base: services.base).add(to: version)
        SimulationRoutes(base: services.base).add(to: version.group(tag: "admin"))
        DeadLetterRoutes(base: services.base).add(to: version.group(tag: "admin"))
        WebhookRoutes(base: services.base, options: services.webhookOptions).add(to: version.group(tag: "webhooks"))
        let statistics = StatisticsService(store: services.base.database.statistics, now: services.base.now)
        CatalogRoutes(base: services.base, statistics: statistics).add(to: version.group(tag: "admin"))
        StatisticsRoutes(base: services.base, fields: services.users.fields, statistics: statistics).add(to: version)
        let operations = open.group(tag: "operations")
        OperationRoutes(
            base: services.base, credentials: services.identity.credentials, metrics: services.metrics
        ).add(to: operations)
        operations.describe("openapi.json", OperationRoutes.describe)
        return description
    }
}
