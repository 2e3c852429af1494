// Carillon · RequestFields.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore
import Protocols

/// The fields of a request's body: JSON under any content type, or a form.
///
/// Fields that are not asked for are left alone, as the systems replaced here do it; one that is asked for and cannot be
/// used is noted, and ``finish()`` names them all.
struct RequestFields {
    private static let limit = 256 * 1024

    let value: JSONValue
    /// Whether there was a body.
    let isPresent: Bool
    private(set) var faults: [JobFault] = []
    /// What stands before a field's name in a fault: an element's place and a dot.
    private let place: String

    init(_ value: JSONValue, at place: String = "") {
        self.value = value
        self.isPresent = true
        self.place = place
    }

    private init(absent: Void) {
        self.value = .object([])
        self.isPresent = false
        self.place = ""
    }

    // MARK: Reading

    /// Reads a body that must be an object; an empty one has no fields.
    ///
    /// - Throws: `Problem` 400 or 413.
    static func read(_ request: Request) async throws -> RequestFields {
        guard let value = try await self.readValue(request) else { return RequestFields(absent: ()) }
        guard value.object != nil else { throw Problem(.badRequest, "the body must be a JSON object") }
        return RequestFields(value)
    }

    /// Reads any JSON; nil if there is no body.
    ///
    /// - Throws: `Problem` 400 or 413.
    static func readValue(_ request: Request) async throws -> JSONValue? {
        let buffer: ByteBuffer
        do {
            buffer = try await request.body.collect(upTo: Self.limit)
        } catch is NIOTooManyBytesError {
            throw Problem(.contentTooLarge, "the body exceeds \(Self.limit) bytes")
        }
        guard buffer.readableBytes > 0 else { return nil }
        return try self.parse(Array(buffer.readableBytesView), contentType: request.headers[.contentType])
    }

    /// What a body says: JSON wherever it looks like it, since clients send it as a form or as text as well.
    ///
    /// - Throws: `Problem` 400.
    static func parse(_ bytes: [UInt8], contentType: String?) throws -> JSONValue {
        let first = bytes.first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        let looksLikeJSON = first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
        if !looksLikeJSON, contentType?.lowercased().hasPrefix("application/x-www-form-urlencoded") == true {
            guard let text = String(validating: bytes, as: UTF8.self), let form = try? RequestQuery(text),
                !form.fields.contains(where: { $0.value.utf8.contains(0) })
            else { throw Problem(.badRequest, "the body is not a well-formed form, or names a field twice") }
            return .object(form.fields.map { JSONMember($0.name, .string($0.value)) })
        }
        do throws(JSONFault) {
            return try JSONParser.parse(bytes)
        } catch {
            throw Problem(.badRequest, "the body is \(error)")
        }
    }

    // MARK: Fields

    mutating func fault(_ field: String, _ reason: String) {
        self.faults.append(JobFault(self.place + field, reason))
    }

    /// Takes over the faults of a part.
    mutating func add(_ part: RequestFields) {
        self.faults += part.faults
    }

    /// A field's text of at most `limit` characters; nil if it is absent, null or empty.
    mutating func text(_ name: String, limit: Int, isRequired: Bool = false) -> String? {
        switch self.value[name] {
        case nil, .null, .string(""):
            if isRequired { self.fault(name, "is missing") }
            return nil
        case .string(let text) where text.unicodeScalars.count <= limit && !text.utf8.contains(0): return text
        default:
            self.fault(name, "must be text of at most \(limit) characters")
            return nil
        }
    }

    /// A whole number, also as text; nil if it is absent or null.
    mutating func integer(_ name: String, isRequired: Bool = false) -> Int? {
        switch self.value[name] {
        case nil, .null:
            if isRequired { self.fault(name, "is missing") }
            return nil
        case .number(let text), .string(let text):
            if let number = Int(text) { return number }
        default: break
        }
        self.fault(name, "must be a whole number")
        return nil
    }

    /// True or false, also as text; nil if it is absent or null.
    mutating func flag(_ name: String) -> Bool? {
        switch self.value[name] {
        case nil, .null: return nil
        case .bool(let value): return value
        case .string(let text):
            if let value = QueryFlag.read(text) { return value }
        default: break
        }
        self.fault(name, "must be true or false")
        return nil
    }

    /// A time of day in whole minutes; nil if it is absent, and an inner nil if it is null or
    /// empty.
    mutating func time(_ name: String) -> Int?? {
        guard self.value[name] != nil else { return nil }
        guard let text = self.text(name, limit: 16) else { return .some(nil) }
        if let minutes = WallClock.minutes(text) { return minutes }
        self.fault(name, "must be a time such as 22:00 or 22:00:00")
        return nil
    }

    /// One of an enum's raw values, in any case; nil if it is absent or null.
    mutating func choice<Value: RawRepresentable<String> & CaseIterable>(
        _ name: String,
        of type: Value.Type,
        isRequired: Bool = false
    ) -> Value? {
        guard let text = self.text(name, limit: 64, isRequired: isRequired) else { return nil }
        if let value = Value(rawValue: text.lowercased()) { return value }
        self.fault(name, "must be one of " + Value.allCases.map(\.rawValue).joined(separator: ", "))
        return nil
    }

    /// An array of notifications' ids; nil if it is absent or null.
    mutating func notifications(_ name: String, limit: Int = 1_000) -> [NotificationID]? {
        switch self.value[name] {
        case nil, .null: return nil
        default: break
        }
        let texts = self.value[name]?.strings ?? []
        let ids = texts.compactMap { NotificationID($0) }
        if self.value[name]?.array?.count == ids.count, ids.count <= limit { return ids }
        self.fault(name, "must be an array of at most \(limit) notification ids")
        return nil
    }

    /// - Throws: `Problem` 422 with every fault.
    func finish() throws {
        guard self.faults.isEmpty else {
            throw Problem(.unprocessableContent, "some fields are at fault", faults: self.faults)
        }
    }
}

/// True and false as query strings and forms write them.
enum QueryFlag {
    static func read(_ text: some StringProtocol) -> Bool? {
        switch text.lowercased() {
        case "true", "1", "yes", "on": true
        case "false", "0", "no", "off": false
        default: nil
        }
    }
}
