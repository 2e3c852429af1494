// Carillon · SessionDirectory.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Where the sessions of a node live that are reached by more than one connection, by their secret ids.
package final class SessionDirectory<Session: AnyObject>: Sendable {
    private let limit: Int
    private let sessions = Mutex<[String: LoopReference<Session>]>([:])

    /// - Parameter limit: how many there may be; more are refused.
    package init(limit: Int) {
        self.limit = limit
    }

    package var count: Int { self.sessions.withLock { $0.count } }

    /// Notes a session; false if there are too many, or the id is taken.
    package func add(_ id: String, _ session: LoopReference<Session>) -> Bool {
        self.sessions.withLock { sessions in
            guard sessions.count < self.limit, sessions[id] == nil else { return false }
            sessions[id] = session
            return true
        }
    }

    package subscript(id: String) -> LoopReference<Session>? { self.sessions.withLock { $0[id] } }

    package func remove(_ id: String) {
        _ = self.sessions.withLock { $0.removeValue(forKey: id) }
    }
}
