// Carillon · CompatibilityRouter.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird

/// The REST paths of the systems whose clients come along unchanged; no path belongs to two of them.
package enum CompatibilityRouter {
    /// What their registrations leave open.
    package struct Defaults: Sendable {
        /// The app whose credentials serve their devices.
        package var app = "default"
        /// Which of Apple's services their APNs tokens are of; the clients do not say.
        package var environment: ProviderEnvironment

        package init(environment: ProviderEnvironment) {
            self.environment = environment
        }
    }

    /// Turns the errors of all paths below theirs into the forms that the systems' clients read.
    package static var errors: any MiddlewareProtocol<Request, Response, APIContext> {
        ErrorMiddleware(ErrorStyle.paths)
    }

    /// Adds all of them, and their description.
    package static func add(to router: Router<APIContext>, services: APIServices, defaults: Defaults) {
        DescriptionRoute.add(try? CompatibilityDocument.make(), at: "openapi/compatibility.json", to: router)
        let groups = CompatibilityGroups(router: router, services: services)
        let devices = DeviceKeeper(services: services, defaults: defaults)
        HybridInboxRoutes(services: services).add(to: groups)
        HybridDeviceRoutes(devices: devices).add(to: groups)
        let inbox = groups.group("api/v1/notifications")
        AllowanceInboxRoutes(services: services).add(to: inbox)
        AllowancePreferenceRoutes(services: services).add(to: inbox)
        AllowanceDeviceRoutes(devices: devices).add(to: groups.group("api/v1/devices"))
        NewsDeviceRoutes(devices: devices).add(to: groups)
        TaskDeviceRoutes(devices: devices).add(to: groups)
        EdgeTokenRoutes(devices: devices).add(to: groups)
        EdgeEventRoutes(services: services).add(to: groups)
    }
}
