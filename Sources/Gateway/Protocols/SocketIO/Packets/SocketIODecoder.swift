// Carillon · SocketIODecoder.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Makes packets of messages, and waits for the attachments of one.
///
/// Strict: what it refuses closes the connection, and after a fault it must not be used again. What it holds is bounded
/// by the configuration's attachments; an idle decoder holds nothing.
package struct SocketIODecoder: Sendable {
    /// A binary packet whose attachments are not all here.
    private struct Assembly {
        let kind: SocketIOHeader.Kind
        let namespace: String
        let acknowledgement: UInt64?
        let elements: [JSONValue]
        let expected: Int
        var attachments: [[UInt8]] = []
        var bytes = 0
    }

    // Boxed, so that an idle decoder is two words.
    private indirect enum State {
        case idle
        case assembling(Assembly)
    }

    private let configuration: SocketIOConfiguration
    private var state: State = .idle

    package init(configuration: SocketIOConfiguration) {
        self.configuration = configuration
    }

    /// Takes a message.
    ///
    /// - Returns: The packet that is complete with it, or nil if attachments are still to come.
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
            return try self.finish(assembly)
        }
    }

    private mutating func read(_ text: [UInt8]) throws(SocketIOFault) -> SocketIOPacket? {
        let header = try SocketIOHeader(text, configuration: self.configuration)
        switch header.kind {
        case .connect:
            guard header.acknowledgement == nil else { throw .acknowledgementID }
            guard header.payload == nil || header.payload?.object != nil else { throw .connectPayload }
            return SocketIOPacket(.connect(header.payload), namespace: header.namespace)
        case .disconnect:
            guard header.acknowledgement == nil else { throw .acknowledgementID }
            guard header.payload == nil else { throw .disconnectPayload }
            return SocketIOPacket(.disconnect, namespace: header.namespace)
        case .connectError:
            guard header.acknowledgement == nil else { throw .acknowledgementID }
            guard let payload = header.payload, payload.object != nil || payload.string != nil else {
                throw .connectErrorPayload
            }
            return SocketIOPacket(.connectError(payload), namespace: header.namespace)
        case .event:
            guard let elements = header.payload?.array else { throw .eventPayload }
            _ = try Self.name(elements)
            return try self.begin(header, elements)
        case .acknowledgement:
            guard let elements = header.payload?.array else { throw .acknowledgementPayload }
            guard header.acknowledgement != nil else { throw .acknowledgementID }
            return try self.begin(header, elements)
        }
    }

    private mutating func begin(_ header: SocketIOHeader, _ elements: [JSONValue]) throws(SocketIOFault)
        -> SocketIOPacket?
    {
        if let attachments = header.attachments {
            guard SocketIOPlaceholders.match(elements, attachments: attachments) else { throw .placeholders }
        }
        let assembly = Assembly(
            kind: header.kind,
            namespace: header.namespace,
            acknowledgement: header.acknowledgement,
            elements: elements,
            expected: header.attachments ?? 0
        )
        return try self.finish(assembly)
    }

    private mutating func finish(_ assembly: Assembly) throws(SocketIOFault) -> SocketIOPacket? {
        guard assembly.attachments.count == assembly.expected else {
            self.state = .assembling(assembly)
            return nil
        }
        if assembly.kind == .acknowledgement {
            guard let id = assembly.acknowledgement else { throw .acknowledgementID }
            let arguments = assembly.elements.map { SocketIOValue($0, attachments: assembly.attachments) }
            return SocketIOPacket(.acknowledgement(id, arguments), namespace: assembly.namespace)
        }
        let name = try Self.name(assembly.elements)
        let arguments = assembly.elements.dropFirst().map { SocketIOValue($0, attachments: assembly.attachments) }
        let event = SocketIOPacket.Content.event(name, arguments, acknowledgement: assembly.acknowledgement)
        return SocketIOPacket(event, namespace: assembly.namespace)
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
