// Carillon · Permits.swift
// SPDX-License-Identifier: Apache-2.0

import DequeModule
import Synchronization

/// A fixed number of permits for work in flight; whoever finds none waits its turn.
package final class Permits: Sendable {
    private struct State {
        var free: Int
        var waiting: Deque<UnsafeContinuation<Void, Never>> = []
    }

    private let state: Mutex<State>
    private let total: Int

    package init(_ total: Int) {
        self.total = total
        self.state = Mutex(State(free: total))
    }

    /// Takes a permit.
    package func acquire() async {
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            // Unsafe continuations are sound here: each waits in one deque and is resumed when it is taken out.
            let isFree = self.state.withLock { state in
                guard state.free > 0 else {
                    state.waiting.append(continuation)
                    return false
                }
                state.free -= 1
                return true
            }
            if isFree { continuation.resume() }
        }
    }

    /// Gives a permit back.
    package func release() {
        let next = self.state.withLock { state -> UnsafeContinuation<Void, Never>? in
            if let next = state.waiting.popFirst() { return next }
            state.free += 1
            return nil
        }
        next?.resume()
    }

    /// How many are taken.
    package var inUse: Int { self.state.withLock { self.total - $0.free } }
}
