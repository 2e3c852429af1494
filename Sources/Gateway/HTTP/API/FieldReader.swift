// Carillon · FieldReader.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore
import Protocols

/// Reads the fields of a body or a query, and collects every fault.
struct FieldReader {
    /// How clients write values.
    private enum Style {
        /// As the OpenAPI description declares them.
        case strict
        /// As the strings of a query.
        case query
        /// As clients of other systems do: numbers and booleans as strings, words in any letter
        /// case, empty text for none.
        case lenient
    }

    /// The most faults that an answer names.
    static let mostFaults = 100

    let value: JSONValue
    /// Whether the request had a body.
    let isPresent: Bool
    private(set) var faults: [JobFault] = []
    /// The prefix of field names in faults, such as `devices[3].`.
    private let prefix: String
    private let style: Style

    private init(_ value: JSONValue, _ style: Style, prefix: String = "", isPresent: Bool = true) {
        self.value = value
        self.style = style
        self.prefix = prefix
        self.isPresent = isPresent
    }

    /// - Throws: ``Problem`` 400 if it is no object.
    init(_ value: JSONValue) throws {
        guard value.object != nil else { throw Problem(.badRequest, "the body must be a JSON object") }
        self.init(value, .strict)
    }

    /// A part of a body at `path`; a fault if it is no object.
    init(_ value: JSONValue, at path: String) {
        self.init(value, .strict, prefix: path.isEmpty ? "" : path + ".")
        if value.object == nil { self.faults.append(JobFault(path, "must be an object")) }
    }

    /// Reads a body; a member that the operation does not declare is a fault.
    ///
    /// - Throws: ``Problem`` 400 or 413.
    init(body request: Request, of operation: Operation) async throws {
        try self.init(try await Self.body(request, isRequired: operation.body != nil && operation.isBodyRequired))
        self.allow(operation.bodyNames)
    }

    /// Reads a query; a parameter that the operation does not declare is a fault, as is a repeated
    /// one.
    init(query request: Request, of operation: Operation) {
        do throws(QueryFault) {
            let fields = try RequestQuery(request.uri.query ?? "").fields
            self.init(.object(fields.map { JSONMember($0.name, .string($0.value)) }), .query)
            self.refuse(
                unknown: fields.map(\.name).filter { !operation.queryNames.contains($0) }, known: operation.queryNames)
        } catch {
            self.init(.object([]), .query)
            self.fault(error.name, error.reason)
        }
    }

    /// Values of another system's client, such as an element at `prefix`.
    init(lenient value: JSONValue, prefix: String = "") {
        self.init(value, .lenient, prefix: prefix)
    }

    init(lenient query: RequestQuery) {
        self.init(.object(query.fields.map { JSONMember($0.name, .string($0.value)) }), .lenient)
    }

    /// Reads the body of another system's client, an object or a form; an empty body has no fields.
    ///
    /// - Throws: ``Problem`` 400 or 413.
    init(lenientBody request: Request) async throws {
        let value = try await Self.lenientBody(request)
        if let value, value.object == nil { throw Problem(.badRequest, "the body must be a JSON object") }
        self.init(value ?? .object([]), .lenient, isPresent: value != nil)
    }

    // MARK: Faults

    /// Adds a fault, unless there are a hundred already.
    mutating func fault(_ field: String, _ reason: String) {
        guard self.faults.count < Self.mostFaults else { return }
        self.faults.append(JobFault(self.prefix + field, reason))
    }

    /// Adds the faults of a part.
    mutating func add(_ part: FieldReader) {
        for fault in part.faults { self.fault(fault.field, fault.reason) }
    }

    private mutating func absent(_ name: String, _ isRequired: Bool) {
        if isRequired { self.fault(name, "is missing") }
    }

    /// Adds a fault for each member that the schema does not have.
    mutating func allow(_ schema: Schema) {
        self.allow(schema.names)
    }

    /// Adds a fault for each member that is not among `names`.
    mutating func allow(_ names: Set<String>) {
        self.refuse(unknown: (self.value.object ?? []).map(\.key).filter { !names.contains($0) }, known: names)
    }

    /// Adds a fault for each unknown name; only the first lists the known ones, which may be many.
    private mutating func refuse(unknown: [String], known: Set<String>) {
        for (index, name) in unknown.enumerated() {
            let hint = index > 0 || known.isEmpty ? "" : "; use one of \(known.sorted().joined(separator: ", "))"
            self.fault(String(name.prefix(64)), "is unknown" + hint)
        }
    }

    /// - Throws: ``Problem`` with every fault: 400 for a query, else 422.
    func finish() throws {
        guard !self.faults.isEmpty else { return }
        throw Problem(self.style == .query ? .badRequest : .unprocessableContent, faults: self.faults)
    }
}

// MARK: Fields

extension FieldReader {
    /// Returns text of 1 to `limit` characters; nil if it is absent or null.
    mutating func text(_ name: String, limit: Int, isRequired: Bool = false) -> String? {
        switch self.value[name] {
        case nil, .null: self.absent(name, isRequired)
        case .string("") where self.style == .lenient: self.absent(name, isRequired)
        case .string(let text) where (1...limit).contains(text.unicodeScalars.count) && !text.utf8.contains(0):
            return text
        default:
            self.fault(name, "must be text of \(self.style == .lenient ? "at most" : "1 to") \(limit) characters")
        }
        return nil
    }

    /// Returns a case of an enum by its raw value; nil if it is absent or null.
    mutating func choice<Value: RawRepresentable<String> & CaseIterable>(
        _ name: String,
        of type: Value.Type,
        isRequired: Bool = false
    ) -> Value? {
        guard let text = self.text(name, limit: 64, isRequired: isRequired) else { return nil }
        if let value = Value(rawValue: self.style == .lenient ? text.lowercased() : text) { return value }
        self.fault(name, "must be one of " + Value.allCases.map(\.rawValue).joined(separator: ", "))
        return nil
    }

    /// Returns a whole number; nil if it is absent or null.
    mutating func integer(
        _ name: String,
        in range: ClosedRange<Int64> = .min ... .max,
        isRequired: Bool = false
    ) -> Int64? {
        var number: Int64?
        switch self.value[name] {
        case nil, .null:
            self.absent(name, isRequired)
            return nil
        case .string(let text) where self.style == .lenient || !text.hasPrefix("+"):
            if self.style != .strict { number = Int64(text) }
        case let value?: number = value.integer
        }
        if let number, range.contains(number) { return number }
        let from = range.lowerBound == .min ? "" : " from \(range.lowerBound)"
        let to = range.upperBound == .max ? "" : " to \(range.upperBound)"
        self.fault(name, "must be a whole number\(from)\(to)")
        return nil
    }

    /// Returns a boolean; nil if it is absent or null.
    mutating func flag(_ name: String) -> Bool? {
        switch self.value[name] {
        case nil, .null: return nil
        case .bool(let value): return value
        case .string(let text):
            if let value = self.flag(of: text) { return value }
        default: break
        }
        self.fault(name, "must be true or false")
        return nil
    }

    private func flag(of text: String) -> Bool? {
        switch (self.style, self.style == .lenient ? text.lowercased() : text) {
        case (.query, "true"), (.lenient, "true"), (.lenient, "1"), (.lenient, "yes"), (.lenient, "on"): true
        case (.query, "false"), (.lenient, "false"), (.lenient, "0"), (.lenient, "no"), (.lenient, "off"): false
        default: nil
        }
    }

    /// Returns an RFC 3339 time; nil if it is absent or null.
    mutating func moment(_ name: String) -> Timestamp? {
        guard let text = self.text(name, limit: 64) else { return nil }
        if let moment = Timestamp(rfc3339: text) { return moment }
        self.fault(name, "must be an RFC 3339 time such as 2026-11-20T10:00:00Z")
        return nil
    }

    /// Returns the id that a page gave as `next_cursor`; nil if it is absent.
    mutating func cursor() -> Identifier? {
        guard let text = self.text("cursor", limit: 64) else { return nil }
        if let id = Identifier(text) { return id }
        self.fault("cursor", "must be next_cursor of a page")
        return nil
    }

    /// Returns how many elements a page may have.
    mutating func limit() -> Int { Int(self.integer("limit", in: 1...100) ?? 20) }

    /// Returns the elements of an array, at most `limit`; empty if it is absent or null.
    mutating func elements(_ name: String, limit: Int, isRequired: Bool = false) -> [JSONValue] {
        switch self.value[name] {
        case nil, .null: self.absent(name, isRequired)
        case .array(let elements) where elements.count <= limit && (!isRequired || !elements.isEmpty):
            return elements
        default: self.fault(name, "must be an array of \(isRequired ? 1 : 0) to \(limit) elements")
        }
        return []
    }

    /// Returns `least` to `limit` notification ids; nil if they are absent or null.
    mutating func notifications(_ name: String, atLeast least: Int = 0, limit: Int = 1_000) -> [NotificationID]? {
        switch self.value[name] {
        case nil, .null: return nil
        default: break
        }
        let ids = (self.value[name]?.strings ?? []).compactMap { NotificationID($0) }
        if self.value[name]?.array?.count == ids.count, ids.count >= least, ids.count <= limit { return ids }
        self.fault(name, "must be an array of \(least) to \(limit) notification ids")
        return nil
    }
}

// MARK: Bodies

extension FieldReader {
    private static let largestBody = 1024 * 1024
    private static let largestLenientBody = 256 * 1024

    /// Reads a JSON body; an empty one counts as `{}` unless it is required.
    ///
    /// - Parameter limit: the most bytes.
    /// - Throws: ``Problem`` 400 or 413.
    static func body(_ request: Request, isRequired: Bool = true, limit: Int = Self.largestBody) async throws
        -> JSONValue
    {
        let bytes = try await self.bytes(request, limit: limit)
        guard bytes.isEmpty else { return try self.parse(bytes) }
        if isRequired { throw Problem(.badRequest, "the body is missing") }
        return .object([])
    }

    /// Reads the body of another system's client; nil without a body.
    ///
    /// - Throws: ``Problem`` 400 or 413.
    static func lenientBody(_ request: Request) async throws -> JSONValue? {
        let bytes = try await self.bytes(request, limit: Self.largestLenientBody)
        return bytes.isEmpty ? nil : try self.parse(bytes, contentType: request.headers[.contentType])
    }

    /// Parses a body as JSON if it looks like JSON, because clients also label it as a form or
    /// text.
    ///
    /// - Throws: ``Problem`` 400.
    static func parse(_ bytes: [UInt8], contentType: String?) throws -> JSONValue {
        let first = bytes.first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        let looksLikeJSON = first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
        let isForm = contentType?.lowercased().hasPrefix("application/x-www-form-urlencoded") == true
        guard isForm, !looksLikeJSON else { return try self.parse(bytes) }
        guard let text = String(validating: bytes, as: UTF8.self), let form = try? RequestQuery(text),
            !form.fields.contains(where: { $0.value.utf8.contains(0) })
        else { throw Problem(.badRequest, "the body is not a valid form, or repeats a field") }
        return .object(form.fields.map { JSONMember($0.name, .string($0.value)) })
    }

    private static func bytes(_ request: Request, limit: Int) async throws -> [UInt8] {
        Array(try await request.completeBody(upTo: limit).readableBytesView)
    }

    private static func parse(_ bytes: [UInt8]) throws -> JSONValue {
        do throws(JSONFault) {
            return try JSONParser.parse(bytes)
        } catch {
            throw Problem(.badRequest, "the body is \(error)")
        }
    }
}

extension Request {
    /// Reads the body to its end.
    ///
    /// - Throws: ``Problem``: 413 if it is longer than `limit`, 400 if the connection ends before
    ///   the body does, 503 if the gateway stops, and the errors of middleware that wraps the body.
    func completeBody(upTo limit: Int) async throws -> ByteBuffer {
        do {
            return try await self.body.collect(upTo: limit)
        } catch let problem as Problem {
            throw problem
        } catch is NIOTooManyBytesError {
            throw Problem(.contentTooLarge, "the body exceeds \(limit) bytes")
        } catch is CancellationError {
            throw Problem(.serviceUnavailable, "the gateway is stopping; try again", retryAfter: 1)
        } catch {
            throw Problem(.badRequest, "the connection ended before the body did")
        }
    }
}

extension RequestQuery {
    /// Parses the query of a request.
    ///
    /// - Throws: ``Problem`` 400 that names the invalid part.
    init(of request: Request) throws {
        do throws(QueryFault) {
            try self.init(request.uri.query ?? "")
        } catch {
            throw Problem(.badRequest, error.description, faults: [JobFault(error.name, error.reason)])
        }
    }
}
