// Carillon · SignalRLoop.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// The connections of a hub on one event loop, and their one timer; confined to it.
final class SignalRLoop {
    private var sessions: [ObjectIdentifier: SignalRSession] = [:]

    /// Milliseconds of the clock that all of a hub's connections share.
    static var now: Int64 { Int64(NIODeadline.now().uptimeNanoseconds / 1_000_000) }

    func add(_ session: SignalRSession) {
        self.sessions[ObjectIdentifier(session)] = session
    }

    func remove(_ session: SignalRSession) {
        self.sessions[ObjectIdentifier(session)] = nil
    }

    func tick() {
        for session in self.sessions.values { session.tick() }
    }
}
