// Carillon · BatchQueue.swift
// SPDX-License-Identifier: Apache-2.0

import DequeModule
import Synchronization

/// Collects elements into batches: while one batch is processed, the next one fills.
///
/// Bounded: senders wait, or are refused, while it is full. Several consumers may share it.
package final class BatchQueue<Element: Sendable>: Sendable {
    private struct State {
        var elements: Deque<Element> = []
        var senders: Deque<UnsafeContinuation<Void, Never>> = []
        var receivers: Deque<UnsafeContinuation<Void, Never>> = []
        var isFinished = false
    }

    private let state = Mutex(State())
    private let capacity: Int

    /// - Parameter capacity: the number of elements that may wait.
    package init(capacity: Int) {
        self.capacity = capacity
    }

    /// Adds an element without waiting.
    ///
    /// - Returns: false if the queue is full or finished; the element was not added.
    package func offer(_ element: Element) -> Bool {
        let (isTaken, receiver) = self.state.withLock { state -> (Bool, UnsafeContinuation<Void, Never>?) in
            guard !state.isFinished, state.elements.count < self.capacity else { return (false, nil) }
            state.elements.append(element)
            return (true, state.receivers.popFirst())
        }
        receiver?.resume()
        return isTaken
    }

    /// Adds elements without waiting, in order, until the queue is full.
    ///
    /// - Returns: the number added; 0 if the queue is finished.
    package func offer(contentsOf elements: [Element]) -> Int {
        let (count, receiver) = self.state.withLock { state -> (Int, UnsafeContinuation<Void, Never>?) in
            let count = state.isFinished ? 0 : min(elements.count, self.capacity - state.elements.count)
            guard count > 0 else { return (0, nil) }
            state.elements.append(contentsOf: elements.prefix(count))
            return (count, state.receivers.popFirst())
        }
        receiver?.resume()
        return count
    }

    /// Adds an element, waiting while the queue is full.
    ///
    /// Drops the element after ``finish()``.
    package func send(_ element: Element) async {
        while !self.offer(element) {
            if self.isFinished { return }
            await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
                // Unsafe continuations are sound here: each is in one deque, and is resumed when it
                // is removed.
                let mustWait = self.state.withLock { state in
                    guard !state.isFinished, state.elements.count >= self.capacity else { return false }
                    state.senders.append(continuation)
                    return true
                }
                if !mustWait { continuation.resume() }
            }
        }
    }

    /// Takes up to `limit` elements, waiting for the first; nil when the queue is finished and
    /// empty.
    package func next(limit: Int) async -> [Element]? {
        while true {
            let (taken, senders) = self.state.withLock {
                state -> ([Element]?, Deque<UnsafeContinuation<Void, Never>>) in
                guard !state.elements.isEmpty else { return (state.isFinished ? nil : [], []) }
                let count = min(limit, state.elements.count)
                let taken = Array(state.elements.prefix(count))
                state.elements.removeFirst(count)
                defer { state.senders = [] }
                return (taken, state.senders)
            }
            for sender in senders { sender.resume() }
            guard let taken else { return nil }
            if !taken.isEmpty { return taken }
            await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
                let mustWait = self.state.withLock { state in
                    guard state.elements.isEmpty, !state.isFinished else { return false }
                    state.receivers.append(continuation)
                    return true
                }
                if !mustWait { continuation.resume() }
            }
        }
    }

    var isFinished: Bool { self.state.withLock { $0.isFinished } }

    /// The number of waiting elements.
    package var count: Int { self.state.withLock { $0.elements.count } }

    /// Refuses new elements; waiting ones are still delivered.
    package func finish() {
        let waiting = self.state.withLock { state in
            state.isFinished = true
            defer {
                state.receivers = []
                state.senders = []
            }
            return Array(state.receivers) + Array(state.senders)
        }
        for continuation in waiting { continuation.resume() }
    }
}
