// Carillon · SocketIOConnection.swift
// SPDX-License-Identifier: Apache-2.0

/// One client's connection of Socket.IO 5 on the server: the namespaces over one session of Engine.IO.
///
/// Knows no channel, no clock and no task. Each call adds to a list what is to be done, in order; the owner does it, and
/// calls ``tick(now:into:)`` when ``nextDeadline`` has come. Anything that breaks the protocol closes the whole connection.
package struct SocketIOConnection: Sendable {
    let configuration: SocketIOConfiguration
    private var decoder: SocketIODecoder
    var memberships = SocketIOMemberships()
    private var lastTicket: UInt32 = 0
    private var isClosed = false
    /// Until when a namespace must be joined; `max` while one is.
    var deadline: Milliseconds

    package init(configuration: SocketIOConfiguration, now: Milliseconds) {
        self.configuration = configuration
        self.decoder = SocketIODecoder(configuration: configuration)
        self.deadline = now + configuration.connectTimeout
    }

    /// When ``tick(now:into:)`` is due; nil if nothing is.
    package var nextDeadline: Milliseconds? { self.isClosed || self.deadline == .max ? nil : self.deadline }

    /// Whether the client is in that namespace.
    package func hasJoined(_ namespace: String = SocketIOPacket.defaultNamespace) -> Bool {
        self.memberships[namespace]?.isJoined == true
    }

    /// Closes the connection if no namespace was joined in time.
    package mutating func tick(now: Milliseconds, into actions: inout [SocketIOAction]) {
        if now >= self.deadline { self.close(.connectTimeout, into: &actions) }
    }

    /// Takes a message that the session below delivered.
    package mutating func receive(
        _ message: EngineIOMessage,
        now: Milliseconds,
        into actions: inout [SocketIOAction]
    ) {
        guard !self.isClosed else { return }
        do {
            guard let packet = try self.decoder.read(message) else { return }
            try self.receive(packet, now: now, into: &actions)
        } catch {
            self.close(.fault(error), into: &actions)
        }
    }

    private mutating func receive(
        _ packet: SocketIOPacket,
        now: Milliseconds,
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
        case .disconnect: self.leave(namespace, .clientNamespaceDisconnect, now: now, into: &actions)
        case .event(let name, let arguments, let id):
            guard self.hasJoined(namespace) else { throw .notConnected }
            actions.append(.event(namespace: namespace, name, arguments, acknowledgement: id))
        case .acknowledgement(let id, let arguments):
            guard self.hasJoined(namespace) else { throw .notConnected }
            // An id that is unknown, or was answered already, is no fault.
            guard self.memberships[namespace]?.settle(id) == true else { return }
            actions.append(.acknowledged(namespace: namespace, id, arguments))
        case .connectError: throw .connectErrorFromClient
        }
    }

    /// Puts the client out of a namespace; it will not come back by itself, and the connection stays.
    ///
    /// Does nothing if the namespace is not joined.
    package mutating func disconnect(
        _ namespace: String = SocketIOPacket.defaultNamespace,
        now: Milliseconds,
        into actions: inout [SocketIOAction]
    ) {
        guard self.hasJoined(namespace) else { return }
        Self.send(.disconnect, namespace, into: &actions)
        self.leave(namespace, .serverNamespaceDisconnect, now: now, into: &actions)
    }

    private mutating func leave(
        _ namespace: String,
        _ reason: SocketIODisconnectReason,
        now: Milliseconds,
        into actions: inout [SocketIOAction]
    ) {
        guard let membership = self.memberships[namespace] else { return }
        self.memberships[namespace] = nil
        Self.report(namespace, membership, reason, into: &actions)
        if membership.isJoined, !self.memberships.hasJoined { self.deadline = now + self.configuration.connectTimeout }
    }

    private static func report(
        _ namespace: String,
        _ membership: SocketIOMembership,
        _ reason: SocketIODisconnectReason,
        into actions: inout [SocketIOAction]
    ) {
        actions.append(
            membership.isJoined ? .left(namespace: namespace, reason) : .connectWithdrawn(membership.ticket)
        )
    }

    /// Closes the whole connection: every namespace is reported left, then the session is to be closed.
    package mutating func close(_ reason: SocketIOCloseReason, into actions: inout [SocketIOAction]) {
        guard !self.isClosed else { return }
        self.end(reason.namespace, into: &actions)
        actions.append(.close(reason))
    }

    /// The session below is over; every namespace is reported left.
    package mutating func sessionClosed(_ reason: EngineIOCloseReason, into actions: inout [SocketIOAction]) {
        guard !self.isClosed else { return }
        self.end(SocketIODisconnectReason(reason), into: &actions)
    }

    private mutating func end(_ reason: SocketIODisconnectReason, into actions: inout [SocketIOAction]) {
        self.isClosed = true
        self.deadline = .max
        for (namespace, membership) in self.memberships.all {
            Self.report(namespace, membership, reason, into: &actions)
        }
        self.memberships = SocketIOMemberships()
        self.decoder = SocketIODecoder(configuration: self.configuration)
    }

    static func send(
        _ content: SocketIOPacket.Content,
        _ namespace: String,
        into actions: inout [SocketIOAction]
    ) {
        actions.append(.send(SocketIOPacket(content, namespace: namespace).messages))
    }
}
