// Carillon · TransferTicket.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// A request with its caller, who is answered once.
final class TransferTicket: Sendable {
    typealias Continuation = CheckedContinuation<TransferOutcome, Never>

    let request: TransferRequest
    let origin: String
    let start: ContinuousClock.Instant
    let deadline: ContinuousClock.Instant
    private let cancelled = Atomic(false)
    private let caller = Mutex<Continuation?>(nil)

    init(_ request: TransferRequest, origin: String, start: ContinuousClock.Instant) {
        self.request = request
        self.origin = origin
        self.start = start
        self.deadline = start.advanced(by: request.timeout)
    }

    /// Whether the caller's task gave up, which may be before it waits.
    var isCancelled: Bool { self.cancelled.load(ordering: .acquiring) }

    func cancel() {
        self.cancelled.store(true, ordering: .releasing)
    }

    /// Must come before the ticket is handed to anyone who finishes it.
    func wait(_ continuation: Continuation) {
        self.caller.withLock { $0 = continuation }
    }

    /// Answers the caller; nothing happens the second time.
    func finish(_ outcome: TransferOutcome) {
        let continuation = self.caller.withLock { caller in
            defer { caller = nil }
            return caller
        }
        continuation?.resume(returning: outcome)
    }
}
