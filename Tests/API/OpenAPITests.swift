// Carillon · OpenAPITests.swift
// SPDX-License-Identifier: Apache-2.0

import API
import HTTPTypes
import Hummingbird
import JSON
import Testing

/// The description says what the routes do, neither more nor less.
@Suite("OpenAPI", .timeLimit(.minutes(10)))
struct OpenAPITests {
    private struct Operation {
        let path: String
        let method: String
        let value: JSONValue

        var name: String { "\(self.method) \(self.path)" }
        var responses: [JSONMember] { self.value["responses"]?.object ?? [] }
    }

    private static let methods: Set<String> = ["get", "post", "put", "patch", "delete"]

    private static func operations(_ document: JSONValue) -> [Operation] {
        (document["paths"]?.object ?? []).flatMap { path in
            (path.value.object ?? []).filter { Self.methods.contains($0.key) }
                .map { Operation(path: path.key, method: $0.key.uppercased(), value: $0.value) }
        }
    }

    /// What a `$ref` names, or the value itself.
    private static func resolved(_ value: JSONValue, in document: JSONValue) -> JSONValue? {
        guard let reference = value["$ref"]?.string else { return value }
        guard reference.hasPrefix("#/") else { return nil }
        var found: JSONValue? = document
        for part in reference.dropFirst(2).split(separator: "/") { found = found?[String(part)] }
        return found
    }

    /// Every object in a value, itself included.
    private static func objects(_ value: JSONValue) -> [JSONValue] {
        switch value {
        case .object(let members): [value] + members.flatMap { Self.objects($0.value) }
        case .array(let elements): elements.flatMap { Self.objects($0) }
        default: []
        }
    }

    @Test("every route has an operation, and every operation a route")
    func routes() async throws {
        let document = try OpenAPIDocument.make()
        let described = Self.operations(document).map(\.name)
        #expect(Set(described).count == described.count)
        let routes = try await TestServices.with { services in
            APIRouter.make(services, refusesOtherMethods: false).routes.map { route in
                let path = route.path.description.split(separator: "/").map { part in
                    part.hasPrefix(":") ? "{\(part.dropFirst())}" : String(part)
                }
                return "\(route.method.rawValue) /\(path.joined(separator: "/"))"
            }
        }
        #expect(routes.count > 20)
        #expect(Set(routes).subtracting(described).isEmpty, "describe these in Sources/Gateway/API/OpenAPI")
        #expect(Set(described).subtracting(routes).isEmpty, "nobody serves these")
    }

    @Test("every operation has a name of its own, an answer that is good, and problem documents for the others")
    func answers() throws {
        let document = try OpenAPIDocument.make()
        var names: Set<String> = []
        for operation in Self.operations(document) {
            let name = try #require(operation.value["operationId"]?.string, "\(operation.name)")
            #expect(names.insert(name).inserted, "\(name)")
            #expect(operation.value["summary"]?.string?.isEmpty == false, "\(operation.name)")
            let statuses = operation.responses.compactMap { Int($0.key) }
            #expect(statuses.count == operation.responses.count, "\(operation.name)")
            #expect(statuses.contains { $0 < 300 }, "\(operation.name)")
            #expect(statuses.contains(500), "\(operation.name)")
            let isOpen = operation.value["security"]?.array?.isEmpty == true
            #expect(statuses.contains(401) == !isOpen, "\(operation.name)")
            #expect(statuses.contains(403) || operation.value["x-scope"] == nil, "\(operation.name)")
            if operation.value["requestBody"] != nil {
                #expect(Set([400, 413, 422]).isSubset(of: statuses), "\(operation.name)")
            }
            for response in operation.responses where (Int(response.key) ?? 0) >= 400 {
                // Readiness is told in its own words.
                if operation.path == "/readyz", response.key == "503" { continue }
                let resolved = try #require(Self.resolved(response.value, in: document))
                let content = resolved["content"]?.object?.map(\.key)
                #expect(content == ["application/problem+json"], "\(operation.name) \(response.key)")
            }
        }
    }

    @Test("every reference leads somewhere, and every list says how long it may be")
    func schemas() throws {
        let document = try OpenAPIDocument.make()
        #expect(document["openapi"]?.string == "3.1.0")
        for object in Self.objects(document) {
            if let reference = object["$ref"]?.string {
                #expect(Self.resolved(object, in: document) != nil, "\(reference)")
            }
            let types = object["type"]?.string.map { [$0] } ?? object["type"]?.strings ?? []
            guard types.contains("array") else { continue }
            // The export is as long as what is stored; it is written as it is read.
            let isBounded = object["maxItems"]?.integer != nil || object["x-streamed"] == .bool(true)
            #expect(isBounded, "\(object)")
        }
    }

    @Test("parameters in the path are those of the path")
    func parameters() throws {
        let document = try OpenAPIDocument.make()
        for operation in Self.operations(document) {
            let parameters = (operation.value["parameters"]?.array ?? []).compactMap {
                Self.resolved($0, in: document)
            }
            let named = parameters.filter { $0["in"]?.string == "path" }.compactMap { $0["name"]?.string }
            let parts = operation.path.split(separator: "/").filter { $0.hasPrefix("{") }
            #expect(named.sorted() == parts.map { String($0.dropFirst().dropLast()) }.sorted(), "\(operation.name)")
        }
    }
}
