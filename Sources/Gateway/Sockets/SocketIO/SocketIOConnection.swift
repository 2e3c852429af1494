// Carillon · SocketIOConnection.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols

/// A Socket.IO client over its Engine.IO connection; confined to the connection's event loop.
package final class SocketIOConnection: EngineIOApplication {
    private var state: SocketIOStateMachine
    private var application: (any SocketIOApplication)?
    private var engine: EngineIOConnection?

    package init(_ application: any SocketIOApplication, configuration: SocketIOConfiguration) {
        self.state = SocketIOStateMachine(configuration: configuration, now: systemUptime())
        self.application = application
    }

    // MARK: For the application

    /// Notes that the token of the client's request is valid.
    func identified(_ ticket: SocketIOConnectRequest.Ticket) { self.state.identify(ticket) }

    /// Admits the client to the namespace of its request.
    package func accept(
        _ ticket: SocketIOConnectRequest.Ticket, sid: String, recovery: SocketIORecoveryGrant? = nil
    ) {
        self.engine?.welcome()
        self.run { state, actions in state.accept(ticket, sid: sid, recovery: recovery, into: &actions) }
    }

    /// Refuses the client's request to join a namespace.
    package func refuse(_ ticket: SocketIOConnectRequest.Ticket, message: String, data: JSONValue? = nil) {
        self.run { state, actions in state.refuse(ticket, message: message, data: data, into: &actions) }
    }

    /// Sends an event; ignored if the namespace is not joined.
    package func emit(
        _ name: SocketIOEventName,
        _ arguments: [SocketIOValue] = [],
        to namespace: String = SocketIOPacket.defaultNamespace
    ) {
        self.run { state, actions in state.emit(name, arguments, to: namespace, into: &actions) }
    }

    /// Sends an event of the default namespace as a WebSocket frame that connections share; ignored
    /// if the namespace is not joined.
    func emit(frame: ByteBuffer) {
        guard self.state.hasJoined() else { return }
        self.engine?.send(frame: frame)
    }

    package func acknowledge(
        _ id: UInt64, with arguments: [SocketIOValue], in namespace: String = SocketIOPacket.defaultNamespace
    ) {
        self.run { state, actions in state.acknowledge(id, with: arguments, in: namespace, into: &actions) }
    }

    /// Disconnects the client from the default namespace; it does not reconnect automatically.
    func disconnect() {
        self.run { state, actions in state.disconnect(into: &actions) }
    }

    /// Closes the whole connection.
    func close(_ reason: EngineIOCloseReason) {
        self.run { state, actions in state.close(reason, into: &actions) }
    }

    /// Drops messages that the client has not fetched yet; only its secret `sid` protects them.
    func discardWaiting() { self.engine?.discardWaiting() }

    package func requestProof(_ sequence: UInt64) { self.engine?.requestProof(sequence) }
    package func flush() { self.engine?.flush() }
    package func drop() { self.engine?.drop() }

    private func run(_ step: (inout SocketIOStateMachine, inout [SocketIOAction]) -> Void) {
        var actions: [SocketIOAction] = []
        step(&self.state, &actions)
        for action in actions { self.perform(action) }
    }

    private func perform(_ action: SocketIOAction) {
        switch action {
        case .send(let messages): self.engine?.send(messages)
        case .connectRequested(let request): self.application?.socketIOConnectRequested(request)
        case .connectWithdrawn(let ticket): self.application?.socketIOConnectWithdrawn(ticket)
        case .event(let namespace, let name, let arguments, let id):
            self.application?.socketIOReceived(name, arguments, in: namespace, acknowledgement: id)
        case .left(let namespace): self.application?.socketIOLeft(namespace)
        case .close(let reason): self.engine?.close(reason)
        }
    }

    // MARK: From the connection

    package func engineIOOpened(_ connection: EngineIOConnection) {
        self.engine = connection
        self.application?.socketIOOpened(self)
    }

    package func engineIOReceived(_ message: EngineIOMessage) {
        guard self.application?.socketIOHeard() ?? false else { return }
        self.run { state, actions in
            state.receive(message, now: systemUptime(), into: &actions)
        }
    }

    package var engineIODeadline: Milliseconds? { self.state.nextDeadline }

    package func engineIOTick(now: Milliseconds) {
        self.run { state, actions in state.tick(now: now, into: &actions) }
    }

    package func engineIOReadComplete() { self.application?.socketIOReadComplete() }
    package func engineIOProven(_ sequence: UInt64) { self.application?.socketIOProven(sequence) }
    package func engineIOReceivedPing() -> Bool { self.application?.socketIOHeard() ?? false }
    package func engineIOIsTooSlow() { self.application?.socketIOIsTooSlow() }
    package func engineIOShouldQuiesce() { self.application?.socketIOShouldQuiesce() }

    package func engineIOClosed(_ reason: EngineIOCloseReason) {
        self.run { state, actions in state.sessionClosed(into: &actions) }
        // The three hold each other until here.
        self.engine = nil
        let application = self.application
        self.application = nil
        application?.socketIOClosed(reason)
    }
}

/// The application's side of a Socket.IO connection; confined to the connection's event loop.
package protocol SocketIOApplication: AnyObject {
    /// The connection is up, no namespace joined. Called first, and once.
    func socketIOOpened(_ connection: SocketIOConnection)
    /// Answer with ``SocketIOConnection/accept(_:sid:recovery:)`` or
    /// ``SocketIOConnection/refuse(_:message:data:)``, now or later.
    func socketIOConnectRequested(_ request: SocketIOConnectRequest)
    func socketIOConnectWithdrawn(_ ticket: SocketIOConnectRequest.Ticket)
    /// With an acknowledgement id, the client waits for
    /// ``SocketIOConnection/acknowledge(_:with:in:)``.
    func socketIOReceived(
        _ name: SocketIOEventName, _ arguments: [SocketIOValue], in namespace: String, acknowledgement: UInt64?)
    func socketIOLeft(_ namespace: String)
    func socketIOReadComplete()
    func socketIOProven(_ sequence: UInt64)
    /// Whether to accept a packet of any kind; the application closes clients that send too many.
    func socketIOHeard() -> Bool
    func socketIOIsTooSlow()
    func socketIOShouldQuiesce()
    /// The connection has closed. Called last, and once.
    func socketIOClosed(_ reason: EngineIOCloseReason)
}

extension SocketIOApplication {
    package func socketIOConnectWithdrawn(_ ticket: SocketIOConnectRequest.Ticket) {}
    package func socketIOLeft(_ namespace: String) {}
    package func socketIOReadComplete() {}
    package func socketIOProven(_ sequence: UInt64) {}
    package func socketIOHeard() -> Bool { true }
    package func socketIOShouldQuiesce() {}
    package func socketIOClosed(_ reason: EngineIOCloseReason) {}
}
