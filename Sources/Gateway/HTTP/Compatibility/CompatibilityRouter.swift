// Carillon · CompatibilityRouter.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird

/// The REST paths for existing clients of other systems; no path belongs to two systems.
package enum CompatibilityRouter {
    /// Values that the registrations of these clients leave out.
    package struct Defaults: Sendable {
        /// The app whose credentials serve the devices.
        package var app = "default"
        /// The APNs environment of the tokens.
        package var environment: ProviderEnvironment

        package init(environment: ProviderEnvironment) {
            self.environment = environment
        }
    }

    /// Converts errors below these paths into the format of each system's clients.
    package static var errors: any MiddlewareProtocol<Request, Response, APIContext> {
        ErrorMiddleware(ErrorStyle.paths)
    }

    /// Adds all paths and their description.
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

/// Creates the route groups with their authentication and limits.
struct CompatibilityGroups {
    let router: Router<APIContext>
    let services: APIServices

    /// Returns a group for the paths of one system; ``ErrorStyle/paths`` must contain it.
    func group(_ path: RouterPath) -> RouterGroup<APIContext> {
        self.router.group(path)
            .add(middleware: IdentityMiddleware(credentials: self.services.credentials, accepting: .compatible))
            .add(middleware: CallRateMiddleware(rate: self.services.callRate))
            .add(middleware: BodyBudgetMiddleware(budget: self.services.bodies))
    }
}

/// The OpenAPI 3.1 description of the compatibility paths, merged from one file per system in
/// `OpenAPI/`.
package enum CompatibilityDocument {
    private static let parts: [[UInt8]] = [
        PackageResources.socketio_hybrid_json, PackageResources.allowance_json, PackageResources.breaking_news_json,
        PackageResources.task_reminders_json, PackageResources.edge_scheduler_json, PackageResources.description_json,
    ]

    /// Merges the files.
    ///
    /// - Throws: ``JSONFault`` if a file is not JSON.
    package static func make() throws(JSONFault) -> JSONValue {
        try OpenAPIDocument.make(base: PackageResources.compatibility_json, parts: self.parts)
    }
}
