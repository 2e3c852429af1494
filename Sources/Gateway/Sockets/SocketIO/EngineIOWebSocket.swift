// Carillon · EngineIOWebSocket.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// A client's WebSocket: passes its input to its connection, which may live on another event loop.
final class EngineIOWebSocket: WebSocketApplication {
    enum Purpose {
        case open(any EngineIOApplication)
        /// Upgrades a polling session.
        case takeOver(LoopReference<EngineIOConnection>)
    }

    private let server: EngineIOServer
    private let eventLoop: any EventLoop
    private let carrier: EngineIOCarrier
    private var purpose: Purpose?
    private var near: EngineIOConnection?
    private var far: LoopReference<EngineIOConnection>?
    /// Set for ``far``, until the socket closes.
    private var socket: WebSocketHandler?
    private var hasFailed = false

    init(_ server: EngineIOServer, _ purpose: Purpose, eventLoop: any EventLoop) {
        self.server = server
        self.eventLoop = eventLoop
        self.carrier = server.carrier()
        self.purpose = purpose
    }

    func webSocketOpened(_ socket: WebSocketHandler) {
        guard let purpose else { return }
        self.purpose = nil
        let eventLoop = self.eventLoop
        let carrier = self.carrier
        switch purpose {
        case .open(let application):
            let outlet = EngineIOOutlet(carrier: carrier, target: .near(socket))
            let connection = EngineIOConnection(self.server, self.server.registry(on: eventLoop), outlet: outlet)
            self.near = connection
            connection.begin(application)
        case .takeOver(let reference):
            self.far = reference
            self.socket = socket
            let handler = LoopReference(socket, eventLoop: eventLoop)
            reference.call { connection in
                connection.attach(EngineIOOutlet(carrier: carrier, target: .far(handler)))
            } ifGone: {
                // The session has ended.
                handler.call {
                    $0.close(.policyViolation, reason: "")
                    $0.flush()
                }
            }
        }
    }

    func webSocketReceived(text: String) {
        let text = Array(text.utf8)
        let carrier = self.carrier
        self.pass { $0.received(text: text, on: carrier) }
    }

    func webSocketReceived(binary: [UInt8]) {
        let carrier = self.carrier
        self.pass { $0.received(binary: binary, on: carrier) }
    }

    func webSocketReceivedPing() -> Bool {
        if let near { return near.receivedPing() }
        // Answered at once; the session closes a client that sends too many.
        self.far?.call { _ = $0.receivedPing() }
        return true
    }

    func webSocketProven(_ sequence: UInt64) {
        if let near { return near.received(pong: sequence) }
        self.far?.call { $0.received(pong: sequence) }
    }

    func webSocketReadComplete() {
        self.pass { $0.readComplete() }
        if let far { self.socket?.letCatchUp(far.eventLoop) }
    }

    func webSocketIsTooSlow() { self.pass { $0.isTooSlow() } }
    func webSocketShouldQuiesce() { self.pass { $0.shouldQuiesce() } }

    func webSocketFailed(_ code: WebSocketCloseCode, reason: String) { self.hasFailed = true }

    func webSocketClosed() {
        let carrier = self.carrier
        let hasFailed = self.hasFailed
        self.pass { $0.closed(carrier, failed: hasFailed) }
        self.near = nil
        self.far = nil
        self.socket = nil
    }

    private func pass(_ work: @escaping @Sendable (EngineIOConnection) -> Void) {
        if let near { work(near) } else { self.far?.call(work) }
    }
}

/// The session's end of a WebSocket that may live on another event loop.
///
/// Output gathers until ``flush()`` and changes loops in one hop.
final class EngineIOOutlet {
    enum Output: Sendable {
        case text([UInt8])
        case binary([UInt8])
        /// A whole frame that other sockets share.
        case frame(ByteBuffer)
        case proof(UInt64)
        case close(WebSocketCloseCode)
        case drop
    }

    enum Target {
        /// On the session's own loop.
        case near(WebSocketHandler)
        case far(LoopReference<WebSocketHandler>)
    }

    let carrier: EngineIOCarrier
    private let target: Target
    private var gathered: [Output] = []

    init(carrier: EngineIOCarrier, target: Target) {
        self.carrier = carrier
        self.target = target
    }

    func enqueue(_ output: Output) {
        switch self.target {
        case .near(let handler): Self.enqueue(output, on: handler)
        case .far: self.gathered.append(output)
        }
    }

    func flush() {
        switch self.target {
        case .near(let handler): handler.flush()
        case .far(let reference):
            guard !self.gathered.isEmpty else { return }
            let gathered = self.gathered
            self.gathered = []
            reference.call { handler in
                for output in gathered { Self.enqueue(output, on: handler) }
                handler.flush()
            }
        }
    }

    private static func enqueue(_ output: Output, on handler: WebSocketHandler) {
        switch output {
        case .text(let bytes): handler.send(text: bytes)
        case .binary(let bytes): handler.send(binary: bytes)
        case .frame(let frame): handler.send(frame: frame)
        case .proof(let sequence): handler.requestProof(sequence)
        case .close(let code): handler.close(code, reason: "")
        case .drop: handler.drop()
        }
    }
}
