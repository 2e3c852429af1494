// Carillon · SocketIOStateMachine.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The timeouts and limits of a server's connections; a reference type, so that connections share
/// it.
package final class SocketIOConfiguration: Sendable {
    /// The time until a connection must have joined its first namespace.
    let connectTimeout: Milliseconds
    /// The attachments of one packet; more close the connection.
    let maximumAttachments: Int
    /// The bytes of all attachments of one packet; more close the connection.
    let maximumAttachmentBytes: Int
    /// The namespaces joined or requested; a further CONNECT is refused.
    let maximumNamespaces: Int
    /// The bytes of a namespace's name; a longer name closes the connection.
    let maximumNamespaceLength: Int
    /// Whether `pid` and `offset` in a CONNECT request recovery.
    let offersRecovery: Bool

    package init(
        connectTimeout: Milliseconds = 10_000,
        maximumAttachments: Int = 10,
        maximumAttachmentBytes: Int = 1_000_000,
        maximumNamespaces: Int = 16,
        maximumNamespaceLength: Int = 256,
        offersRecovery: Bool = false
    ) {
        self.connectTimeout = connectTimeout
        self.maximumAttachments = max(maximumAttachments, 0)
        self.maximumAttachmentBytes = maximumAttachmentBytes
        self.maximumNamespaces = maximumNamespaces
        self.maximumNamespaceLength = maximumNamespaceLength
        self.offersRecovery = offersRecovery
    }
}

/// A client's Socket.IO 5 connection on the server: its namespaces over one Engine.IO session.
///
/// Pure: no channel, no clock, no task. Each call appends actions to a list; the owner carries them
/// out in order and calls ``tick(now:into:)`` at ``nextDeadline``. Any protocol violation closes
/// the whole connection.
package struct SocketIOStateMachine: Sendable {
    /// The time for all attachments of a packet.
    private static let attachmentTimeout: Milliseconds = 30_000

    private let configuration: SocketIOConfiguration
    private var decoder: SocketIODecoder
    private var memberships = SocketIOMemberships()
    private var lastTicket: UInt32 = 0
    private var isClosed = false
    /// The deadline for joining the first namespace; `max` once one was joined.
    private var deadline: Milliseconds
    /// The deadline for the attachments of a packet; `max` while none is missing.
    private var attachmentDeadline: Milliseconds = .max

    package init(configuration: SocketIOConfiguration, now: Milliseconds) {
        self.configuration = configuration
        self.decoder = SocketIODecoder(configuration: configuration)
        self.deadline = now + configuration.connectTimeout
    }

    /// The time of the next ``tick(now:into:)``; nil if none is due.
    package var nextDeadline: Milliseconds? {
        let next = min(self.deadline, self.attachmentDeadline)
        return self.isClosed || next == .max ? nil : next
    }

    /// Whether the client has joined the namespace.
    package func hasJoined(_ namespace: String = SocketIOPacket.defaultNamespace) -> Bool {
        self.memberships[namespace]?.isJoined == true
    }

    /// Closes the connection if attachments are late, or if the client has not joined its first
    /// namespace in time.
    ///
    /// While the owner still decides about a request, the close lets the client try again. An
    /// identified client gets more time instead, because only the owner is slow.
    package mutating func tick(now: Milliseconds, into actions: inout [SocketIOAction]) {
        guard now < self.attachmentDeadline else { return self.close(.forcedClose, into: &actions) }
        guard now >= self.deadline else { return }
        if self.memberships.all.contains(where: \.membership.isIdentified) {
            self.deadline = now + self.configuration.connectTimeout
            return
        }
        self.close(self.memberships.count > 0 ? .tryAgainLater : .forcedClose, into: &actions)
    }

    /// Handles a message from the session.
    package mutating func receive(
        _ message: EngineIOMessage,
        now: Milliseconds,
        into actions: inout [SocketIOAction]
    ) {
        guard !self.isClosed else { return }
        do {
            let packet = try self.decoder.read(message)
            if let namespace = self.decoder.pendingNamespace {
                // Holds no part of a packet before the owner has accepted the client.
                guard self.hasJoined(namespace) else { throw SocketIOFault.notConnected }
                self.attachmentDeadline = min(self.attachmentDeadline, now + Self.attachmentTimeout)
            } else {
                self.attachmentDeadline = .max
            }
            guard let packet else { return }
            try self.receive(packet, into: &actions)
        } catch {
            self.close(.parseError, into: &actions)
        }
    }

    private mutating func receive(
        _ packet: SocketIOPacket,
        into actions: inout [SocketIOAction]
    ) throws(SocketIOFault) {
        let namespace = packet.namespace
        switch packet.content {
        case .connect(let payload):
            guard self.memberships[namespace] == nil else { throw .alreadyConnected }
            guard self.memberships.count < self.configuration.maximumNamespaces else {
                return Self.send(.connectError(Self.refusal("Too many namespaces", nil)), namespace, into: &actions)
            }
            self.lastTicket &+= 1
            let request = SocketIOConnectRequest(
                ticket: .init(number: self.lastTicket),
                namespace: namespace,
                payload: payload,
                offersRecovery: self.configuration.offersRecovery
            )
            self.memberships[namespace] = SocketIOMembership(ticket: request.ticket)
            actions.append(.connectRequested(request))
        case .disconnect: self.leave(namespace, into: &actions)
        case .event(let name, let arguments, let id):
            guard self.hasJoined(namespace) else { throw .notConnected }
            actions.append(.event(namespace: namespace, name, arguments, acknowledgement: id))
        case .acknowledgement:
            // The server awaits no acknowledgement, and an unknown id is not a fault.
            guard self.hasJoined(namespace) else { throw .notConnected }
        case .connectError: throw .connectErrorFromClient
        }
    }

    /// Removes the client from a namespace; it does not reconnect on its own, and the connection
    /// stays open.
    ///
    /// Does nothing if the namespace is not joined.
    package mutating func disconnect(
        _ namespace: String = SocketIOPacket.defaultNamespace,
        into actions: inout [SocketIOAction]
    ) {
        guard self.hasJoined(namespace) else { return }
        Self.send(.disconnect, namespace, into: &actions)
        self.leave(namespace, into: &actions)
    }

    private mutating func leave(_ namespace: String, into actions: inout [SocketIOAction]) {
        guard let membership = self.memberships[namespace] else { return }
        self.memberships[namespace] = nil
        Self.report(namespace, membership, into: &actions)
    }

    private static func report(
        _ namespace: String,
        _ membership: SocketIOMembership,
        into actions: inout [SocketIOAction]
    ) {
        actions.append(membership.isJoined ? .left(namespace: namespace) : .connectWithdrawn(membership.ticket))
    }

    /// Closes the whole connection: reports every namespace as left, then asks to close the
    /// session.
    package mutating func close(_ reason: EngineIOCloseReason, into actions: inout [SocketIOAction]) {
        guard !self.isClosed else { return }
        self.sessionClosed(into: &actions)
        actions.append(.close(reason))
    }

    /// Ends the connection after its session; reports every namespace as left.
    package mutating func sessionClosed(into actions: inout [SocketIOAction]) {
        self.isClosed = true
        self.deadline = .max
        for (namespace, membership) in self.memberships.all {
            Self.report(namespace, membership, into: &actions)
        }
        self.memberships = SocketIOMemberships()
        self.decoder = SocketIODecoder(configuration: self.configuration)
    }

    private static func send(
        _ content: SocketIOPacket.Content,
        _ namespace: String,
        into actions: inout [SocketIOAction]
    ) {
        actions.append(.send(SocketIOPacket(content, namespace: namespace).messages))
    }
}

extension SocketIOStateMachine {
    /// The refusal message for an unknown namespace.
    package static let unknownNamespace = "Invalid namespace"

    /// Notes that the owner knows the client of an undecided request.
    package mutating func identify(_ ticket: SocketIOConnectRequest.Ticket) {
        guard let namespace = self.memberships.namespace(of: ticket) else { return }
        self.memberships[namespace]?.isIdentified = true
    }

    /// Accepts the client into the requested namespace.
    ///
    /// - Parameters:
    ///   - sid: the socket's id in this namespace, never the session's. A recovered client gets its
    ///     old id.
    ///   - recovery: makes the client recoverable; missed events are sent before the reply.
    /// - Returns: false, without sending, if the request was withdrawn.
    @discardableResult
    package mutating func accept(
        _ ticket: SocketIOConnectRequest.Ticket,
        sid: String,
        recovery: SocketIORecoveryGrant? = nil,
        into actions: inout [SocketIOAction]
    ) -> Bool {
        guard let namespace = self.memberships.namespace(of: ticket) else { return false }
        self.memberships[namespace]?.isJoined = true
        self.deadline = .max
        var messages: [EngineIOMessage] = []
        for missed in recovery?.missed ?? [] {
            let arguments = missed.arguments + [.json(.string(missed.offset))]
            let event = SocketIOPacket.Content.event(missed.name, arguments, acknowledgement: nil)
            messages += SocketIOPacket(event, namespace: namespace).messages
        }
        var reply = [JSONMember("sid", .string(sid))]
        if let recovery { reply.append(JSONMember("pid", .string(recovery.pid))) }
        messages += SocketIOPacket(.connect(.object(reply)), namespace: namespace).messages
        actions.append(.send(messages))
        return true
    }

    /// Refuses the requested namespace; the connection stays open, and the client may ask again.
    ///
    /// - Returns: false, without sending, if the request was withdrawn.
    @discardableResult
    package mutating func refuse(
        _ ticket: SocketIOConnectRequest.Ticket,
        message: String,
        data: JSONValue? = nil,
        into actions: inout [SocketIOAction]
    ) -> Bool {
        guard let namespace = self.memberships.namespace(of: ticket) else { return false }
        self.memberships[namespace] = nil
        Self.send(.connectError(Self.refusal(message, data)), namespace, into: &actions)
        return true
    }

    /// Sends an event.
    ///
    /// - Returns: false, without sending, if the namespace is not joined.
    @discardableResult
    package func emit(
        _ name: SocketIOEventName,
        _ arguments: [SocketIOValue] = [],
        to namespace: String = SocketIOPacket.defaultNamespace,
        into actions: inout [SocketIOAction]
    ) -> Bool {
        guard self.hasJoined(namespace) else { return false }
        Self.send(.event(name, arguments, acknowledgement: nil), namespace, into: &actions)
        return true
    }

    /// Acknowledges an event of the client; call this once for each event that wants it.
    ///
    /// - Returns: false, without sending, if the client has left the namespace.
    @discardableResult
    package func acknowledge(
        _ id: UInt64,
        with arguments: [SocketIOValue] = [],
        in namespace: String = SocketIOPacket.defaultNamespace,
        into actions: inout [SocketIOAction]
    ) -> Bool {
        guard self.hasJoined(namespace) else { return false }
        Self.send(.acknowledgement(id, arguments), namespace, into: &actions)
        return true
    }

    private static func refusal(_ message: String, _ data: JSONValue?) -> JSONValue {
        let members = [JSONMember("message", .string(message))]
        return .object(members + (data.map { [JSONMember("data", $0)] } ?? []))
    }
}
