// Carillon · SocketIOPeer.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols

/// A client of Socket.IO over its connection of Engine.IO; confined to the connection's event loop.
package final class SocketIOPeer: EngineIOApplication {
    private var connection: SocketIOConnection
    private var application: (any SocketIOApplication)?
    private var engine: EngineIOConnection?

    package init(_ application: any SocketIOApplication, configuration: SocketIOConfiguration) {
        self.connection = SocketIOConnection(configuration: configuration, now: EngineIORoster.now())
        self.application = application
    }

    // MARK: For the application

    package var transport: EngineIOTransport? { self.engine?.transport }

    package func hasJoined(_ namespace: String = SocketIOPacket.defaultNamespace) -> Bool {
        self.connection.hasJoined(namespace)
    }

    /// Lets the client into the namespace that it asked for.
    package func accept(
        _ ticket: SocketIOConnectRequest.Ticket, sid: String, recovery: SocketIORecoveryGrant? = nil
    ) {
        self.engine?.welcome()
        self.run { connection, actions in connection.accept(ticket, sid: sid, recovery: recovery, into: &actions) }
    }

    /// Refuses the client the namespace that it asked for.
    package func refuse(_ ticket: SocketIOConnectRequest.Ticket, message: String, data: JSONValue? = nil) {
        self.run { connection, actions in connection.refuse(ticket, message: message, data: data, into: &actions) }
    }

    /// Sends an event; nothing if the namespace is not joined.
    ///
    /// - Returns: For ``SocketIOEmission/acknowledged`` the id with which the answer comes to
    ///   ``SocketIOApplication/socketIOAcknowledged(_:with:in:)``, unless too many answers are out.
    @discardableResult
    package func emit(
        _ name: SocketIOEventName,
        _ arguments: [SocketIOValue] = [],
        to namespace: String = SocketIOPacket.defaultNamespace,
        as emission: SocketIOEmission = .plain
    ) -> SocketIOEmissionResult {
        var result = SocketIOEmissionResult.notJoined
        self.run { connection, actions in
            result = connection.emit(name, arguments, to: namespace, as: emission, into: &actions)
        }
        return result
    }

    /// Sends an event of the default namespace as a WebSocket frame that connections share; nothing if it is not joined.
    package func emit(frame: ByteBuffer) {
        guard self.connection.hasJoined() else { return }
        self.engine?.send(frame: frame)
    }

    package func acknowledge(
        _ id: UInt64, with arguments: [SocketIOValue], in namespace: String = SocketIOPacket.defaultNamespace
    ) {
        self.run { connection, actions in connection.acknowledge(id, with: arguments, in: namespace, into: &actions) }
    }

    /// Puts the client out of a namespace; it will not come back by itself.
    package func disconnect(_ namespace: String = SocketIOPacket.defaultNamespace) {
        self.run { connection, actions in
            connection.disconnect(namespace, now: EngineIORoster.now(), into: &actions)
        }
    }

    /// Closes the whole connection.
    package func close(_ reason: SocketIOCloseReason) {
        self.run { connection, actions in connection.close(reason, into: &actions) }
    }

    /// Closes the whole connection because its reader is too slow.
    package func closeAsTooSlow() {
        self.engine?.close(.tooMuchWaiting)
    }

    package func requestProof(_ sequence: UInt64) { self.engine?.requestProof(sequence) }
    package func flush() { self.engine?.flush() }
    package func drop() { self.engine?.drop() }

    private func run(_ step: (inout SocketIOConnection, inout [SocketIOAction]) -> Void) {
        var actions: [SocketIOAction] = []
        step(&self.connection, &actions)
        for action in actions { self.perform(action) }
    }

    private func perform(_ action: SocketIOAction) {
        switch action {
        case .send(let messages): self.engine?.send(messages)
        case .connectRequested(let request): self.application?.socketIOConnectRequested(request)
        case .connectWithdrawn(let ticket): self.application?.socketIOConnectWithdrawn(ticket)
        case .event(let namespace, let name, let arguments, let id):
            self.application?.socketIOReceived(name, arguments, in: namespace, acknowledgement: id)
        case .left(let namespace, let reason): self.application?.socketIOLeft(namespace, reason)
        case .close(let reason): self.engine?.close(reason.session)
        case .acknowledged(let namespace, let id, let arguments):
            self.application?.socketIOAcknowledged(id, with: arguments, in: namespace)
        }
    }

    // MARK: From the connection

    package func engineIOOpened(_ connection: EngineIOConnection) {
        self.engine = connection
        self.application?.socketIOOpened(self)
    }

    package func engineIOReceived(_ message: EngineIOMessage) {
        guard self.application?.socketIOHeard() ?? false else { return }
        self.run { connection, actions in
            connection.receive(message, now: EngineIORoster.now(), into: &actions)
        }
    }

    package var engineIODeadline: Milliseconds? { self.connection.nextDeadline }

    package func engineIOTick(now: Milliseconds) {
        self.run { connection, actions in connection.tick(now: now, into: &actions) }
    }

    package func engineIOReadComplete() { self.application?.socketIOReadComplete() }
    package func engineIOProven(_ sequence: UInt64) { self.application?.socketIOProven(sequence) }
    package func engineIOReceivedPing() -> Bool { self.application?.socketIOHeard() ?? false }
    package func engineIOIsTooSlow() { self.application?.socketIOIsTooSlow() }
    package func engineIOShouldQuiesce() { self.application?.socketIOShouldQuiesce() }

    package func engineIOClosed(_ reason: EngineIOCloseReason) {
        self.run { connection, actions in connection.sessionClosed(reason, into: &actions) }
        // The three hold each other until here.
        self.engine = nil
        let application = self.application
        self.application = nil
        application?.socketIOClosed(reason)
    }
}
