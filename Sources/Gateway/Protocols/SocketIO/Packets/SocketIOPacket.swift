// Carillon · SocketIOPacket.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A packet of Socket.IO 5, its attachments already in their places.
package struct SocketIOPacket: Sendable, Equatable {
    package enum Content: Sendable, Equatable {
        /// From the client its credentials, from the server the socket's id: an object, or nothing.
        case connect(JSONValue?)
        case disconnect
        case event(SocketIOEventName, [SocketIOValue], acknowledgement: UInt64?)
        case acknowledgement(UInt64, [SocketIOValue])
        /// Only the server sends it: an object with a `message`, in old versions a text.
        case connectError(JSONValue)
    }

    /// The namespace that is never written.
    package static let defaultNamespace = "/"

    /// The largest acknowledgement id that every client can count to.
    package static let maximumAcknowledgement: UInt64 = 1 << 53 - 1

    package let namespace: String
    package let content: Content

    package init(_ content: Content, namespace: String = Self.defaultNamespace) {
        self.namespace = namespace
        self.content = content
    }

    /// The packet as messages: one text, then its attachments, which must follow without anything between.
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
