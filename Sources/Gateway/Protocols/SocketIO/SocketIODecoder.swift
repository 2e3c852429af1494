// Carillon · SocketIODecoder.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Decodes messages into packets and collects their attachments.
///
/// Strict: every fault closes the connection, and the decoder must not be used after one. It holds
/// at most one packet's text and attachments, within the configuration's limits; an idle decoder
/// holds nothing.
package struct SocketIODecoder: Sendable {
    /// A binary packet that waits for attachments.
    private struct Assembly {
        /// Kept unparsed, because parsed JSON takes many times the memory.
        let text: [UInt8]
        let namespace: String
        let expected: Int
        var attachments: [[UInt8]] = []
        var bytes = 0
    }

    // Boxed, which keeps an idle decoder at two words.
    private indirect enum State {
        case idle
        case assembling(Assembly)
    }

    private let configuration: SocketIOConfiguration
    private var state: State = .idle

    package init(configuration: SocketIOConfiguration) {
        self.configuration = configuration
    }

    /// The namespace of a packet that waits for attachments; nil if none does.
    var pendingNamespace: String? {
        guard case .assembling(let assembly) = self.state else { return nil }
        return assembly.namespace
    }

    /// Decodes a message.
    ///
    /// - Returns: the complete packet, or nil if attachments are missing.
    package mutating func read(_ message: EngineIOMessage) throws(SocketIOFault) -> SocketIOPacket? {
        switch (message, self.state) {
        case (.text(let text), .idle): return try self.read(text)
        case (.text, .assembling): throw .textWithinBinary
        case (.binary, .idle): throw .unexpectedBinary
        case (.binary(let bytes), .assembling(var assembly)):
            self.state = .idle
            assembly.bytes += bytes.count
            guard assembly.bytes <= self.configuration.maximumAttachmentBytes else { throw .attachmentsTooLarge }
            assembly.attachments.append(bytes)
            guard assembly.attachments.count == assembly.expected else {
                self.state = .assembling(assembly)
                return nil
            }
            let header = try SocketIOHeader(assembly.text, configuration: self.configuration)
            return try Self.packet(header, attachments: assembly.attachments)
        }
    }

    private mutating func read(_ text: [UInt8]) throws(SocketIOFault) -> SocketIOPacket? {
        let header = try SocketIOHeader(text, configuration: self.configuration)
        let packet = try Self.packet(header, attachments: [])
        guard let expected = header.attachments else { return packet }
        let elements = header.payload?.array ?? []
        guard SocketIOPlaceholders.match(elements, attachments: expected) else { throw .placeholders }
        guard expected > 0 else { return packet }
        self.state = .assembling(Assembly(text: text, namespace: header.namespace, expected: expected))
        return nil
    }

    private static func packet(_ header: SocketIOHeader, attachments: [[UInt8]]) throws(SocketIOFault)
        -> SocketIOPacket
    {
        let namespace = header.namespace
        switch header.kind {
        case .connect:
            guard header.acknowledgement == nil else { throw .acknowledgementID }
            guard header.payload == nil || header.payload?.object != nil else { throw .connectPayload }
            return SocketIOPacket(.connect(header.payload), namespace: namespace)
        case .disconnect:
            guard header.acknowledgement == nil else { throw .acknowledgementID }
            guard header.payload == nil else { throw .disconnectPayload }
            return SocketIOPacket(.disconnect, namespace: namespace)
        case .connectError:
            guard header.acknowledgement == nil else { throw .acknowledgementID }
            guard let payload = header.payload, payload.object != nil || payload.string != nil else {
                throw .connectErrorPayload
            }
            return SocketIOPacket(.connectError(payload), namespace: namespace)
        case .event:
            guard let elements = header.payload?.array else { throw .eventPayload }
            let name = try Self.name(elements)
            let arguments = elements.dropFirst().map { SocketIOValue($0, attachments: attachments) }
            let event = SocketIOPacket.Content.event(name, arguments, acknowledgement: header.acknowledgement)
            return SocketIOPacket(event, namespace: namespace)
        case .acknowledgement:
            guard let elements = header.payload?.array else { throw .acknowledgementPayload }
            guard let id = header.acknowledgement else { throw .acknowledgementID }
            let arguments = elements.map { SocketIOValue($0, attachments: attachments) }
            return SocketIOPacket(.acknowledgement(id, arguments), namespace: namespace)
        }
    }

    private static func name(_ elements: [JSONValue]) throws(SocketIOFault) -> SocketIOEventName {
        switch elements.first {
        case .string(let text):
            guard !SocketIOEventName.reserved.contains(text) else { throw .reservedEventName }
            return .text(text)
        case .number(let text): return .number(text)
        default: throw .eventPayload
        }
    }
}

/// The parts of a packet's text, with the payload parsed but not interpreted:
/// `<type>[<attachments>-][<namespace>,][<acknowledgement>][<JSON>]`.
struct SocketIOHeader {
    enum Kind {
        case connect, disconnect, event, acknowledgement, connectError
    }

    let kind: Kind
    /// The number of attachments; nil if the packet is not binary.
    let attachments: Int?
    let namespace: String
    let acknowledgement: UInt64?
    let payload: JSONValue?

    init(_ text: [UInt8], configuration: SocketIOConfiguration) throws(SocketIOFault) {
        var rest = text[...]
        guard let type = rest.popFirst() else { throw .emptyPacket }
        switch type {
        case UInt8(ascii: "0"): self.kind = .connect
        case UInt8(ascii: "1"): self.kind = .disconnect
        case UInt8(ascii: "2"), UInt8(ascii: "5"): self.kind = .event
        case UInt8(ascii: "3"), UInt8(ascii: "6"): self.kind = .acknowledgement
        case UInt8(ascii: "4"): self.kind = .connectError
        default: throw .unknownType
        }
        let isBinary = type >= UInt8(ascii: "5")
        self.attachments = isBinary ? try Self.attachments(&rest, maximum: configuration.maximumAttachments) : nil
        self.namespace = try Self.namespace(&rest, maximum: configuration.maximumNamespaceLength)
        self.acknowledgement = try Self.acknowledgement(&rest)
        do {
            self.payload = rest.isEmpty ? nil : try JSONParser.parse(Array(rest))
        } catch {
            throw .invalidJSON
        }
    }

    private static func attachments(_ rest: inout ArraySlice<UInt8>, maximum: Int) throws(SocketIOFault) -> Int {
        let digits = Self.digits(&rest)
        guard !digits.isEmpty, rest.popFirst() == UInt8(ascii: "-") else { throw .attachmentCount }
        guard let count = Self.number(digits), count <= maximum else { throw .tooManyAttachments }
        return Int(count)
    }

    /// Reads the namespace, which starts with a slash and ends at a comma or the end.
    private static func namespace(_ rest: inout ArraySlice<UInt8>, maximum: Int) throws(SocketIOFault) -> String {
        guard rest.first == UInt8(ascii: "/") else { return SocketIOPacket.defaultNamespace }
        let name = rest.prefix { $0 != UInt8(ascii: ",") }
        rest = rest.dropFirst(name.count + 1)
        // Echoed later: a control character could end a packet early.
        guard name.count <= maximum, name.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }),
            let namespace = String(validating: name, as: UTF8.self)
        else { throw .namespace }
        return namespace
    }

    private static func acknowledgement(_ rest: inout ArraySlice<UInt8>) throws(SocketIOFault) -> UInt64? {
        let digits = Self.digits(&rest)
        guard !digits.isEmpty else { return nil }
        guard let id = Self.number(digits), id <= SocketIOPacket.maximumAcknowledgement else {
            throw .acknowledgementID
        }
        return id
    }

    private static func digits(_ rest: inout ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        let digits = rest.prefix { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
        rest = rest.dropFirst(digits.count)
        return digits
    }

    private static func number(_ digits: ArraySlice<UInt8>) -> UInt64? {
        UInt64(String(decoding: digits, as: UTF8.self))
    }
}

/// A client's violation of Socket.IO 5; each closes the whole connection.
package enum SocketIOFault: String, Error, Sendable, CaseIterable {
    case emptyPacket = "a packet without a type"
    case unknownType = "a packet of unknown type"
    case attachmentCount = "a binary packet without a count of attachments and a dash"
    case tooManyAttachments = "too many attachments"
    case attachmentsTooLarge = "too large attachments"
    case placeholders = "placeholders and attachments that do not match"
    case textWithinBinary = "a text packet while attachments are pending"
    case unexpectedBinary = "a binary message while no attachment is pending"
    case namespace = "a namespace that is too long or has control characters"
    case acknowledgementID = "an acknowledgement id that is missing, too large or out of place"
    case invalidJSON = "a payload that is not JSON"
    case connectPayload = "a CONNECT whose payload is not an object"
    case disconnectPayload = "a DISCONNECT with a payload"
    case eventPayload = "an EVENT that is not an array with a name"
    case reservedEventName = "an EVENT with a reserved name"
    case acknowledgementPayload = "an ACK that is not an array"
    case connectErrorPayload = "a CONNECT_ERROR without an object or a text"
    case alreadyConnected = "a CONNECT to a namespace that is joined or asked for"
    case notConnected = "an EVENT or ACK for a namespace that is not joined"
    case connectErrorFromClient = "a CONNECT_ERROR from the client"
}
