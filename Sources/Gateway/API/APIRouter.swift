// Carillon · APIRouter.swift
// SPDX-License-Identifier: Apache-2.0

package import Hummingbird
import Services

/// All routes of the canonical API.
package enum APIRouter {
    package static func make(_ services: APIServices) -> Router<APIContext> {
        let router = Router(context: APIContext.self)
        router.add(middleware: ProblemMiddleware())
        OperationRoutes(services: services).add(to: router)
        let version = router.group("v1")
            .add(middleware: IdentityMiddleware(credentials: services.credentials, accepting: .canonical))
        InboxRoutes(services: services).add(to: version)
        DeviceRoutes(services: services).add(to: version)
        PreferenceRoutes(services: services).add(to: version)
        JobRoutes(services: services).add(to: version)
        TokenRoutes(services: services).add(to: version)
        return router
    }
}
