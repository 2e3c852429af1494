// Carillon · APIRouter.swift
// SPDX-License-Identifier: Apache-2.0

package import Hummingbird

/// All routes of the canonical API.
package enum APIRouter {
    /// - Parameter extend: adds routes that stand beside the canonical ones.
    package static func make(
        _ services: APIServices,
        extend: (Router<APIContext>, APIServices) -> Void = { _, _ in }
    ) -> Router<APIContext> {
        let router = Router(context: APIContext.self)
        router.add(middleware: ProblemMiddleware())
        OperationRoutes(services: services).add(to: router)
        let version = router.group("v1").add(middleware: IdentityMiddleware(verifier: services.verifier))
        InboxRoutes(services: services).add(to: version)
        DeviceRoutes(services: services).add(to: version)
        PreferenceRoutes(services: services).add(to: version)
        JobRoutes(services: services).add(to: version)
        extend(router, services)
        return router
    }
}
