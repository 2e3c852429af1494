// Carillon · LoopReference.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

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

    /// Queues a query on the loop; fails with ``LoopObjectIsGone`` if the object is gone.
    ///
    /// A later ``call(_:ifGone:)`` on the loop itself overtakes it.
    func ask<Answer: Sendable>(_ question: @escaping @Sendable (Object) -> Answer) -> EventLoopFuture<Answer> {
        self.bound.eventLoop.submit {
            guard let object = self.bound.value.object else { throw LoopObjectIsGone() }
            return question(object)
        }
    }
}

/// The object of a ``LoopReference`` no longer exists.
struct LoopObjectIsGone: Error {}
