// Carillon · SocketIOHeader.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The text of a packet, read but for the meaning of its payload:
/// `<type>[<attachments>-][<namespace>,][<acknowledgement>][<JSON>]`.
struct SocketIOHeader {
    enum Kind {
        case connect, disconnect, event, acknowledgement, connectError
    }

    let kind: Kind
    /// Nil if the packet is not a binary one.
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

    /// Present only if a slash begins it; up to a comma or the end.
    private static func namespace(_ rest: inout ArraySlice<UInt8>, maximum: Int) throws(SocketIOFault) -> String {
        guard rest.first == UInt8(ascii: "/") else { return SocketIOPacket.defaultNamespace }
        let name = rest.prefix { $0 != UInt8(ascii: ",") }
        rest = rest.dropFirst(name.count + 1)
        // A control character could end a packet early where the name is sent back.
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
