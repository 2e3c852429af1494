// Carillon · MailTicket.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// A message with its caller, who is answered once.
final class MailTicket: Sendable {
    typealias Continuation = CheckedContinuation<MailOutcome, Never>

    let request: MailRequest
    let deadline: ContinuousClock.Instant
    private let cancelled = Atomic(false)
    private let caller = Mutex<Continuation?>(nil)

    init(_ request: MailRequest, start: ContinuousClock.Instant) {
        self.request = request
        self.deadline = start.advanced(by: request.timeout)
    }

    /// Whether the message is not wanted any more; the thread that sends it asks.
    var isCancelled: Bool { self.cancelled.load(ordering: .acquiring) }

    func cancel() {
        self.cancelled.store(true, ordering: .releasing)
    }

    /// Must come before the ticket is handed to anyone who finishes it.
    func wait(_ continuation: Continuation) {
        self.caller.withLock { $0 = continuation }
    }

    /// Answers the caller; nothing happens the second time.
    func finish(_ outcome: MailOutcome) {
        let continuation = self.caller.withLock { caller in
            defer { caller = nil }
            return caller
        }
        continuation?.resume(returning: outcome)
    }
}
