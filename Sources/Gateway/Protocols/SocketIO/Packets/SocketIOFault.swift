// Carillon · SocketIOFault.swift
// SPDX-License-Identifier: Apache-2.0

/// Why the client's side broke Socket.IO 5; each closes the whole connection.
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
