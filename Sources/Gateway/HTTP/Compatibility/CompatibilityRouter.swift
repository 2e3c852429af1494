// Carillon · CompatibilityRouter.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird

/// The REST paths for existing clients of other systems; no path belongs to two systems.
package enum CompatibilityRouter {
    private static let summary = "The paths of five other systems, for their existing clients."
    private static let details = """
        New clients should use the API at /openapi.json. A body may be JSON under any content type, or a form. Whole \
        numbers and booleans may be strings, enum values may have any case, and unknown fields are ignored. \
        Paths may end in a slash. Errors are problem documents (RFC 9457) with the same words in \
        detail, error and message.
        """
    private static let tags: KeyValuePairs<String, String?> = [
        "socketio-hybrid": "Accounting: Socket.IO and FCM.",
        "allowance": "Family finance: SignalR and FCM.",
        "breaking-news": "Breaking news: FCM.",
        "task-reminders": "Household tasks: APNs and FCM.",
        "edge-scheduler": "Edge scheduler: tokens and events.",
        "operations": nil,
    ]
    private static let describe = Operation(
        "getCompatibilityDescription", "This description.",
        answers: [
            .ok("OpenAPI 3.1.", .anyObject),
            Answer(500, "An internal error; see the log.", .plainProblem, type: "application/problem+json"),
        ])

    /// Converts errors below these paths into the format of each system's clients.
    package static var errors: any MiddlewareProtocol<Request, Response, APIContext> {
        ErrorMiddleware()
    }

    /// The document that `GET /openapi/compatibility.json` answers.
    static func document(_ services: APIServices, environment: ProviderEnvironment) -> JSONValue {
        Self.addRoutes(to: Router(context: APIContext.self), services, environment).document()
    }

    /// Adds all paths and their description.
    ///
    /// - Parameter environment: the APNs environment of the devices that these clients register.
    package static func add(to router: Router<APIContext>, services: APIServices, environment: ProviderEnvironment) {
        Self.addRoutes(to: router, services, environment)
    }

    @discardableResult
    private static func addRoutes(
        to router: Router<APIContext>,
        _ services: APIServices,
        _ environment: ProviderEnvironment
    ) -> APIDescription {
        let description = APIDescription(
            title: "Carillon: the paths of other systems", Self.summary, Self.details,
            tags: Self.tags.map { (name: $0.key, description: $0.value) }, security: [.bearer, .token, .cookie])
        let groups = CompatibilityGroups(router: router, services: services, description: description)
        let devices = CompatibilityDevices(services: services, environment: environment)
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
        Routes(router.group(), tag: "operations", problems: .canonical, isOpen: true, in: description)
            .describe("openapi/compatibility.json", Self.describe)
        return description
    }
}

/// Creates the route groups with their authentication and limits.
struct CompatibilityGroups {
    let router: Router<APIContext>
    let services: APIServices
    let description: APIDescription

    /// Returns the routes of one system below a path, which ``ErrorStyle/paths`` must contain.
    func group(_ path: String) -> Routes {
        let group = self.router.group(RouterPath(path))
            .add(
                middleware: IdentityMiddleware(credentials: self.services.identity.credentials, accepting: .compatible)
            )
            .add(middleware: CallRateMiddleware(rate: self.services.identity.callRate))
            .add(middleware: BodyBudgetMiddleware(budget: self.services.identity.bodies))
        let style = ErrorStyle.of(path) ?? .hybrid
        return Routes(group, at: "/" + path, tag: style.system, problems: style.problems, in: self.description)
    }
}

extension SecurityScheme {
    fileprivate static let token = SecurityScheme(
        name: "token",
        members: [
            "type": "apiKey", "in": "header", "name": "Authorization",
            "description": "The same JWT after the word Token, as some clients send it.",
        ])
    fileprivate static let cookie = SecurityScheme(
        name: "cookie",
        members: [
            "type": "apiKey", "in": "cookie", "name": "session",
            "description":
                "The same JWT in the cookie named by AUTH_COOKIE; without that setting cookies are ignored. "
                + "Unsafe methods must come from an allowed origin.",
        ])
}
