// Carillon · TransferMailbox.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// What lies between the callers, on any thread, and the transfer thread.
final class TransferMailbox: Sendable {
    /// What the thread is to do besides the arrivals.
    struct Orders {
        let hasCancellations: Bool
        let isStopping: Bool
    }

    /// Wakes the thread out of its poll; called under the lock, and never after ``close()``.
    typealias Wake = @Sendable () -> Void

    private struct State {
        var arrivals: [TransferTicket] = []
        var hasCancellations = false
        var isStopping = false
        var isAsleep = false
        var isClosed = false
        var isGone = false
        /// Taken on and not answered yet.
        var unfinished = 0
        var snapshot = TransferSnapshot()
        var farewells: [CheckedContinuation<Void, Never>] = []
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
            var snapshot = state.snapshot
            snapshot.waiting = state.unfinished - snapshot.inFlight
            return snapshot
        }
    }

    /// Hands the ticket over; nil means that the thread will finish it.
    func submit(_ ticket: TransferTicket) -> TransferFailure? {
        self.state.withLock { state in
            let refusal: TransferFailure.Reason? =
                if state.isStopping {
                    .shutdown
                } else if state.unfinished >= self.maximumUnfinished {
                    .overloaded
                } else {
                    nil
                }
            if let refusal {
                state.snapshot.failed += 1
                if refusal == .overloaded { state.snapshot.refused += 1 }
                return TransferFailure(refusal)
            }
            state.unfinished += 1
            state.arrivals.append(ticket)
            self.rouse(&state)
            return nil
        }
    }

    /// Counts a request that was not worth handing over.
    func countInvalid() {
        self.state.withLock { $0.snapshot.failed += 1 }
    }

    /// Some ticket was cancelled; the thread finds out which.
    func noteCancellation() {
        self.state.withLock { state in
            state.hasCancellations = true
            self.rouse(&state)
        }
    }

    /// Takes nothing more and ends the thread.
    func stop() {
        self.state.withLock { state in
            state.isStopping = true
            self.rouse(&state)
        }
    }

    /// Returns when the thread has freed all that it had.
    func waitUntilGone() async {
        await withCheckedContinuation { continuation in
            let isGone = self.state.withLock { state in
                if !state.isGone { state.farewells.append(continuation) }
                return state.isGone
            }
            if isGone { continuation.resume() }
        }
    }

    private func rouse(_ state: inout State) {
        guard state.isAsleep, !state.isClosed else { return }
        state.isAsleep = false
        self.wake()
    }

    // MARK: For the thread

    /// Moves what arrived into `arrivals`, which is empty and lends its memory in exchange.
    func drain(into arrivals: inout [TransferTicket]) -> Orders {
        self.state.withLock { state in
            swap(&state.arrivals, &arrivals)
            state.isAsleep = false
            defer { state.hasCancellations = false }
            return Orders(hasCancellations: state.hasCancellations, isStopping: state.isStopping)
        }
    }

    /// Whether nothing is there to do; from now on whoever brings something wakes the thread.
    func fallAsleep(inFlight: Int) -> Bool {
        self.state.withLock { state in
            state.snapshot.inFlight = inFlight
            state.isAsleep = state.arrivals.isEmpty && !state.hasCancellations && !state.isStopping
            return state.isAsleep
        }
    }

    /// Gives back the places of those about to be answered.
    func settle(completed: Int, failed: Int, inFlight: Int) {
        self.state.withLock { state in
            state.unfinished -= completed + failed
            state.snapshot.inFlight = inFlight
            state.snapshot.completed += completed
            state.snapshot.failed += failed
        }
    }

    /// No wake comes after this.
    func close() {
        self.state.withLock { $0.isClosed = true }
    }

    /// Answers those who wait for the end.
    func bidFarewell() {
        let farewells = self.state.withLock { state in
            state.isGone = true
            defer { state.farewells = [] }
            return state.farewells
        }
        for farewell in farewells { farewell.resume() }
    }
}
