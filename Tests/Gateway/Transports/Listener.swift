// Carillon · Listener.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Sockets

/// An application that notes what it is told.
final class Listener: WebSocketApplication {
    private(set) var opened = 0
    private(set) var closed = 0
    private(set) var texts: [String] = []
    private(set) var pings = 0
    private(set) var pongs: [[UInt8]] = []
    private(set) var isTooSlow = false
    private(set) var socket: WebSocketHandler?

    func webSocketOpened(_ socket: WebSocketHandler) {
        self.opened += 1
        self.socket = socket
    }
    func webSocketReceived(text: String) { self.texts.append(text) }
    func webSocketReceived(binary: [UInt8]) {}
    func webSocketReceivedPing() -> Bool {
        self.pings += 1
        return true
    }
    func webSocketReceived(pong: [UInt8]) { self.pongs.append(pong) }
    func webSocketIsTooSlow() { self.isTooSlow = true }
    func webSocketReadComplete() {}
    func webSocketClosed() {
        self.closed += 1
        self.socket = nil
    }
}
