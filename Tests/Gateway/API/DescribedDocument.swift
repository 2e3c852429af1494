// Carillon · DescribedDocument.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird

@testable import HTTP

/// A description that the gateway serves, and the routes that it is of.
enum DescribedDocument: CaseIterable {
    case canonical, compatibility

    /// One method of a path.
    struct Operation {
        let path: String
        let method: String
        let value: JSONValue

        var name: String { "\(self.method) \(self.path)" }
        var responses: [JSONMember] { self.value["responses"]?.object ?? [] }
    }

    private static let methods: Set<String> = ["get", "post", "put", "patch", "delete"]

    func make() async throws -> JSONValue {
        try await OfflineServices.with { services in
            switch self {
            case .canonical: APIRouter.document(services)
            case .compatibility: CompatibilityRouter.document(services, environment: .production)
            }
        }
    }

    /// The routes, as `GET /v1/notifications/{id}`.
    func routes() async throws -> [String] {
        try await OfflineServices.with { services in
            let router: Router<APIContext>
            switch self {
            case .canonical: router = APIRouter.make(services)
            case .compatibility:
                router = Router(context: APIContext.self)
                CompatibilityRouter.add(to: router, services: services, environment: .production)
            }
            return router.routes.map { route in
                let path = route.path.description.split(separator: "/").map { part in
                    part.hasPrefix(":") ? "{\(part.dropFirst())}" : String(part)
                }
                return "\(route.method.rawValue) /\(path.joined(separator: "/"))"
            }
        }
    }

    static func operations(_ document: JSONValue) -> [Operation] {
        (document["paths"]?.object ?? []).flatMap { path in
            (path.value.object ?? []).filter { Self.methods.contains($0.key) }
                .map { Operation(path: path.key, method: $0.key.uppercased(), value: $0.value) }
        }
    }

    /// The target of a `$ref`, or the value itself.
    static func resolved(_ value: JSONValue, in document: JSONValue) -> JSONValue? {
        guard let reference = value["$ref"]?.string else { return value }
        guard reference.hasPrefix("#/") else { return nil }
        var found: JSONValue? = document
        for part in reference.dropFirst(2).split(separator: "/") { found = found?[String(part)] }
        return found
    }

    /// Every object in a value, itself included.
    static func objects(_ value: JSONValue) -> [JSONValue] {
        switch value {
        case .object(let members): [value] + members.flatMap { Self.objects($0.value) }
        case .array(let elements): elements.flatMap { Self.objects($0) }
        default: []
        }
    }
}
