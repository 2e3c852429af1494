// Carillon · APIRouter.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird

/// All routes of the canonical API.
package enum APIRouter {
    /// - Parameters:
    ///   - refusesOtherMethods: false for the routes alone, as the description lists them.
    ///   - errors: turns errors of the routes that stand beside the canonical ones into another
    ///     form.
    ///   - extend: adds routes that stand beside the canonical ones.
    package static func make(
        _ services: APIServices,
        refusesOtherMethods: Bool = true,
        errors: (any MiddlewareProtocol<Request, Response, APIContext>)? = nil,
        extend: (Router<APIContext>, APIServices) -> Void = { _, _ in }
    ) -> Router<APIContext> {
        let router = Router(context: APIContext.self, options: .autoGenerateHeadEndpoints)
        router.add(middleware: RequestMiddleware())
        router.add(middleware: ProblemMiddleware())
        if let errors { router.add(middleware: errors) }
        router.add(middleware: SpellingMiddleware())
        OperationRoutes(services: services).add(to: router)
        UnsubscribeRoutes(services: services).add(to: router)
        let version = router.group("v1")
            .add(middleware: IdentityMiddleware(credentials: services.credentials, accepting: .canonical))
            .add(middleware: CallRateMiddleware(rate: services.callRate))
            .add(middleware: BodyBudgetMiddleware(budget: services.bodies))
        InboxRoutes(services: services).add(to: version)
        DeviceRoutes(services: services).add(to: version)
        PreferenceRoutes(services: services).add(to: version)
        JobRoutes(services: services).add(to: version)
        JobControlRoutes(services: services).add(to: version)
        ScheduleRoutes(services: services).add(to: version)
        BroadcastRoutes(services: services).add(to: version)
        TokenRoutes(services: services).add(to: version)
        UserRoutes(services: services).add(to: version)
        TopicRoutes(services: services).add(to: version)
        PresenceRoutes(services: services).add(to: version)
        TraceRoutes(services: services).add(to: version)
        SurveyRoutes(services: services).add(to: version)
        ProviderRoutes(services: services).add(to: version)
        SimulationRoutes(services: services).add(to: version)
        DeadLetterRoutes(services: services).add(to: version)
        WebhookRoutes(services: services).add(to: version)
        CatalogRoutes(services: services).add(to: version)
        StatisticsRoutes(services: services).add(to: version)
        extend(router, services)
        if refusesOtherMethods { MethodRefusal.add(to: router) }
        return router
    }
}
