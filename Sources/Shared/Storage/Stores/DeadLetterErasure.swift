// Carillon · DeadLetterErasure.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What the erasure of a user means for one dead letter.
enum DeadLetterErasure: Equatable {
    /// The letter does not name the user.
    case none
    /// The letter is the user's alone, or its names cannot be told apart.
    case remove
    /// The letter is for others too; these are its fields without the user.
    case replace([JSONValue])

    /// The condition of rows that may name a user, as SQL: all that do, and a few more.
    ///
    /// JSON may escape any character of a name in a list (RFC 8259 section 7), so a list with an escape may name anybody.
    ///
    /// - Parameters:
    ///   - fields: the column.
    ///   - user: the parameter.
    static func mayName(_ user: String, in fields: String) -> String {
        """
        EXISTS (
            SELECT FROM jsonb_array_elements(\(fields)) f
            WHERE f ->> 0 IN ('user', 'users', 'except', 'd') AND position(\(user)::text IN f ->> 1) > 0
                OR f ->> 0 IN ('users', 'except') AND position('\\' IN f ->> 1) > 0
        )
        """
    }

    /// - Parameter fields: `[[name, value], …]`.
    static func change(_ fields: [JSONValue], user: String) -> DeadLetterErasure {
        var isChanged = false
        var kept: [JSONValue] = []
        for field in fields {
            guard let name = field.array?.first?.string, let value = field.array?.last?.string else {
                kept.append(field)
                continue
            }
            switch name {
            case "user" where value.utf8.elementsEqual(user.utf8): return .remove
            case "d" where Self.owner(ofDelivery: value)?.utf8.elementsEqual(user.utf8) == true: return .remove
            case "users", "except":
                guard let users = (try? JSONParser.parse(Array(value.utf8)))?.strings else {
                    // A list that nobody can read, and that has the user's name somewhere in it.
                    if value.contains(user) { return .remove }
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
                let list = JSONWriter.bytes(of: .array(others.map { .string($0) }))
                kept.append(.array([.string(name), .string(String(decoding: list, as: UTF8.self))]))
            default: kept.append(field)
            }
        }
        return isChanged ? .replace(kept) : .none
    }

    /// Whose a delivery is: format, notification, device, attempt, flags, user; nil if it cannot be read.
    static func owner(ofDelivery text: String) -> Substring? {
        let parts = text.split(separator: " ", maxSplits: 5, omittingEmptySubsequences: false)
        return parts.count == 6 ? parts[5] : nil
    }
}
