// Carillon · SignalRSocket.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// A WebSocket of a connection; after a reconnect, its connection may live on another event loop.
final class SignalRSocket: WebSocketApplication {
    let number: UInt64
    private let connection: LoopReference<SignalRConnection>
    private let eventLoop: any EventLoop
    /// The credential of a socket that replaces a lost one; nil for a first socket.
    private let renewal: SignalRPermit?
    private var socket: WebSocketHandler?

    init(
        number: UInt64,
        connection: LoopReference<SignalRConnection>,
        eventLoop: any EventLoop,
        renewal: SignalRPermit? = nil
    ) {
        self.number = number
        self.connection = connection
        self.eventLoop = eventLoop
        self.renewal = renewal
    }

    // MARK: From the client

    func webSocketOpened(_ socket: WebSocketHandler) {
        self.socket = socket
        let reference = LoopReference(self, eventLoop: self.eventLoop)
        let number = self.number
        guard let renewal else { return self.connection.call { $0.attach(reference, number) } }
        // Not `ask`, which queues even on this loop: the socket's close would come first.
        self.connection.call { connection in
            // The connection may have ended meanwhile.
            guard connection.reattach(reference, number) else { return reference.call { $0.drop() } }
            connection.renew(renewal)
        } ifGone: {
            reference.call { $0.drop() }
        }
    }

    func webSocketReceived(text: String) { self.receive(Array(text.utf8)) }
    func webSocketReceived(binary: [UInt8]) { self.receive(binary) }

    private func receive(_ bytes: [UInt8]) {
        let number = self.number
        self.connection.call { $0.receive(bytes, from: number) }
    }

    func webSocketReceivedPing() -> Bool {
        self.connection.call { $0.heard() }
        return true
    }

    func webSocketProven(_ sequence: UInt64) { self.connection.call { $0.proven(sequence) } }

    func webSocketReadComplete() {
        self.connection.call { $0.readComplete() }
        self.socket?.letCatchUp(self.connection.eventLoop)
    }

    func webSocketIsTooSlow() { self.connection.call { $0.tooSlow() } }

    func webSocketReceivedClose(_ code: UInt16?) {
        let number = self.number
        self.connection.call { $0.socketLeft(code, number) }
    }

    func webSocketClosed() {
        self.socket = nil
        let number = self.number
        self.connection.call { $0.socketClosed(number) }
    }

    // MARK: To the client

    func send(_ bytes: [UInt8]) { self.socket?.send(text: bytes) }
    func send(frame: ByteBuffer) { self.socket?.send(frame: frame) }
    func requestProof(_ sequence: UInt64) { self.socket?.requestProof(sequence) }
    func flush() { self.socket?.flush() }
    func setReading(_ isOn: Bool) { self.socket?.setReading(isOn) }
    func drop() { self.socket?.drop() }

    func close(_ code: WebSocketCloseCode) {
        self.socket?.close(code, reason: "")
        self.socket?.flush()
    }
}
