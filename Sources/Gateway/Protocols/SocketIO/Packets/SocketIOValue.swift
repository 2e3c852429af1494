// Carillon · SocketIOValue.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A value of a Socket.IO event: JSON in which bytes may stand at any place.
///
/// What is read has ``array(_:)`` and ``object(_:)`` only around bytes: a part without any is one ``json(_:)``.
package enum SocketIOValue: Sendable, Equatable {
    case json(JSONValue)
    /// JSON text, written as it is; whoever makes it answers for it. Never read.
    case encoded([UInt8])
    case bytes([UInt8])
    case array([SocketIOValue])
    case object([Member])

    package struct Member: Sendable, Equatable {
        package let key: String
        package let value: SocketIOValue

        package init(_ key: String, _ value: SocketIOValue) {
            self.key = key
            self.value = value
        }
    }

    /// Puts the attachments where the placeholders are, or does nothing if there are none.
    ///
    /// The placeholders must have been checked by ``SocketIOPlaceholders``.
    init(_ json: JSONValue, attachments: [[UInt8]]) {
        guard !attachments.isEmpty else {
            self = .json(json)
            return
        }
        if let number = SocketIOPlaceholders.number(of: json) {
            self = attachments.indices.contains(number) ? .bytes(attachments[number]) : .json(json)
            return
        }
        switch json {
        case .array(let elements):
            let values = elements.map { SocketIOValue($0, attachments: attachments) }
            self = values.allSatisfy(\.isJSON) ? .json(json) : .array(values)
        case .object(let members):
            let values = members.map { Member($0.key, SocketIOValue($0.value, attachments: attachments)) }
            self = values.allSatisfy(\.value.isJSON) ? .json(json) : .object(values)
        default: self = .json(json)
        }
    }

    private var isJSON: Bool {
        if case .json = self { return true }
        return false
    }

    /// Writes the value; bytes become placeholders and are added to the attachments, once for each place.
    func write(to writer: inout JSONWriter, attachments: inout [[UInt8]]) {
        switch self {
        case .json(let value): writer.value(value)
        case .encoded(let text): writer.raw(text)
        case .bytes(let bytes):
            SocketIOPlaceholders.write(attachments.count, to: &writer)
            attachments.append(bytes)
        case .array(let values):
            writer.beginArray()
            for value in values { value.write(to: &writer, attachments: &attachments) }
            writer.endArray()
        case .object(let members):
            writer.beginObject()
            for member in members {
                writer.key(escaping: member.key)
                member.value.write(to: &writer, attachments: &attachments)
            }
            writer.endObject()
        }
    }
}
