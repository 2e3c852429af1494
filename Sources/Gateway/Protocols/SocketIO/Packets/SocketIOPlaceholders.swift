// Carillon · SocketIOPlaceholders.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Where the JSON of a binary packet says that an attachment belongs: `{"_placeholder":true,"num":0}`.
enum SocketIOPlaceholders {
    private static let mark = "_placeholder"

    /// The number of a placeholder, -1 if it has none that counts; nil if the value is no placeholder.
    static func number(of json: JSONValue) -> Int? {
        guard json[Self.mark] == .bool(true) else { return nil }
        return json["num"]?.integer.flatMap { Int(exactly: $0) } ?? -1
    }

    static func write(_ number: Int, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("_placeholder", true)
        writer.member("num", number)
        writer.endObject()
    }

    /// Whether the placeholders, at any depth, and so many attachments match one to one.
    ///
    /// An attachment used twice would let a small packet stand for a large one; one used nowhere would be lost.
    static func match(_ elements: [JSONValue], attachments: Int) -> Bool {
        var isUsed = [Bool](repeating: false, count: attachments)
        return elements.allSatisfy { Self.take($0, &isUsed) } && isUsed.allSatisfy { $0 }
    }

    private static func take(_ json: JSONValue, _ isUsed: inout [Bool]) -> Bool {
        if let number = Self.number(of: json) {
            guard isUsed.indices.contains(number), !isUsed[number] else { return false }
            isUsed[number] = true
            return true
        }
        switch json {
        case .array(let elements):
            for element in elements { guard Self.take(element, &isUsed) else { return false } }
        case .object(let members):
            for member in members { guard Self.take(member.value, &isUsed) else { return false } }
        default: break
        }
        return true
    }
}
