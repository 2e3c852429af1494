// Carillon · RequestFields.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore
import Protocols
import Storage

/// The fields of a request's body: JSON with any content type, or a form.
///
/// Unknown fields are ignored, as the original systems did. Faults are collected, and ``finish()``
/// throws them all.
struct RequestFields {
    private static let limit = 256 * 1024

    let value: JSONValue
    /// Whether the request had a body.
    let isPresent: Bool
    private(set) var faults: [JobFault] = []
    /// The prefix of field names in faults, such as `[3].`.
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

    /// Reads a body that must be an object; an empty body has no fields.
    ///
    /// - Throws: `Problem` 400 or 413.
    static func read(_ request: Request) async throws -> RequestFields {
        guard let value = try await self.readValue(request) else { return RequestFields(absent: ()) }
        guard value.object != nil else { throw Problem(.badRequest, "the body must be a JSON object") }
        return RequestFields(value)
    }

    /// Reads any JSON; nil without a body.
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

    /// Parses a body as JSON if it looks like JSON, because clients also label it as a form or
    /// text.
    ///
    /// - Throws: `Problem` 400.
    static func parse(_ bytes: [UInt8], contentType: String?) throws -> JSONValue {
        let first = bytes.first { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        let looksLikeJSON = first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
        if !looksLikeJSON, contentType?.lowercased().hasPrefix("application/x-www-form-urlencoded") == true {
            guard let text = String(validating: bytes, as: UTF8.self), let form = try? RequestQuery(text),
                !form.fields.contains(where: { $0.value.utf8.contains(0) })
            else { throw Problem(.badRequest, "the body is not a valid form, or repeats a field") }
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

    /// Adds the faults of a part.
    mutating func add(_ part: RequestFields) {
        self.faults += part.faults
    }

    /// Returns a text of at most `limit` characters; nil if it is absent, null or empty.
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

    /// Returns a whole number, which may be a string; nil if it is absent or null.
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

    /// Returns a boolean, which may be a string; nil if it is absent or null.
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

    /// Returns a time of day in minutes; nil if it is absent, an inner nil if it is null or empty.
    mutating func time(_ name: String) -> Int?? {
        guard self.value[name] != nil else { return nil }
        guard let text = self.text(name, limit: 16) else { return .some(nil) }
        if let minutes = WallClock.minutes(text) { return minutes }
        self.fault(name, "must be a time such as 22:00 or 22:00:00")
        return nil
    }

    /// Returns a case of an enum by its raw value in any letter case; nil if it is absent or null.
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

    /// Returns an array of notification ids; nil if it is absent or null.
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

/// Booleans as in query strings and forms.
enum QueryFlag {
    static func read(_ text: some StringProtocol) -> Bool? {
        switch text.lowercased() {
        case "true", "1", "yes", "on": true
        case "false", "0", "no", "off": false
        default: nil
        }
    }
}

/// The page of an inbox that a query requests.
struct PageQuery: Equatable {
    var offset: Int
    var limit: Int
    var unreadOnly: Bool

    private static let tooFar =
        "must not exceed \(InboxStore.furthestOffset) notifications; use the cursor of GET /v1/notifications"

    /// Reads `offset`, `limit` and `unread_only`.
    ///
    /// A limit above the largest is reduced to it.
    ///
    /// - Throws: `Problem` with every fault.
    static func byOffset(_ query: RequestQuery) throws -> PageQuery {
        var faults: [JobFault] = []
        let offset = Self.number(query, "offset", fallback: 0, in: 0...Int.max, &faults)
        let limit = Self.number(query, "limit", fallback: 20, in: 1...Int.max, &faults)
        if offset > InboxStore.furthestOffset { faults.append(JobFault("offset", Self.tooFar)) }
        let unreadOnly = Self.flag(query, "unread_only", &faults)
        try Self.finish(faults)
        return PageQuery(offset: offset, limit: min(limit, 100), unreadOnly: unreadOnly)
    }

    /// Reads `page` (from 1), `pageSize` and `unreadOnly`.
    ///
    /// A page below 1 counts as 1; a size above the largest is reduced to it.
    ///
    /// - Throws: `Problem` with every fault.
    static func byPage(_ query: RequestQuery) throws -> PageQuery {
        var faults: [JobFault] = []
        let page = max(Self.number(query, "page", fallback: 1, in: Int.min...Int.max, &faults), 1)
        let size = min(Self.number(query, "pageSize", fallback: 20, in: 1...Int.max, &faults), 50)
        // The first comparison prevents an overflow of the product.
        if page - 1 > InboxStore.furthestOffset || (page - 1) * size > InboxStore.furthestOffset {
            faults.append(JobFault("page", Self.tooFar))
        }
        let unreadOnly = Self.flag(query, "unreadOnly", &faults)
        try Self.finish(faults)
        return PageQuery(offset: (page - 1) * size, limit: size, unreadOnly: unreadOnly)
    }

    private static func number(
        _ query: RequestQuery,
        _ name: String,
        fallback: Int,
        in range: ClosedRange<Int>,
        _ faults: inout [JobFault]
    ) -> Int {
        guard let text = query[name] else { return fallback }
        if let number = Int(text), range.contains(number) { return number }
        let bound = range.lowerBound == .min ? "" : " from \(range.lowerBound)"
        faults.append(JobFault(name, "must be a whole number\(bound)"))
        return fallback
    }

    private static func flag(_ query: RequestQuery, _ name: String, _ faults: inout [JobFault]) -> Bool {
        guard let text = query[name] else { return false }
        if let flag = QueryFlag.read(text) { return flag }
        faults.append(JobFault(name, "must be true or false"))
        return false
    }

    private static func finish(_ faults: [JobFault]) throws {
        guard faults.isEmpty else { throw Problem(.unprocessableContent, "invalid query parameters", faults: faults) }
    }
}

/// Times of day in minutes after midnight.
enum WallClock {
    /// Returns `22:00:00`, the format of databases and .NET.
    static func text(_ minutes: Int) -> String {
        func two(_ value: Int) -> String { (value < 10 ? "0" : "") + String(value) }
        return "\(two(minutes / 60)):\(two(minutes % 60)):00"
    }

    /// Parses `22:00`, `22:00:00` or `22:00:00.0000000` into minutes after midnight.
    ///
    /// Seconds must be zero; nil if the text is invalid.
    static func minutes(_ text: String) -> Int? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard (2...3).contains(parts.count), parts[0].utf8.count == 2, parts[1].utf8.count == 2,
            text.utf8.first != UInt8(ascii: "+"), parts[1].utf8.first != UInt8(ascii: "+"),
            let hours = UInt8(parts[0]), let minutes = UInt8(parts[1]), hours < 24, minutes < 60
        else { return nil }
        if parts.count == 3 {
            guard parts[2].hasPrefix("00"), parts[2].allSatisfy({ $0 == "0" || $0 == "." }) else { return nil }
        }
        return Int(hours) * 60 + Int(minutes)
    }
}
