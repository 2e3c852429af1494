// Carillon · OpenAPITests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Testing

/// The descriptions say what the routes do, neither more nor less.
@Suite("OpenAPI", .timeLimit(.minutes(10)))
struct OpenAPITests {
    @Test("every route has an operation, and every operation a route", arguments: DescribedDocument.allCases)
    func routes(_ described: DescribedDocument) async throws {
        let names = DescribedDocument.operations(try await described.make()).map(\.name)
        #expect(Set(names).count == names.count)
        let routes = try await described.routes()
        #expect(routes.count > 20)
        #expect(Set(routes).subtracting(names).isEmpty, "describe these")
        #expect(Set(names).subtracting(routes).isEmpty, "no route serves these")
    }

    @Test(
        "every operation has a unique name, a success answer and problem documents",
        arguments: DescribedDocument.allCases)
    func answers(_ described: DescribedDocument) async throws {
        let document = try await described.make()
        var names: Set<String> = []
        for operation in DescribedDocument.operations(document) {
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
                #expect(Set([400, 413]).isSubset(of: statuses), "\(operation.name)")
                // Some of the other systems call invalid fields a bad request as well.
                #expect(statuses.contains(422) || described == .compatibility, "\(operation.name)")
            }
            if described == .compatibility, !isOpen {
                // A foreign page may send a cookie, a user may call too often, and a token may not
                // be verifiable.
                #expect(Set([403, 429, 503]).isSubset(of: statuses), "\(operation.name)")
            }
            for response in operation.responses where (Int(response.key) ?? 0) >= 400 {
                // Readiness has its own format, and people read the page of a refused link.
                if ["GET /readyz 503", "GET /v1/unsubscribe 400"].contains("\(operation.name) \(response.key)") {
                    continue
                }
                let resolved = try #require(DescribedDocument.resolved(response.value, in: document))
                let content = resolved["content"]?.object?.map(\.key)
                #expect(content == ["application/problem+json"], "\(operation.name) \(response.key)")
            }
        }
    }

    @Test(
        "every reference resolves and every list is bounded",
        arguments: DescribedDocument.allCases)
    func schemas(_ described: DescribedDocument) async throws {
        let document = try await described.make()
        #expect(document["openapi"]?.string == "3.1.0")
        for object in DescribedDocument.objects(document) {
            if let reference = object["$ref"]?.string {
                #expect(DescribedDocument.resolved(object, in: document) != nil, "\(reference)")
            }
            let members = (object["properties"]?.object ?? []).map(\.key)
            #expect(Set(members).count == members.count, "\(members)")
            let types = object["type"]?.string.map { [$0] } ?? object["type"]?.strings ?? []
            guard types.contains("array") else { continue }
            // The export is as long as what is stored; it is written as it is read.
            let isBounded = object["maxItems"]?.integer != nil || object["x-streamed"] == .bool(true)
            #expect(isBounded, "\(object)")
        }
    }

    @Test("path and component names are unique", arguments: DescribedDocument.allCases)
    func names(_ described: DescribedDocument) async throws {
        let document = try await described.make()
        let components = (document["components"]?.object ?? []).map(\.value)
        for members in [document["paths"] ?? .null] + components {
            let names = (members.object ?? []).map(\.key)
            #expect(Set(names).count == names.count, "\(names)")
        }
    }

    @Test("the schema of a job has every field that docs/jobs.md explains, and no other")
    func jobFields() async throws {
        let file = URL(filePath: #filePath).appending(path: "../../../../docs/jobs.md").standardized
        let section = try String(contentsOf: file, encoding: .utf8).split(separator: "## Fields")[1]
        let rows = section.split(separator: "\n## ")[0].split(separator: "\n").filter { $0.hasPrefix("| `") }
        let names = rows.flatMap { row in
            row.split(separator: "|")[0].split(separator: "`").enumerated().filter { $0.offset % 2 == 1 }
                .map { String($0.element) }
        }
        let schemas = try await DescribedDocument.canonical.make()["components"]?["schemas"]
        let properties = schemas?["Job"]?["properties"]?.object ?? []
        #expect(Set(properties.map(\.key)) == Set(names))
    }

    @Test("the schema of every JSON body of /v1 is closed, as its route refuses unknown members")
    func closedBodies() async throws {
        let document = try await DescribedDocument.canonical.make()
        for operation in DescribedDocument.operations(document) {
            let content = operation.value["requestBody"]?["content"]
            guard let schema = content?["application/json"]?["schema"] else { continue }
            let forms = Self.forms(of: schema, in: document)
            #expect(!forms.isEmpty, "\(operation.name)")
            #expect(forms.allSatisfy { $0["additionalProperties"] == .bool(false) }, "\(operation.name)")
        }
    }

    @Test("an optional member of a JSON body of /v1 may be null, except for the lists of preferences")
    func nullMembers() async throws {
        let document = try await DescribedDocument.canonical.make()
        var names: [String] = []
        for operation in DescribedDocument.operations(document) {
            let content = operation.value["requestBody"]?["content"]
            guard let schema = content?["application/json"]?["schema"] else { continue }
            for form in Self.forms(of: schema, in: document) {
                for member in form["properties"]?.object ?? [] {
                    let isRequired = form["required"]?.strings?.contains(member.key) == true
                    let types = [member.value] + (member.value["oneOf"]?.array ?? [])
                    let mayBeNull = types.contains {
                        $0["type"] == .string("null") || $0["type"]?.strings?.contains("null") == true
                    }
                    if !isRequired, !mayBeNull { names.append("\(operation.name) \(member.key)") }
                }
            }
        }
        #expect(names == ["PUT /v1/preferences types", "PUT /v1/preferences categories"])
    }

    /// The schemas of the objects that a body may be or hold as elements.
    private static func forms(of schema: JSONValue, in document: JSONValue) -> [JSONValue] {
        guard let schema = DescribedDocument.resolved(schema, in: document) else { return [] }
        var parts = schema["oneOf"]?.array ?? []
        if let element = schema["items"] { parts.append(element) }
        return parts.isEmpty ? [schema] : parts.flatMap { Self.forms(of: $0, in: document) }
    }

    @Test("docs/rest.md lists every operation with its scope, and no other")
    func reference() async throws {
        var described: [String: String] = [:]
        for document in DescribedDocument.allCases {
            for operation in DescribedDocument.operations(try await document.make()) {
                let scope = operation.value["x-scope"]?.string ?? "user"
                #expect((scope == "admin") == operation.path.hasPrefix("/v1/admin/"), "\(operation.name)")
                described[Self.call(operation.method[...], operation.path[...])] = scope
            }
        }
        let file = URL(filePath: #filePath).appending(path: "../../../../docs/rest.md").standardized
        var listed: [String: String] = [:]
        var usual = "user"
        for row in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") {
            if row.hasPrefix("| call") { usual = row.hasPrefix("| call (all admin)") ? "admin" : "user" }
            guard row.hasPrefix("| `") else { continue }
            let mark = row.prefixMatch(of: #/\| [^|]*\((service|admin)\)/#)?.output.1
            for call in Self.calls(of: row) { listed[call] = mark.map { String($0) } ?? usual }
        }
        #expect(listed.count > 100)
        #expect(Set(described.keys).subtracting(listed.keys).isEmpty, "add these to docs/rest.md")
        #expect(Set(listed.keys).subtracting(described.keys).isEmpty, "no route serves these")
        for (call, scope) in described {
            #expect((listed[call] ?? scope) == scope, "correct the scope of \(call) in docs/rest.md")
        }
    }

    /// The calls in a row's first column, as "`GET`, `PUT /path`" or "`GET /path`, `/other`".
    private static func calls(of row: Substring) -> [String] {
        let parts = row.split(separator: "|")[0].split(separator: "`", omittingEmptySubsequences: false)
        var methods: [Substring] = []
        var isComplete = true
        var calls: [String] = []
        for (index, code) in parts.enumerated() where !index.isMultiple(of: 2) {
            guard let match = code.wholeMatch(of: #/([A-Z]+)? ?(/\S*)?/#) else { continue }
            if let method = match.output.1 {
                methods = isComplete ? [method] : methods + [method]
                isComplete = false
            }
            if let path = match.output.2 {
                calls += methods.map { Self.call($0, path) }
                isComplete = true
            }
        }
        return calls
    }

    /// A call without the query, the names of parameters and a slash at the end of the path.
    private static func call(_ method: Substring, _ path: Substring) -> String {
        let bare = path.prefix { $0 != "?" }.replacing(#/\{[^}]*\}/#, with: "{}")
        return "\(method) \(bare.hasSuffix("/") ? bare.dropLast() : bare)"
    }

    @Test("devices and their reports name a provider of devices")
    func deviceProviders() async throws {
        let schemas = try await DescribedDocument.canonical.make()["components"]?["schemas"]
        for name in ["DeviceRegistration", "ClientReport"] {
            let words = schemas?[name]?["properties"]?["provider"]?["enum"]?.array ?? []
            #expect(words.compactMap(\.string) == ["fcm", "apns", "webpush", "webhook"], "\(name)")
        }
    }

    @Test("path parameters match the path", arguments: DescribedDocument.allCases)
    func parameters(_ described: DescribedDocument) async throws {
        let document = try await described.make()
        for operation in DescribedDocument.operations(document) {
            let parameters = (operation.value["parameters"]?.array ?? []).compactMap {
                DescribedDocument.resolved($0, in: document)
            }
            let named = parameters.filter { $0["in"]?.string == "path" }.compactMap { $0["name"]?.string }
            let parts = operation.path.split(separator: "/").filter { $0.hasPrefix("{") }
            #expect(named.sorted() == parts.map { String($0.dropFirst().dropLast()) }.sorted(), "\(operation.name)")
        }
    }
}
