// Carillon · SocketReference.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import NIOCore

/// A socket as seen from other threads: it can be called back on its loop, where it may be gone by then.
struct SocketReference: Sendable {
    private final class Weak {
        weak var socket: SocketSession?

        init(_ socket: SocketSession) {
            self.socket = socket
        }
    }

    private let bound: NIOLoopBound<Weak>

    init(_ socket: SocketSession, eventLoop: any EventLoop) {
        self.bound = NIOLoopBound(Weak(socket), eventLoop: eventLoop)
    }

    /// Calls `body` on the socket's loop, unless it is gone.
    func call(_ body: @escaping @Sendable (SocketSession) -> Void) {
        self.bound.eventLoop.execute {
            if let socket = self.bound.value.socket { body(socket) }
        }
    }
}

/// The sockets that are up on a node.
struct HubRoster: Sendable {
    struct Entry: Sendable {
        let user: String
        let connection: String
        let dialect: Dialect
        let lastVersion: Int64?
        let reference: SocketReference
    }
}
