// Carillon · TransferMailbox.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// A request and its caller, which is answered exactly once.
final class Ticket<Request: Sendable, Outcome: Sendable>: Sendable {
    /// Unsafe continuations are sound here: ``finish(_:)`` takes one out under the lock before it
    /// resumes it.
    typealias Continuation = UnsafeContinuation<Outcome, Never>

    let request: Request
    /// The host that takes turns with others in the queue; empty for mail, which has one relay.
    let origin: String
    /// The latest start: a request that waits in our queue for longer has too little time left.
    let turnDeadline: ContinuousClock.Instant
    let deadline: ContinuousClock.Instant
    private let cancelled = Atomic(false)
    private let caller = Mutex<Continuation?>(nil)

    init(_ request: Request, origin: String = "", start: ContinuousClock.Instant, timeout: Duration) {
        self.request = request
        self.origin = origin
        self.turnDeadline = start.advanced(by: timeout / 2)
        self.deadline = start.advanced(by: timeout)
    }

    /// Whether the caller's task was cancelled, possibly before it waits; the sending thread polls
    /// this.
    var isCancelled: Bool { self.cancelled.load(ordering: .acquiring) }

    func cancel() {
        self.cancelled.store(true, ordering: .releasing)
    }

    /// Sets the caller; call this before handing over the ticket.
    func wait(_ continuation: Continuation) {
        self.caller.withLock { $0 = continuation }
    }

    /// Answers the caller; later calls have no effect.
    func finish(_ outcome: Outcome) {
        let continuation = self.caller.withLock { caller in
            defer { caller = nil }
            return caller
        }
        continuation?.resume(returning: outcome)
    }
}

typealias TransferTicket = Ticket<TransferRequest, TransferOutcome>

/// Passes tickets and signals from callers on any thread to the transfer thread.
final class TransferMailbox: Sendable {
    /// Signals to the thread besides new tickets.
    struct Signals {
        let hasCancellations: Bool
        let isStopping: Bool
    }

    /// Ends the thread's poll; called under the lock, and never after ``close()``.
    typealias Wake = @Sendable () -> Void

    private struct State {
        var arrivals: [TransferTicket] = []
        var hasCancellations = false
        var isStopping = false
        var isAsleep = false
        var isClosed = false
        var isGone = false
        /// Accepted requests without an answer.
        var unfinished = 0
        var inFlight = 0
        var shutdownWaiters: [CheckedContinuation<Void, Never>] = []
    }

    private let state = Mutex(State())
    private let maximumUnfinished: Int
    private let wake: Wake

    init(maximumUnfinished: Int, wake: @escaping Wake) {
        self.maximumUnfinished = maximumUnfinished
        self.wake = wake
    }

    // MARK: For callers

    var snapshot: TransferSnapshot {
        self.state.withLock { state in
            TransferSnapshot(inFlight: state.inFlight, waiting: state.unfinished - state.inFlight)
        }
    }

    /// Takes a slot for a request that is not ready to be sent; returns the failure if none is
    /// free.
    ///
    /// Call ``submit(_:isReserved:)`` or ``withdraw(_:)`` next.
    func reserve() -> TransferFailure? {
        self.state.withLock { self.reserve(&$0) }
    }

    /// Frees a reserved slot; returns the failure to answer with.
    func withdraw(_ failure: TransferFailure) -> TransferFailure {
        self.state.withLock { self.withdraw(failure, &$0) }
    }

    /// Hands over the ticket; nil means that the thread will finish it.
    func submit(_ ticket: TransferTicket, isReserved: Bool = false) -> TransferFailure? {
        self.state.withLock { state in
            if !isReserved {
                if let failure = self.reserve(&state) { return failure }
            } else if state.isStopping {
                return self.withdraw(TransferFailure(.shutdown), &state)
            }
            state.arrivals.append(ticket)
            self.wakeIfAsleep(&state)
            return nil
        }
    }

    private func reserve(_ state: inout State) -> TransferFailure? {
        if state.isStopping { return TransferFailure(.shutdown) }
        guard state.unfinished < self.maximumUnfinished else { return TransferFailure(.overloaded) }
        state.unfinished += 1
        return nil
    }

    private func withdraw(_ failure: TransferFailure, _ state: inout State) -> TransferFailure {
        state.unfinished -= 1
        return state.isStopping ? TransferFailure(.shutdown) : failure
    }

    /// Reports that some ticket was cancelled; the thread finds out which.
    func reportCancellation() {
        self.state.withLock { state in
            state.hasCancellations = true
            self.wakeIfAsleep(&state)
        }
    }

    /// Refuses new tickets and ends the thread.
    func stop() {
        self.state.withLock { state in
            state.isStopping = true
            self.wakeIfAsleep(&state)
        }
    }

    /// Returns when the thread has freed its resources.
    func waitUntilGone() async {
        await withCheckedContinuation { continuation in
            let isGone = self.state.withLock { state in
                if !state.isGone { state.shutdownWaiters.append(continuation) }
                return state.isGone
            }
            if isGone { continuation.resume() }
        }
    }

    private func wakeIfAsleep(_ state: inout State) {
        guard state.isAsleep, !state.isClosed else { return }
        state.isAsleep = false
        self.wake()
    }

    // MARK: For the thread

    /// Swaps the new tickets into `arrivals`, which must be empty and lends its memory.
    func drain(into arrivals: inout [TransferTicket]) -> Signals {
        self.state.withLock { state in
            swap(&state.arrivals, &arrivals)
            state.isAsleep = false
            defer { state.hasCancellations = false }
            return Signals(hasCancellations: state.hasCancellations, isStopping: state.isStopping)
        }
    }

    /// Returns whether the thread may sleep; if so, the next caller wakes it.
    func fallAsleep(inFlight: Int) -> Bool {
        self.state.withLock { state in
            state.inFlight = inFlight
            state.isAsleep = state.arrivals.isEmpty && !state.hasCancellations && !state.isStopping
            return state.isAsleep
        }
    }

    /// Frees the slots of `count` tickets that are about to be answered.
    func settle(_ count: Int, inFlight: Int) {
        self.state.withLock { state in
            state.unfinished -= count
            state.inFlight = inFlight
        }
    }

    /// Guarantees that no wake-up follows.
    func close() {
        self.state.withLock { $0.isClosed = true }
    }

    /// Resumes the callers that await the end.
    func finishShutdown() {
        let shutdownWaiters = self.state.withLock { state in
            state.isGone = true
            defer { state.shutdownWaiters = [] }
            return state.shutdownWaiters
        }
        for waiter in shutdownWaiters { waiter.resume() }
    }
}
