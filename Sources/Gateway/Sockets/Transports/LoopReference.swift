// Carillon · LoopReference.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// An object that is confined to an event loop, as seen from elsewhere: it can be called there, where it may be gone.
package struct LoopReference<Object: AnyObject>: Sendable {
    private final class Weak {
        weak var object: Object?

        init(_ object: Object) {
            self.object = object
        }
    }

    private let bound: NIOLoopBound<Weak>

    /// Called on the loop.
    package init(_ object: Object, eventLoop: any EventLoop) {
        self.bound = NIOLoopBound(Weak(object), eventLoop: eventLoop)
    }

    package var eventLoop: any EventLoop { self.bound.eventLoop }

    /// Calls `body` on the loop, at once if this is it, unless the object is gone.
    package func call(_ body: @escaping @Sendable (Object) -> Void) {
        if self.bound.eventLoop.inEventLoop {
            if let object = self.bound.value.object { body(object) }
        } else {
            self.bound.eventLoop.execute {
                if let object = self.bound.value.object { body(object) }
            }
        }
    }

    /// Calls `body` on the loop, or `ifGone`, on the loop too, if the object is gone.
    package func call(_ body: @escaping @Sendable (Object) -> Void, ifGone: @escaping @Sendable () -> Void) {
        let bound = self.bound
        let run: @Sendable () -> Void = {
            if let object = bound.value.object { body(object) } else { ifGone() }
        }
        if bound.eventLoop.inEventLoop { run() } else { bound.eventLoop.execute(run) }
    }

    /// Asks on the loop; fails if the object is gone.
    package func ask<Answer: Sendable>(_ question: @escaping @Sendable (Object) -> Answer) -> EventLoopFuture<Answer> {
        self.bound.eventLoop.submit {
            guard let object = self.bound.value.object else { throw LoopObjectIsGone() }
            return question(object)
        }
    }
}

/// The object of a ``LoopReference`` is not there any more.
package struct LoopObjectIsGone: Error {}
