// Carillon · SocketIOPacket.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A Socket.IO 5 packet with its attachments in place.
package struct SocketIOPacket: Sendable, Equatable {
    /// The type of a packet, with its payload.
    package enum Content: Sendable, Equatable {
        /// The client's credentials or the server's reply with the socket's id; an object or
        /// nothing.
        case connect(JSONValue?)
        case disconnect
        case event(SocketIOEventName, [SocketIOValue], acknowledgement: UInt64?)
        case acknowledgement(UInt64, [SocketIOValue])
        /// Sent only by the server: an object with a `message`, or text in old versions.
        case connectError(JSONValue)
    }

    /// The default namespace, which packets leave out.
    package static let defaultNamespace = "/"

    /// The largest acknowledgement id that every client can represent: 2^53 - 1.
    static let maximumAcknowledgement: UInt64 = 1 << 53 - 1

    let namespace: String
    package let content: Content

    init(_ content: Content, namespace: String = Self.defaultNamespace) {
        self.namespace = namespace
        self.content = content
    }

    /// The packet's messages: one text, then its attachments, which must follow directly.
    package var messages: [EngineIOMessage] {
        var attachments: [[UInt8]] = []
        var text: [UInt8]
        switch self.content {
        case .connect(let payload):
            text = self.head("0")
            if let payload { text += JSONWriter.bytes(of: payload) }
        case .disconnect: text = self.head("1")
        case .event(let name, let arguments, let id):
            let json = Self.array(named: name, arguments, &attachments)
            text = self.head(attachments.isEmpty ? "2" : "5", attachments: attachments.count, id: id) + json
        case .acknowledgement(let id, let arguments):
            let json = Self.array(named: nil, arguments, &attachments)
            text = self.head(attachments.isEmpty ? "3" : "6", attachments: attachments.count, id: id) + json
        case .connectError(let payload): text = self.head("4") + JSONWriter.bytes(of: payload)
        }
        return [.text(text)] + attachments.map { .binary($0) }
    }

    private func head(_ type: Unicode.Scalar, attachments: Int = 0, id: UInt64? = nil) -> [UInt8] {
        var head = [UInt8(ascii: type)]
        if attachments > 0 { head += Array("\(attachments)-".utf8) }
        if self.namespace != Self.defaultNamespace { head += Array("\(self.namespace),".utf8) }
        if let id { head += Array(String(id).utf8) }
        return head
    }

    private static func array(
        named name: SocketIOEventName?,
        _ arguments: [SocketIOValue],
        _ attachments: inout [[UInt8]]
    ) -> [UInt8] {
        var writer = JSONWriter(capacity: 64)
        writer.beginArray()
        switch name {
        case .text(let text): writer.string(text)
        case .number(let text): writer.raw(text)
        case nil: break
        }
        for argument in arguments { argument.write(to: &writer, attachments: &attachments) }
        writer.endArray()
        return writer.bytes
    }
}

/// The name of an event: text, or rarely a number, kept as written.
package enum SocketIOEventName: Sendable, Hashable {
    case text(String)
    case number(String)

    /// Names reserved by clients and servers, which no packet may carry.
    package static let reserved: Set<String> = [
        "connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener",
    ]
}

extension SocketIOEventName: ExpressibleByStringLiteral {
    package init(stringLiteral text: String) {
        self = .text(text)
    }
}

/// A value of a Socket.IO event: JSON with bytes at any place.
///
/// Decoded values use ``array(_:)`` and ``object(_:)`` only around bytes; anything else is one
/// ``json(_:)``.
package enum SocketIOValue: Sendable, Equatable {
    case json(JSONValue)
    /// JSON text written as is; the caller must ensure that it is valid. Never decoded.
    case encoded([UInt8])
    case bytes([UInt8])
    case array([SocketIOValue])
    case object([Member])

    /// A key of an object, and its value.
    package struct Member: Sendable, Equatable {
        let key: String
        let value: SocketIOValue

        init(_ key: String, _ value: SocketIOValue) {
            self.key = key
            self.value = value
        }
    }

    /// Replaces placeholders with their attachments, if there are any.
    ///
    /// ``SocketIOPlaceholders`` must have checked the placeholders.
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

    /// Writes the value; bytes become placeholders and are appended to the attachments.
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

/// Placeholders for attachments in a binary packet's JSON: `{"_placeholder":true,"num":0}`.
enum SocketIOPlaceholders {
    private static let mark = "_placeholder"

    /// Returns a placeholder's number, or -1 if the number is invalid; nil if the value is not a
    /// placeholder.
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

    /// Whether the placeholders at any depth match the attachments one to one.
    ///
    /// A reused attachment would let a small packet expand to a large one; an unused one would be
    /// lost.
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
