// Carillon · JSONBody.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore

/// The body of a request as a JSON object, with checked access to its members.
struct JSONBody {
    static let limit = 1024 * 1024

    let value: JSONValue
    private let prefix: String
    private(set) var faults: [JobFault] = []

    /// Reads and parses a body.
    ///
    /// - Parameters:
    ///   - isRequired: whether an empty body is a fault; otherwise it counts as `{}`.
    ///   - limit: bytes that it may have.
    ///
    /// - Throws: ``Problem`` 400 or 413.
    static func read(_ request: Request, isRequired: Bool = false, limit: Int = Self.limit) async throws
        -> JSONValue
    {
        let buffer: ByteBuffer
        do {
            buffer = try await request.body.collect(upTo: limit)
        } catch is NIOTooManyBytesError {
            throw Problem(.contentTooLarge, "the body exceeds \(limit) bytes")
        }
        guard buffer.readableBytes > 0 else {
            if isRequired { throw Problem(.badRequest, "the body is missing") }
            return .object([])
        }
        do throws(JSONFault) {
            return try JSONParser.parse(Array(buffer.readableBytesView))
        } catch {
            throw Problem(.badRequest, "the body is \(error)")
        }
    }

    /// - Throws: ``Problem`` 400 if it is no object.
    init(_ value: JSONValue) throws {
        guard value.object != nil else { throw Problem(.badRequest, "the body must be a JSON object") }
        self.value = value
        self.prefix = ""
    }

    /// A part of a body, whose faults name their fields with `path` before them; what is no object is a fault.
    init(_ value: JSONValue, at path: String) {
        self.value = value
        self.prefix = path.isEmpty ? "" : path + "."
        if value.object == nil { self.faults.append(JobFault(path, "must be an object")) }
    }

    mutating func fault(_ field: String, _ reason: String) {
        self.faults.append(JobFault(self.prefix + field, reason))
    }

    /// The elements of a member, at most `limit`; empty if it is absent or null.
    mutating func elements(_ name: String, limit: Int, isRequired: Bool = false) -> [JSONValue] {
        switch self.value[name] {
        case nil, .null:
            if isRequired { self.fault(name, "is missing") }
            return []
        case .array(let elements) where elements.count <= limit && (!isRequired || !elements.isEmpty):
            return elements
        default:
            self.fault(name, "must be an array of \(isRequired ? 1 : 0) to \(limit) elements")
            return []
        }
    }

    /// Notes members that are none of `names`.
    mutating func allow(_ names: Set<String>) {
        for member in self.value.object ?? [] where !names.contains(member.key) {
            self.fault(String(member.key.prefix(64)), "is not a field here")
        }
    }

    /// A member's text of 1 to `limit` characters; nil if it is absent or null.
    mutating func text(_ name: String, limit: Int, isRequired: Bool = false) -> String? {
        switch self.value[name] {
        case nil, .null:
            if isRequired { self.fault(name, "is missing") }
            return nil
        case .string(let text) where (1...limit).contains(text.unicodeScalars.count):
            return text
        default:
            self.fault(name, "must be text of 1 to \(limit) characters")
            return nil
        }
    }

    /// A member out of an enum's raw values.
    mutating func choice<Value: RawRepresentable<String> & CaseIterable>(
        _ name: String,
        of type: Value.Type,
        isRequired: Bool = false
    ) -> Value? {
        guard let text = self.text(name, limit: 64, isRequired: isRequired) else { return nil }
        if let value = Value(rawValue: text) { return value }
        self.fault(name, "must be one of " + Value.allCases.map(\.rawValue).joined(separator: ", "))
        return nil
    }

    /// A boolean; nil if it is absent or null.
    mutating func flag(_ name: String) -> Bool? {
        switch self.value[name] {
        case nil, .null: return nil
        case .bool(let value): return value
        default:
            self.fault(name, "must be true or false")
            return nil
        }
    }

    /// - Throws: ``Problem`` 422 with every fault.
    func finish() throws {
        guard self.faults.isEmpty else {
            throw Problem(.unprocessableContent, "some fields are at fault", faults: self.faults)
        }
    }
}
