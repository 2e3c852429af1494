// Carillon · SocketIOPacket.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A Socket.IO 5 packet from a client.
///
/// Events carry only JSON, so a packet with attachments is a fault.
package struct SocketIOPacket: Sendable, Equatable {
    /// The type of a packet, with its payload.
    package enum Content: Sendable, Equatable {
        /// The client's credentials; an object or nothing.
        case connect(JSONValue?)
        case disconnect
        /// An event's name, which is text or rarely a number, and its arguments.
        case event(String, [JSONValue], acknowledgement: UInt64?)
        /// The answer is not kept, because the server awaits none.
        case acknowledgement
    }

    /// The only namespace that clients can join; packets leave it out.
    static let defaultNamespace = "/"

    /// Names reserved by clients and servers, which no event may have.
    package static let reservedNames: Set<String> = [
        "connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener",
    ]

    let namespace: String
    package let content: Content

    /// Decodes the text of a packet.
    package init(_ text: [UInt8]) throws(SocketIOFault) {
        let header = try SocketIOHeader(text)
        self.namespace = header.namespace
        switch header.kind {
        case .connect:
            guard header.acknowledgement == nil else { throw .acknowledgementID }
            guard header.payload == nil || header.payload?.object != nil else { throw .connectPayload }
            self.content = .connect(header.payload)
        case .disconnect:
            guard header.acknowledgement == nil else { throw .acknowledgementID }
            guard header.payload == nil else { throw .disconnectPayload }
            self.content = .disconnect
        case .event:
            guard let elements = header.payload?.array else { throw .eventPayload }
            let name = try Self.name(elements.first)
            self.content = .event(name, Array(elements.dropFirst()), acknowledgement: header.acknowledgement)
        case .acknowledgement:
            guard header.payload?.array != nil else { throw .acknowledgementPayload }
            guard header.acknowledgement != nil else { throw .acknowledgementID }
            self.content = .acknowledgement
        }
    }

    private static func name(_ element: JSONValue?) throws(SocketIOFault) -> String {
        switch element {
        case .string(let text):
            guard !Self.reservedNames.contains(text) else { throw .reservedEventName }
            return text
        case .number(let text): return text
        default: throw .eventPayload
        }
    }
}

/// The parts of a packet's text, with the payload parsed but not interpreted:
/// `<type>[<namespace>,][<acknowledgement>][<JSON>]`.
private struct SocketIOHeader {
    enum Kind {
        case connect, disconnect, event, acknowledgement
    }

    /// The bytes of a namespace's name.
    private static let maximumNamespaceLength = 256
    /// The largest acknowledgement id that every client can represent.
    private static let maximumAcknowledgement: UInt64 = 1 << 53 - 1

    let kind: Kind
    let namespace: String
    let acknowledgement: UInt64?
    let payload: JSONValue?

    init(_ text: [UInt8]) throws(SocketIOFault) {
        var rest = text[...]
        guard let type = rest.popFirst() else { throw .emptyPacket }
        switch type {
        case UInt8(ascii: "0"): self.kind = .connect
        case UInt8(ascii: "1"): self.kind = .disconnect
        case UInt8(ascii: "2"): self.kind = .event
        case UInt8(ascii: "3"): self.kind = .acknowledgement
        case UInt8(ascii: "4"): throw .connectErrorFromClient
        case UInt8(ascii: "5"), UInt8(ascii: "6"): throw .attachments
        default: throw .unknownType
        }
        self.namespace = try Self.namespace(&rest)
        self.acknowledgement = try Self.acknowledgement(&rest)
        do {
            self.payload = rest.isEmpty ? nil : try JSONParser.parse(Array(rest))
        } catch {
            throw .invalidJSON
        }
    }

    /// Reads the namespace, which starts with a slash and ends at a comma or the end.
    private static func namespace(_ rest: inout ArraySlice<UInt8>) throws(SocketIOFault) -> String {
        guard rest.first == UInt8(ascii: "/") else { return SocketIOPacket.defaultNamespace }
        let name = rest.prefix { $0 != UInt8(ascii: ",") }
        rest = rest.dropFirst(name.count + 1)
        // Echoed later: a control character could end a packet early.
        guard name.count <= Self.maximumNamespaceLength, name.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }),
            let namespace = String(validating: name, as: UTF8.self)
        else { throw .namespace }
        return namespace
    }

    private static func acknowledgement(_ rest: inout ArraySlice<UInt8>) throws(SocketIOFault) -> UInt64? {
        let digits = rest.prefix { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
        guard !digits.isEmpty else { return nil }
        rest = rest.dropFirst(digits.count)
        guard let id = UInt64(String(decoding: digits, as: UTF8.self)), id <= Self.maximumAcknowledgement else {
            throw .acknowledgementID
        }
        return id
    }
}

/// A client's violation of Socket.IO 5; each closes the whole connection.
package enum SocketIOFault: String, Error, Sendable {
    case emptyPacket = "a packet without a type"
    case unknownType = "a packet of unknown type"
    case attachments = "a packet with attachments"
    case namespace = "a namespace that is too long or has control characters"
    case acknowledgementID = "an acknowledgement id that is missing, too large or out of place"
    case invalidJSON = "a payload that is not JSON"
    case connectPayload = "a CONNECT whose payload is not an object"
    case disconnectPayload = "a DISCONNECT with a payload"
    case eventPayload = "an EVENT that is not an array with a name"
    case reservedEventName = "an EVENT with a reserved name"
    case acknowledgementPayload = "an ACK that is not an array"
    case alreadyConnected = "a CONNECT to a namespace that is joined or asked for"
    case notConnected = "an EVENT or ACK for a namespace that is not joined"
    case connectErrorFromClient = "a CONNECT_ERROR from the client"
}
