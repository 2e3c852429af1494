// Carillon · SocketIOStateMachine.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The options of a server's connections; a reference type, so that connections share it.
package final class SocketIOConfiguration: Sendable {
    /// The time a connection may stay without joining.
    let connectTimeout: Milliseconds
    /// Whether `pid` and `offset` in a CONNECT request recovery.
    let offersRecovery: Bool

    package init(connectTimeout: Milliseconds = 10_000, offersRecovery: Bool = false) {
        self.connectTimeout = connectTimeout
        self.offersRecovery = offersRecovery
    }
}

/// A client's Socket.IO 5 connection on the server: the default namespace over one Engine.IO
/// session.
///
/// Pure: no channel, no clock, no task. Each call appends actions to a list; the owner carries them
/// out in order and calls ``tick(now:into:)`` at ``nextDeadline``. Any protocol violation closes
/// the whole connection.
package struct SocketIOStateMachine: Sendable {
    /// A client's request to join, and its place once the owner has accepted it.
    private struct Membership {
        let ticket: SocketIOConnectRequest.Ticket
        /// Whether the owner knows the client.
        var isIdentified = false
        /// False while the owner decides.
        var isJoined = false

        /// The report of its end.
        var end: SocketIOAction { self.isJoined ? .left : .connectWithdrawn(self.ticket) }
    }

    private let configuration: SocketIOConfiguration
    private var membership: Membership?
    private var lastTicket: UInt32 = 0
    private var isClosed = false
    /// The deadline for joining; `max` once the client has joined.
    private var deadline: Milliseconds

    package init(configuration: SocketIOConfiguration, now: Milliseconds) {
        self.configuration = configuration
        self.deadline = now + configuration.connectTimeout
    }

    /// The time of the next ``tick(now:into:)``; nil if none is due.
    package var nextDeadline: Milliseconds? { self.isClosed || self.deadline == .max ? nil : self.deadline }

    package var hasJoined: Bool { self.membership?.isJoined == true }

    /// Closes the connection if the client has not joined in time; if the owner still decides, the
    /// client may try again.
    ///
    /// An identified client gets more time, because only the owner is slow.
    package mutating func tick(now: Milliseconds, into actions: inout [SocketIOAction]) {
        guard now >= self.deadline else { return }
        if self.membership?.isIdentified == true {
            self.deadline = now + self.configuration.connectTimeout
            return
        }
        self.close(self.membership == nil ? .forcedClose : .tryAgainLater, into: &actions)
    }

    /// Handles a message from the session.
    package mutating func receive(_ message: [UInt8], now: Milliseconds, into actions: inout [SocketIOAction]) {
        guard !self.isClosed else { return }
        do {
            try self.handle(SocketIOPacket(message), now: now, into: &actions)
        } catch {
            self.close(.parseError, into: &actions)
        }
    }

    private mutating func handle(
        _ packet: SocketIOPacket,
        now: Milliseconds,
        into actions: inout [SocketIOAction]
    ) throws(SocketIOFault) {
        let isDefault = packet.namespace == SocketIOPacket.defaultNamespace
        switch packet.content {
        case .connect where !isDefault:
            Self.send("4\(packet.namespace),", Self.refusal("Invalid namespace", nil), into: &actions)
        case .connect(let payload):
            guard self.membership == nil else { throw .alreadyConnected }
            self.lastTicket &+= 1
            let request = SocketIOConnectRequest(
                ticket: .init(number: self.lastTicket),
                payload: payload,
                offersRecovery: self.configuration.offersRecovery
            )
            self.membership = Membership(ticket: request.ticket)
            actions.append(.connectRequested(request))
        case .disconnect: if isDefault { self.leave(now: now, into: &actions) }
        case .event(let name, let arguments, let id):
            guard isDefault, self.hasJoined else { throw .notConnected }
            actions.append(.event(name, arguments, acknowledgement: id))
        case .acknowledgement:
            // The server awaits none; an unknown id is not a fault.
            guard isDefault, self.hasJoined else { throw .notConnected }
        }
    }

    /// Removes the client; it does not reconnect on its own, and the connection stays open.
    ///
    /// Does nothing if the client has not joined.
    package mutating func disconnect(now: Milliseconds, into actions: inout [SocketIOAction]) {
        guard self.hasJoined else { return }
        actions.append(.send([Array("1".utf8)]))
        self.leave(now: now, into: &actions)
    }

    private mutating func leave(now: Milliseconds, into actions: inout [SocketIOAction]) {
        guard let membership else { return }
        self.membership = nil
        actions.append(membership.end)
        if membership.isJoined { self.deadline = now + self.configuration.connectTimeout }
    }

    /// Closes the whole connection: reports that the client left, then asks to close the session.
    package mutating func close(_ reason: EngineIOCloseReason, into actions: inout [SocketIOAction]) {
        guard !self.isClosed else { return }
        self.sessionClosed(into: &actions)
        actions.append(.close(reason))
    }

    /// Ends the connection after its session; reports that the client left.
    package mutating func sessionClosed(into actions: inout [SocketIOAction]) {
        self.isClosed = true
        self.deadline = .max
        if let membership { actions.append(membership.end) }
        self.membership = nil
    }
}

extension SocketIOStateMachine {
    private func isUndecided(_ ticket: SocketIOConnectRequest.Ticket) -> Bool {
        self.membership?.ticket == ticket && !self.hasJoined
    }

    /// Notes that the owner knows the client of an undecided request.
    package mutating func identify(_ ticket: SocketIOConnectRequest.Ticket) {
        if self.isUndecided(ticket) { self.membership?.isIdentified = true }
    }

    /// Accepts the client; does nothing if its request was withdrawn.
    ///
    /// - Parameters:
    ///   - sid: the socket's id, never the session's. A recovered client gets its old id.
    ///   - recovery: makes the client recoverable; missed events are sent before the reply.
    package mutating func accept(
        _ ticket: SocketIOConnectRequest.Ticket,
        sid: String,
        recovery: SocketIORecoveryGrant? = nil,
        into actions: inout [SocketIOAction]
    ) {
        guard self.isUndecided(ticket) else { return }
        self.membership?.isJoined = true
        self.deadline = .max
        var reply = [JSONMember("sid", .string(sid))]
        if let recovery { reply.append(JSONMember("pid", .string(recovery.pid))) }
        actions.append(.send((recovery?.missed ?? []) + [Self.packet("0", .object(reply))]))
    }

    /// Refuses the client, which may ask again, as the connection stays open; does nothing if its
    /// request was withdrawn.
    package mutating func refuse(
        _ ticket: SocketIOConnectRequest.Ticket,
        message: String,
        data: JSONValue? = nil,
        into actions: inout [SocketIOAction]
    ) {
        guard self.isUndecided(ticket) else { return }
        self.membership = nil
        Self.send("4", Self.refusal(message, data), into: &actions)
    }

    /// Acknowledges an event of the client; call this once for each event that wants it.
    ///
    /// Does nothing if the client has left.
    package func acknowledge(_ id: UInt64, with arguments: [JSONValue], into actions: inout [SocketIOAction]) {
        guard self.hasJoined else { return }
        Self.send("3\(id)", .array(arguments), into: &actions)
    }

    private static func refusal(_ message: String, _ data: JSONValue?) -> JSONValue {
        let members = [JSONMember("message", .string(message))]
        return .object(members + (data.map { [JSONMember("data", $0)] } ?? []))
    }

    private static func send(_ head: String, _ payload: JSONValue, into actions: inout [SocketIOAction]) {
        actions.append(.send([Self.packet(head, payload)]))
    }

    private static func packet(_ head: String, _ payload: JSONValue) -> [UInt8] {
        Array(head.utf8) + JSONWriter.bytes(of: payload)
    }
}
