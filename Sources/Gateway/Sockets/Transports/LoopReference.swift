// Carillon · LoopReference.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Synchronization

/// A weak reference to an object that is confined to an event loop; calls run on that loop.
package struct LoopReference<Object: AnyObject>: Sendable {
    private final class Weak {
        weak var object: Object?

        init(_ object: Object) {
            self.object = object
        }
    }

    private let bound: NIOLoopBound<Weak>

    /// Called on the loop.
    init(_ object: Object, eventLoop: any EventLoop) {
        self.bound = NIOLoopBound(Weak(object), eventLoop: eventLoop)
    }

    var eventLoop: any EventLoop { self.bound.eventLoop }

    /// Calls `body` on the loop, or `ifGone` if the object is gone; at once if this is the loop.
    package func call(
        _ body: @escaping @Sendable (Object) -> Void,
        ifGone: @escaping @Sendable () -> Void = {}
    ) {
        if self.bound.eventLoop.inEventLoop {
            self.run(body, ifGone)
        } else {
            self.bound.eventLoop.execute { self.run(body, ifGone) }
        }
    }

    private func run(_ body: (Object) -> Void, _ ifGone: () -> Void) {
        if let object = self.bound.value.object { body(object) } else { ifGone() }
    }

    /// Runs a query on the loop; fails with ``LoopObjectIsGone``.
    func ask<Answer: Sendable>(_ question: @escaping @Sendable (Object) -> Answer) -> EventLoopFuture<Answer> {
        self.bound.eventLoop.submit {
            guard let object = self.bound.value.object else { throw LoopObjectIsGone() }
            return question(object)
        }
    }
}

/// The object of a ``LoopReference`` no longer exists.
struct LoopObjectIsGone: Error {}

/// The sessions of a node that several connections can reach, by their secret ids.
final class SessionDirectory<Session: AnyObject>: Sendable {
    private let limit: Int
    private let sessions = Mutex<[String: LoopReference<Session>]>([:])

    /// - Parameter limit: Sessions beyond this are refused.
    init(limit: Int) {
        self.limit = limit
    }

    var count: Int { self.sessions.withLock { $0.count } }

    /// Adds a session; false if there are too many or the id is taken.
    func add(_ id: String, _ session: LoopReference<Session>) -> Bool {
        self.sessions.withLock { sessions in
            guard sessions.count < self.limit, sessions[id] == nil else { return false }
            sessions[id] = session
            return true
        }
    }

    subscript(id: String) -> LoopReference<Session>? { self.sessions.withLock { $0[id] } }

    func remove(_ id: String) {
        _ = self.sessions.withLock { $0.removeValue(forKey: id) }
    }
}
