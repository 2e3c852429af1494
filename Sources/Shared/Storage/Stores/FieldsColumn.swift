// Carillon · FieldsColumn.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An entry's fields as a `jsonb` column: `[[name, value], …]`, since names may repeat; bytes that
/// are not text are `{"base64": "…"}`.
enum FieldsColumn {
    static func json<Bytes: Collection<UInt8>>(_ fields: [(name: String, value: Bytes)]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginArray()
        for field in fields {
            writer.beginArray()
            Self.write(field.name.utf8, to: &writer)
            Self.write(field.value, to: &writer)
            writer.endArray()
        }
        writer.endArray()
        return writer.bytes
    }

    private static func write(_ bytes: some Collection<UInt8>, to writer: inout JSONWriter) {
        // `jsonb` has no U+0000.
        if !bytes.contains(0), let text = String(validating: bytes, as: UTF8.self) {
            writer.string(text)
        } else {
            writer.beginObject()
            writer.member("base64", Base64.standard.encode(bytes))
            writer.endObject()
        }
    }

    static func fields(_ json: [UInt8]) -> [(name: String, value: [UInt8])] {
        Self.values(json).compactMap { field in
            guard let parts = field.array, parts.count == 2 else { return nil }
            return (String(decoding: Self.bytes(parts[0]), as: UTF8.self), Self.bytes(parts[1]))
        }
    }

    /// An SQL condition for the fields of a job that is an event.
    ///
    /// The path is strict, because a lax one would also match values.
    static func isEvent(_ column: String) -> String { #"\#(column) @? 'strict $[*] ? (@[0] == "event")'"# }

    /// Parses the column as stored JSON, because a dead letter may have values that no job may
    /// have.
    static func values(_ json: [UInt8]) -> [JSONValue] { (try? JSONParser.parse(stored: json))?.array ?? [] }

    /// The bytes of a stored name or value.
    static func bytes(_ value: JSONValue?) -> [UInt8] {
        if let text = value?.string { return Array(text.utf8) }
        return value?["base64"]?.string.flatMap { Base64.standard.decodePadded($0.utf8) } ?? []
    }
}

/// The change to the fields of one row when a user is erased.
enum FieldsErasure: Equatable {
    /// The fields do not name the user.
    case none
    /// The row is for this user alone, or it names others in a form that cannot be parsed.
    case remove
    /// The row names others too; these are its fields without the user.
    case replace([JSONValue])

    /// An SQL condition for rows that may name a user; it has false positives.
    ///
    /// JSON may escape any character of a name (RFC 8259 section 7), so a list with an escape may
    /// name any user. So may a list that is not UTF-8, which is stored as an object. The field
    /// `job` is the whole text of a row of an outbox.
    ///
    /// - Parameters:
    ///   - user: the parameter.
    ///   - fields: the column.
    static func mayName(_ user: String, in fields: String) -> String {
        """
        EXISTS (
            SELECT FROM jsonb_array_elements(\(fields)) f
            WHERE f ->> 0 IN ('user', 'users', 'except', 'd', 'job') AND position(\(user)::text IN f ->> 1) > 0
                OR f ->> 0 IN ('users', 'except', 'job')
                    AND (position('\\' IN f ->> 1) > 0 OR jsonb_typeof(f -> 1) = 'object')
        )
        """
    }

    /// - Parameter fields: `[[name, value], …]`.
    static func change(_ fields: [JSONValue], user: String) -> FieldsErasure {
        var isChanged = false
        var kept: [JSONValue] = []
        for field in fields {
            guard let name = field.array?.first?.string else {
                kept.append(field)
                continue
            }
            let value = FieldsColumn.bytes(field.array?.last)
            switch ExactText(name) {
            case "user" where value.elementsEqual(user.utf8): return .remove
            case "d" where Self.owner(ofDelivery: value)?.elementsEqual(user.utf8) == true: return .remove
            case "job" where Self.names(user, inJob: value): return .remove
            case "users", "except":
                guard let users = (try? JSONParser.parse(stored: value))?.strings else {
                    // The list cannot be parsed but contains the user's name.
                    if Self.contains(user, in: value) { return .remove }
                    kept.append(field)
                    continue
                }
                let others = users.filter { !$0.utf8.elementsEqual(user.utf8) }
                guard others.count < users.count else {
                    kept.append(field)
                    continue
                }
                if others.isEmpty, name == "users" { return .remove }
                isChanged = true
                // The decoder refuses an empty list.
                guard !others.isEmpty else { continue }
                let list = JSONWriter.bytes(of: .array(others.map { .string($0) }))
                kept.append(.array([.string(name), .string(String(decoding: list, as: UTF8.self))]))
            default: kept.append(field)
            }
        }
        return isChanged ? .replace(kept) : .none
    }

    /// Whether a list that cannot be parsed contains a name, as it is or with its quotes and
    /// backslashes escaped.
    static func contains(_ user: String, in list: [UInt8]) -> Bool {
        let escaped = JSONWriter.bytes(of: .string(user)).dropFirst().dropLast()
        return list.contains(user.utf8) || list.contains(escaped)
    }

    /// Whether the text of a row of an outbox has a name as one of its strings.
    ///
    /// A part of a string does not count: a short name is part of most texts.
    static func names(_ user: String, inJob json: [UInt8]) -> Bool {
        json.contains(JSONWriter.bytes(of: .string(user)))
    }

    /// The user of a delivery's text (format, notification, device, attempt, flags, user); nil if
    /// it cannot be read.
    static func owner(ofDelivery text: [UInt8]) -> ArraySlice<UInt8>? {
        let parts = text.split(separator: UInt8(ascii: " "), maxSplits: 5, omittingEmptySubsequences: false)
        return parts.count == 6 ? parts[5] : nil
    }
}
