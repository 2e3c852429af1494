// Carillon · APIDescription.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore

/// An OpenAPI security scheme: how a call identifies its caller.
struct SecurityScheme {
    let name: String
    let members: KeyValuePairs<String, String>

    static let bearer = SecurityScheme(
        name: "bearer",
        members: [
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "The token names the user; calls with `x-scope` require that scope.",
        ])
}

/// Collects operations as routes are added, and describes them as OpenAPI 3.1.
final class APIDescription {
    fileprivate struct Entry {
        let path: String
        let method: String
        let operation: Operation
        let tag: String
        let problems: ProblemStyle
        let isOpen: Bool
    }

    /// General members: `info`, `security` and `tags`.
    private let general: [JSONMember]
    private let schemes: [SecurityScheme]
    fileprivate var entries: [Entry] = []

    /// - Parameter security: the accepted schemes; a call needs one of them.
    init(
        title: String,
        _ summary: String,
        _ details: String,
        tags: [(name: String, description: String?)],
        security schemes: [SecurityScheme]
    ) {
        let info = [
            JSONMember("title", .string(title)), JSONMember("version", .string("1")),
            JSONMember("summary", .string(summary)), JSONMember("description", .string(details)),
            JSONMember("license", Self.object(["name": "Apache-2.0", "identifier": "Apache-2.0"])),
        ]
        let names = tags.map { tag in
            JSONValue.object(
                [JSONMember("name", .string(tag.name))]
                    + (tag.description.map { [JSONMember("description", .string($0))] } ?? []))
        }
        let security = schemes.map { JSONValue.object([JSONMember($0.name, .array([]))]) }
        self.general = [
            JSONMember("info", .object(info)), JSONMember("security", .array(security)),
            JSONMember("tags", .array(names)),
        ]
        self.schemes = schemes
    }

    private static func object(_ members: KeyValuePairs<String, String>) -> JSONValue {
        .object(members.map { JSONMember($0.key, .string($0.value)) })
    }

    /// The document of the routes so far.
    func document() -> JSONValue {
        var paths: [JSONMember] = []
        var schemas: [String: JSONValue] = [:]
        var responses: [String: JSONValue] = [:]
        for (path, entries) in self.byPath {
            var methods: [JSONMember] = []
            for entry in entries {
                var writer = OperationWriter(entry: entry)
                methods.append(JSONMember(entry.method.lowercased(), writer.operation()))
                schemas.merge(writer.schemas) { known, _ in known }
                responses.merge(writer.responses) { known, _ in known }
            }
            paths.append(JSONMember(path, .object(methods)))
        }
        let components: [JSONMember] = [
            JSONMember("securitySchemes", .object(self.schemes.map { JSONMember($0.name, Self.object($0.members)) })),
            JSONMember("responses", Self.sorted(responses)), JSONMember("schemas", Self.sorted(schemas)),
        ]
        let own = [JSONMember("paths", .object(paths)), JSONMember("components", .object(components))]
        return .object([JSONMember("openapi", .string("3.1.0"))] + self.general + own)
    }

    private static func sorted(_ members: [String: JSONValue]) -> JSONValue {
        .object(members.sorted { $0.key < $1.key }.map { JSONMember($0.key, $0.value) })
    }

    private var byPath: [(String, [Entry])] {
        var order: [String] = []
        var entries: [String: [Entry]] = [:]
        for entry in self.entries {
            if entries[entry.path] == nil { order.append(entry.path) }
            entries[entry.path, default: []].append(entry)
        }
        return order.map { ($0, entries[$0] ?? []) }
    }
}

/// Adds routes to a router and their operations to a description.
struct Routes {
    typealias Handler = @Sendable (Request, APIContext) async throws -> Response

    private let group: RouterGroup<APIContext>
    private let prefix: String
    private let description: APIDescription
    /// The subject of the calls.
    private let tag: String
    private let problems: ProblemStyle
    /// Whether the calls need no token.
    private let isOpen: Bool

    /// - Parameters:
    ///   - group: has the path `prefix`, and middleware that identifies the caller unless `isOpen`.
    init(
        _ group: RouterGroup<APIContext>,
        at prefix: String = "",
        tag: String = "",
        problems: ProblemStyle,
        isOpen: Bool = false,
        in description: APIDescription
    ) {
        self.group = group
        self.prefix = prefix
        self.tag = tag
        self.problems = problems
        self.isOpen = isOpen
        self.description = description
    }

    /// The routes below a path, about a subject.
    func group(_ path: String = "", tag: String? = nil) -> Routes {
        Routes(
            self.group.group(RouterPath(path)), at: Self.join(self.prefix, path), tag: tag ?? self.tag,
            problems: self.problems, isOpen: self.isOpen, in: self.description)
    }

    func get(_ path: String, _ operation: Operation, _ handler: @escaping Handler) {
        self.on(.get, path, operation, handler)
    }

    func post(_ path: String, _ operation: Operation, _ handler: @escaping Handler) {
        self.on(.post, path, operation, handler)
    }

    func put(_ path: String, _ operation: Operation, _ handler: @escaping Handler) {
        self.on(.put, path, operation, handler)
    }

    func patch(_ path: String, _ operation: Operation, _ handler: @escaping Handler) {
        self.on(.patch, path, operation, handler)
    }

    func delete(_ path: String, _ operation: Operation, _ handler: @escaping Handler) {
        self.on(.delete, path, operation, handler)
    }

    /// Adds a route that describes all routes so far, and itself.
    func describe(_ path: String, _ operation: Operation) {
        self.declare(.get, path, operation)
        let bytes = ByteBuffer(bytes: JSONWriter.bytes(of: self.description.document()))
        self.group.get(RouterPath(path)) { _, _ in
            Response(
                status: .ok,
                headers: [.contentType: "application/json", .cacheControl: "public, max-age=300"],
                body: ResponseBody(byteBuffer: bytes)
            )
        }
    }

    private func on(
        _ method: HTTPRequest.Method,
        _ path: String,
        _ operation: Operation,
        _ handler: @escaping Handler
    ) {
        self.declare(method, path, operation)
        let scope = operation.scope
        let log = OperatorLog(method, operation, tag: self.tag)
        // Operations with parameters read their query themselves.
        let refusesQuery = self.problems.refusesUnknownParameters && !self.isOpen && operation.queryNames.isEmpty
        self.group.on(RouterPath(path), method: method) { request, context -> Response in
            do {
                switch scope {
                case .user: break
                case .sender: try context.requireService(allowsLimited: true)
                case .service: try context.requireService()
                case .admin: try context.requireAdmin()
                }
                if refusesQuery { try FieldReader(query: request, of: operation).finish() }
                let response = try await handler(request, context)
                log?.record(response.status, request, context)
                return response
            } catch {
                log?.record(ProblemMiddleware.status(of: error), request, context)
                throw error
            }
        }
    }

    private func declare(_ method: HTTPRequest.Method, _ path: String, _ operation: Operation) {
        self.description.entries.append(
            APIDescription.Entry(
                path: Self.join(self.prefix, path), method: method.rawValue, operation: operation, tag: self.tag,
                problems: self.problems, isOpen: self.isOpen))
    }

    private static func join(_ prefix: String, _ path: String) -> String {
        path.split(separator: "/").reduce(prefix) { whole, part in
            whole + "/" + (part.first == ":" ? "{\(part.dropFirst())}" : String(part))
        }
    }
}

/// Writes one operation, and collects the components that it refers to.
private struct OperationWriter {
    let entry: APIDescription.Entry
    private(set) var schemas: [String: JSONValue] = [:]
    private(set) var responses: [String: JSONValue] = [:]

    private var declared: Operation { self.entry.operation }

    mutating func operation() -> JSONValue {
        var members: [JSONMember] = [
            JSONMember("operationId", .string(self.declared.id)),
            JSONMember("tags", .array([.string(self.entry.tag)])),
            JSONMember("summary", .string(self.declared.summary)),
        ]
        if let details = self.declared.details { members.append(JSONMember("description", .string(details))) }
        if self.entry.isOpen { members.append(JSONMember("security", .array([]))) }
        switch self.declared.scope {
        case .user: break
        case .sender, .service: members.append(JSONMember("x-scope", .string("service")))
        case .admin: members.append(JSONMember("x-scope", .string("admin")))
        }
        let parameters =
            self.parameters(self.declared.path, in: "path") + self.parameters(self.declared.query, in: "query")
            + self.parameters(self.declared.headers, in: "header")
        if !parameters.isEmpty { members.append(JSONMember("parameters", .array(parameters))) }
        if let body = self.declared.body {
            let content = self.declared.bodyTypes.map { self.content(body, type: $0) }
            let isRequired = JSONMember("required", .bool(self.declared.isBodyRequired))
            members.append(JSONMember("requestBody", .object([isRequired, JSONMember("content", .object(content))])))
        }
        members.append(JSONMember("responses", .object(self.answers())))
        return .object(members)
    }

    private mutating func parameters(_ fields: Fields, in location: String) -> [JSONValue] {
        fields.all.map { field in
            self.add(field.schema)
            let members: [JSONMember?] = [
                JSONMember("name", .string(field.name)), JSONMember("in", .string(location)),
                JSONMember("required", .bool(field.isRequired)),
                field.schema.description.map { JSONMember("description", $0) },
                JSONMember("schema", field.schema.withoutDescription),
            ]
            return .object(members.compactMap(\.self))
        }
    }

    private mutating func content(_ schema: Schema, type: String) -> JSONMember {
        self.add(schema)
        return JSONMember(type, .object([JSONMember("schema", schema.json)]))
    }

    private mutating func add(_ schema: Schema) {
        self.schemas.merge(schema.components) { known, _ in known }
    }

    // MARK: Answers

    private mutating func answers() -> [JSONMember] {
        var answers: [Int: JSONValue] = [:]
        for answer in self.declared.answers { answers[answer.status] = self.answer(answer) }
        for status in self.commonStatuses where answers[status] == nil { answers[status] = self.common(status) }
        return answers.sorted { $0.key < $1.key }.map { JSONMember(String($0.key), $0.value) }
    }

    /// The statuses of problems that need no declaration.
    private var commonStatuses: Set<Int> {
        let problems = self.entry.problems
        var statuses: Set<Int> = [500]
        if !self.entry.isOpen { statuses.formUnion([401, 503] + problems.always) }
        if self.declared.scope != .user { statuses.insert(403) }
        if self.declared.path.all.contains(where: \.schema.isText) { statuses.insert(400) }
        if !self.declared.query.all.isEmpty || problems.refusesUnknownParameters && !self.entry.isOpen {
            statuses.insert(problems.query)
        }
        if self.declared.body != nil { statuses.formUnion([400, 413, problems.body]) }
        return statuses
    }

    private mutating func answer(_ answer: Answer) -> JSONValue {
        guard let text = answer.text else { return self.common(answer.status) }
        let isProblem = answer.status >= 400 && answer.body == nil
        return self.response(
            text, isProblem ? self.entry.problems.schema : answer.body,
            type: isProblem ? "application/problem+json" : answer.type,
            headers: answer.headers + (isProblem ? Self.headers(of: answer.status) : [:]))
    }

    private static func headers(of status: Int) -> Fields {
        switch status {
        case 401: ["WWW-Authenticate": .string]
        case 429, 503: ["Retry-After": .integer("Seconds.")]
        default: [:]
        }
    }

    /// Returns a reference to the usual problem of a status.
    private mutating func common(_ status: Int) -> JSONValue {
        let problems = self.entry.problems
        let name = problems.prefix + (ProblemStyle.names[status] ?? "Problem\(status)")
        self.responses[name] = self.response(
            problems.texts[status] ?? name, problems.schema, type: "application/problem+json",
            headers: Self.headers(of: status))
        return .object([JSONMember("$ref", .string("#/components/responses/" + name))])
    }

    private mutating func response(_ text: String, _ body: Schema?, type: String, headers: Fields) -> JSONValue {
        var members = [JSONMember("description", .string(text))]
        if !headers.all.isEmpty {
            members.append(JSONMember("headers", .object(headers.all.map { Self.header($0.name, $0.schema) })))
        }
        if let body { members.append(JSONMember("content", .object([self.content(body, type: type)]))) }
        return .object(members)
    }

    private static func header(_ name: String, _ schema: Schema) -> JSONMember {
        let description = schema.description.map { [JSONMember("description", $0)] } ?? []
        return JSONMember(name, .object(description + [JSONMember("schema", schema.withoutDescription)]))
    }
}
