// Carillon · NativeWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Protocols

/// The native dialect over a WebSocket.
final class NativeWire: SocketWire, WebSocketApplication {
    let dialect = Dialect.native
    private let session: SocketSession
    private var socket: WebSocketHandler?

    init(session: SocketSession) {
        self.session = session
    }

    private var configuration: SocketConfiguration { self.session.shard.configuration }

    // MARK: From the client

    func webSocketOpened(_ socket: WebSocketHandler) {
        self.socket = socket
        self.session.begin(self)
    }

    func webSocketReceived(text: String) {
        guard self.session.spend() else { return }
        do throws(ClientFault) {
            let (message, reference) = try NativeDialect.decode(text)
            self.session.obey(message, reference: reference)
        } catch {
            self.send(NativeDialect.error(error.reason, reference: error.reference))
        }
    }

    func webSocketReceived(binary: [UInt8]) {
        self.session.close(.unsupportedData("binary messages are not part of this protocol"))
    }

    func webSocketReceivedPing() -> Bool { self.session.spend() }

    func webSocketReceived(pong: [UInt8]) {
        guard pong.count == 8 else { return }
        self.session.proven(pong.reduce(0) { $0 << 8 | UInt64($1) })
    }

    func webSocketReadComplete() { self.session.flush() }
    func webSocketIsTooSlow() { self.session.isTooSlow() }

    func webSocketClosed() {
        self.session.end()
        self.socket = nil
    }

    // MARK: To the client

    private func send(_ json: [UInt8]) { self.socket?.send(text: json) }

    func welcome(connection: String, version: Int64) {
        let interval = self.configuration.pingInterval.inMicroseconds / 1_000
        self.send(NativeDialect.welcome(connection: connection, pingInterval: interval, version: version))
    }

    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?) {
        self.send(NativeDialect.sync(snapshot, reference: reference))
    }

    func change(_ change: LoopChange) {
        self.socket?.send(frame: change.frame(.native) { WebSocketFraming.text(NativeDialect.change($0)) })
    }

    func answer(_ answer: SocketAnswer, to reference: [UInt8]?) {
        switch answer {
        case .done: if let reference { self.send(NativeDialect.done(reference: reference)) }
        case .read(let unread), .unread(let unread): self.send(NativeDialect.unread(unread, reference: reference))
        case .error(let reason), .busy(let reason): self.send(NativeDialect.error(reason, reference: reference))
        }
    }

    func requestProof(_ sequence: UInt64) { self.socket?.requestProof(sequence) }
    func flush() { self.socket?.flush() }
    func drop() { self.socket?.drop() }

    func close(_ end: SocketEnd) {
        if case .restart(let delay) = end {
            let milliseconds = delay.inMicroseconds / 1_000
            self.send(NativeDialect.goodbye(.serviceRestart, reason: "restart", reconnectAfter: milliseconds))
        }
        let (code, reason) = end.webSocketClose
        self.socket?.close(code, reason: reason)
    }

    func tick(now: NIODeadline) {
        guard let socket else { return }
        socket.tick(now: now)
        let configuration = self.configuration
        if socket.isPingDue(now: now, interval: configuration.pingInterval, timeout: configuration.pingTimeout) {
            self.session.probe()
        }
    }
}

extension SocketEnd {
    /// The close frame that says it (RFC 6455 section 7.4).
    var webSocketClose: (code: WebSocketCloseCode, reason: String) {
        switch self {
        case .unauthorized(let reason): (.unauthorized, reason)
        case .expired: (.unauthorized, "the token has expired")
        case .policyViolation(let reason): (.policyViolation, reason)
        case .unsupportedData(let reason): (.unsupportedData, reason)
        case .tooSlow: (.tooSlow, "you read too slowly")
        case .tooManyConnections: (.tooManyConnections, "too many newer connections")
        case .tryAgainLater: (.tryAgainLater, "try again later")
        case .restart: (.serviceRestart, "restart")
        }
    }
}
