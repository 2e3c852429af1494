// Carillon · LaneQueue.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import DequeModule
import Synchronization

/// Passes elements from readers to workers, the urgent lanes first but none starved.
///
/// Each lane holds a bounded number of elements; senders to a full lane wait. Lanes are served by
/// weight: sixteen critical and four normal for one bulk.
final class LaneQueue<Element: Sendable>: Sendable {
    private struct State {
        var slots: [Lane: Deque<Element>] = [:]
        var credits = LaneCredits()
        var senders: [Lane: Deque<UnsafeContinuation<Void, Never>>] = [:]
        var receivers: Deque<UnsafeContinuation<Element?, Never>> = []
        /// Senders that make an element only when there is a need for it.
        var watchers: [(lane: Lane, continuation: UnsafeContinuation<Void, Never>)] = []
        var isFinished = false

        /// Whether a lane needs an element: a receiver waits, or another lane has an element.
        func needs(_ lane: Lane) -> Bool {
            self.isFinished || !self.receivers.isEmpty || self.slots.contains { $0 != lane && !$1.isEmpty }
        }

        /// Removes the watchers whose lane needs an element.
        mutating func takeWatchers() -> [UnsafeContinuation<Void, Never>] {
            guard !self.watchers.isEmpty else { return [] }
            let all = self.watchers
            self.watchers = all.filter { !self.needs($0.lane) }
            return all.filter { self.needs($0.lane) }.map(\.continuation)
        }

        /// Removes the next element, and returns it with the waiting tasks to resume.
        mutating func take() -> (element: Element, waits: [UnsafeContinuation<Void, Never>])? {
            let filled = Lane.allCases.filter { !(self.slots[$0]?.isEmpty ?? true) }
            guard let lane = self.credits.next(among: filled), let element = self.slots[lane]?.popFirst() else {
                return nil
            }
            var waits: [UnsafeContinuation<Void, Never>] = []
            if let sender = self.senders[lane]?.popFirst() { waits.append(sender) }
            // Other senders keep the lane filled, so no receiver will wait. Wake one watcher in
            // turn.
            if self.slots[lane]?.isEmpty == false, let index = self.watchers.firstIndex(where: { $0.lane == lane }) {
                waits.append(self.watchers.remove(at: index).continuation)
            }
            return (element, waits)
        }
    }

    private let state = Mutex(State())
    private let capacity: Int

    /// - Parameter capacity: the number of elements that a lane holds.
    init(capacity: Int) {
        self.capacity = capacity
    }

    /// Adds an element, waiting while its lane is full.
    ///
    /// Drops the element after ``finish()``.
    func send(_ element: Element, lane: Lane) async {
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            // Unsafe continuations are sound here: each is in one collection, and is resumed once,
            // when it is removed.
            var watchers: [UnsafeContinuation<Void, Never>] = []
            let (receiver, isDone) = self.state.withLock {
                state -> (UnsafeContinuation<Element?, Never>?, Bool) in
                if state.isFinished { return (nil, true) }
                if let receiver = state.receivers.popFirst() { return (receiver, true) }
                state.slots[lane, default: []].append(element)
                watchers = state.takeWatchers()
                guard state.slots[lane, default: []].count > self.capacity else { return (nil, true) }
                state.senders[lane, default: []].append(continuation)
                return (nil, false)
            }
            for watcher in watchers { watcher.resume() }
            receiver?.resume(returning: element)
            if isDone { continuation.resume() }
        }
    }

    /// Waits until a receiver is idle, or another lane has an element.
    ///
    /// Senders to a lane that others keep filled take turns.
    func awaitNeed(of lane: Lane) async {
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            let isNeeded = self.state.withLock { state in
                if state.needs(lane) { return true }
                state.watchers.append((lane, continuation))
                return false
            }
            if isNeeded { continuation.resume() }
        }
    }

    /// Takes the next element, waiting for one; nil when the queue is finished and empty.
    func receive() async -> Element? {
        await withUnsafeContinuation { continuation in
            var waits: [UnsafeContinuation<Void, Never>] = []
            var element: Element?
            let isDone = self.state.withLock { state in
                if let taken = state.take() {
                    (element, waits) = taken
                    return true
                }
                if state.isFinished { return true }
                state.receivers.append(continuation)
                waits = state.takeWatchers()
                return false
            }
            for wait in waits { wait.resume() }
            if isDone { continuation.resume(returning: element) }
        }
    }

    /// The number of waiting elements.
    var count: Int {
        self.state.withLock { $0.slots.values.reduce(0) { $0 + $1.count } }
    }

    /// Refuses new elements; waiting ones are still delivered.
    func finish() {
        let (receivers, senders) = self.state.withLock { state in
            state.isFinished = true
            defer {
                state.receivers = []
                state.senders = [:]
            }
            return (state.receivers, state.senders.values.flatMap { $0 } + state.takeWatchers())
        }
        for receiver in receivers { receiver.resume(returning: nil) }
        for sender in senders { sender.resume() }
    }
}
