// Carillon · Segment.swift
// SPDX-License-Identifier: Apache-2.0

/// Statements between two sync points: one round trip, one implicit transaction, one failure.
final class Segment: Sendable {
    typealias Waiter = UnsafeContinuation<Result<[PostgresResult], PostgresError>, Never>

    /// Which connection may carry it.
    enum Lease: Sendable {
        /// Any, beside others.
        case shared
        /// One that carries nothing else, and is kept until it is given back.
        case acquire(TransactionKey)
        /// The one that was kept.
        case held(TransactionKey, release: Bool)
    }

    let identifier: UInt64
    let statements: [PostgresStatement]
    let lease: Lease
    let deadline: ContinuousClock.Instant
    // An unsafe continuation is sound here: the database thread alone resumes it, when it drops the segment.
    let waiter: Waiter

    init(
        identifier: UInt64,
        statements: [PostgresStatement],
        lease: Lease,
        deadline: ContinuousClock.Instant,
        waiter: Waiter
    ) {
        self.identifier = identifier
        self.statements = statements
        self.lease = lease
        self.deadline = deadline
        self.waiter = waiter
    }
}

/// Names the connection that a transaction keeps.
struct TransactionKey: Hashable, Sendable {
    let value: UInt64
}
