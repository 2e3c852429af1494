// Carillon · SocketIOConnection+Sending.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension SocketIOConnection {
    /// The message of a refusal for a namespace that does not exist.
    package static let unknownNamespace = "Invalid namespace"

    /// Lets the client into the namespace that it asked for.
    ///
    /// - Parameters:
    ///   - sid: The socket's id in this namespace; never the session's. A recovered client gets its old one.
    ///   - recovery: Makes the client recoverable. What it missed is sent before the reply.
    /// - Returns: False if the wish is off by now; then nothing is sent.
    @discardableResult
    package mutating func accept(
        _ ticket: SocketIOConnectRequest.Ticket,
        sid: String,
        recovery: SocketIORecoveryGrant? = nil,
        into actions: inout [SocketIOAction]
    ) -> Bool {
        guard let namespace = self.memberships.namespace(of: ticket) else { return false }
        self.memberships[namespace]?.isJoined = true
        self.memberships[namespace]?.isRecoverable = recovery != nil
        self.deadline = .max
        var messages: [EngineIOMessage] = []
        for missed in recovery?.missed ?? [] {
            messages += Self.event(missed.name, missed.arguments, offset: missed.offset, namespace).messages
        }
        var reply = [JSONMember("sid", .string(sid))]
        if let recovery { reply.append(JSONMember("pid", .string(recovery.pid))) }
        messages += SocketIOPacket(.connect(.object(reply)), namespace: namespace).messages
        actions.append(.send(messages))
        return true
    }

    /// Refuses the client the namespace that it asked for; the connection stays, and it may ask again.
    ///
    /// - Returns: False if the wish is off by now; then nothing is sent.
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
    package mutating func emit(
        _ name: SocketIOEventName,
        _ arguments: [SocketIOValue] = [],
        to namespace: String = SocketIOPacket.defaultNamespace,
        as emission: SocketIOEmission = .plain,
        into actions: inout [SocketIOAction]
    ) -> SocketIOEmissionResult {
        guard let membership = self.memberships[namespace], membership.isJoined else { return .notJoined }
        switch emission {
        case .plain:
            Self.send(.event(name, arguments, acknowledgement: nil), namespace, into: &actions)
            return .sent
        case .recoverable(let offset):
            let event = Self.event(name, arguments, offset: membership.isRecoverable ? offset : nil, namespace)
            actions.append(.send(event.messages))
            return .sent
        case .acknowledged:
            guard membership.awaited.count < self.configuration.maximumAwaitedAcknowledgements else {
                return .tooManyAwaited
            }
            let id = membership.nextAcknowledgement
            self.memberships[namespace]?.nextAcknowledgement += 1
            self.memberships[namespace]?.awaited.append(id)
            Self.send(.event(name, arguments, acknowledgement: id), namespace, into: &actions)
            return .awaiting(id)
        }
    }

    /// Answers an event of the client that wanted an acknowledgement; to be called once for each.
    ///
    /// - Returns: False if the client has left the namespace; then nothing is sent.
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

    /// Waits no longer for the client's answer; if it comes, it is ignored.
    package mutating func forget(_ id: UInt64, in namespace: String = SocketIOPacket.defaultNamespace) {
        _ = self.memberships[namespace]?.settle(id)
    }

    static func refusal(_ message: String, _ data: JSONValue?) -> JSONValue {
        let members = [JSONMember("message", .string(message))]
        return .object(members + (data.map { [JSONMember("data", $0)] } ?? []))
    }

    private static func event(
        _ name: SocketIOEventName,
        _ arguments: [SocketIOValue],
        offset: String?,
        _ namespace: String
    ) -> SocketIOPacket {
        let offsets = offset.map { [SocketIOValue.json(.string($0))] } ?? []
        return SocketIOPacket(.event(name, arguments + offsets, acknowledgement: nil), namespace: namespace)
    }
}
