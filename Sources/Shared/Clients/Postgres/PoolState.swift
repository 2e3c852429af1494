// Carillon · PoolState.swift
// SPDX-License-Identifier: Apache-2.0

import CLibpq
import Core
import DequeModule
import Logging

/// The connections of a pool and the calls that wait for them.
///
/// `@unchecked Sendable` is sound: only the database thread touches this state, and the pool
/// reaches that thread through ``PollingThread/run(_:)``.
final class PoolState: PollingThread.Owner, @unchecked Sendable {
    private let configuration: PostgresConfiguration
    private let logger: Logger
    private let thread: PollingThread
    private let clock = ContinuousClock()

    private var connections: [CInt: ServerConnection] = [:]
    private var opening = 0
    private var waiting: Deque<Segment> = []
    private var retryAt: ContinuousClock.Instant?
    private var attempt = 0
    private var lastFailure: String?
    private var isClosed = false

    init(_ configuration: PostgresConfiguration, thread: PollingThread, logger: Logger) {
        self.configuration = configuration
        self.thread = thread
        self.logger = logger
    }

    // MARK: Calls

    /// Sends a segment or queues it.
    func submit(_ segment: Segment) {
        if self.isClosed { return self.fail(segment, PostgresError(.closed)) }
        if case .held(let key, _) = segment.lease {
            guard let connection = self.connections.values.first(where: { $0.holder == key }) else {
                return self.fail(segment, PostgresError(.connectionLost, "the transaction's connection is gone"))
            }
            return self.send(segment, on: connection)
        }
        guard self.waiting.count < self.configuration.maximumWaiting else {
            return self.fail(segment, PostgresError(.overloaded, "too many calls wait for a connection"))
        }
        self.waiting.append(segment)
        self.dispatch()
    }

    /// Cancels a segment whose caller no longer waits.
    func cancel(_ identifier: UInt64) {
        if let index = self.waiting.firstIndex(where: { $0.identifier == identifier }) {
            let segment = self.waiting.remove(at: index)
            return self.fail(segment, PostgresError(.cancelled))
        }
        // A cancel request names a session, not a statement. So it is sent only if nothing else
        // runs there, and the connection takes no other work until the server has the request.
        let running = self.connections.values.first { $0.firstSegment == identifier && $0.inFlight == 1 }
        guard let running, running.cancelled == nil, let handle = running.cancelHandle() else { return }
        running.cancelled = identifier
        let isStarted = self.configuration.startThread("pg-cancel") { [self] in
            handle.cancel()
            self.thread.run { self.cancelWasSent(identifier) }
        }
        if !isStarted { running.cancelled = nil }
    }

    private func cancelWasSent(_ identifier: UInt64) {
        self.connections.values.first { $0.cancelled == identifier }?.cancelled = nil
        self.dispatch()
    }

    /// Drops a transaction's connection without a last statement, because its state is unknown.
    func discard(_ key: TransactionKey) {
        for connection in self.connections.values where connection.holder == key {
            self.drop(connection, PostgresError(.connectionLost, "the transaction was dropped"))
        }
    }

    func close() {
        self.isClosed = true
        let error = PostgresError(.closed, "the pool was closed")
        for connection in self.connections.values { self.drop(connection, error) }
        while let segment = self.waiting.popFirst() { self.fail(segment, error) }
        self.thread.stop()
    }

    /// Fails calls that wait for a connection.
    private func failWaiting(where isLate: (Segment) -> Bool) {
        let late = self.waiting.filter(isLate)
        guard !late.isEmpty else { return }
        self.waiting.removeAll(where: isLate)
        let reason = self.lastFailure.map { "no connection: \($0)" } ?? "every connection is busy"
        for segment in late { self.fail(segment, PostgresError(.unavailable, reason)) }
    }

    private func fail(_ segment: Segment, _ error: PostgresError) {
        segment.waiter.resume(returning: .failure(error))
    }

    // MARK: Scheduling

    /// Sends waiting calls in order of arrival, but leaves the last connection to shorter calls.
    private func dispatch() {
        while let index = self.nextIndex() {
            guard let connection = self.connection(for: self.waiting[index].lease) else { break }
            let segment = self.waiting.remove(at: index)
            if case .acquire(let key) = segment.lease { connection.holder = key }
            self.send(segment, on: connection)
        }
        self.openMissing()
    }

    /// The index of the call to send next; nil if there is none.
    ///
    /// Long calls take all connections but one, or the only one.
    private func nextIndex() -> Int? {
        guard let head = self.waiting.first else { return nil }
        guard head.lease.isAlone else { return 0 }
        let taken = self.connections.values.count { $0.isTakenAlone }
        if taken < max(1, self.configuration.connections - 1) { return 0 }
        return self.waiting.firstIndex { !$0.lease.isAlone }
    }

    /// The connection for a call; nil if the call must wait.
    ///
    /// A shared call does not join a slow connection while another is not slow, even if that one is
    /// full. If all are slow, it waits for one that is being opened.
    private func connection(for lease: Segment.Lease) -> ServerConnection? {
        let slowSince = self.clock.now - self.configuration.slowAfter
        let free = self.connections.values.lazy.filter {
            $0.holder == nil && $0.cancelled == nil && !$0.isBroken && !$0.isTakenAlone
        }
        guard let least = free.min(by: { $0.load(slowSince: slowSince) < $1.load(slowSince: slowSince) })
        else { return nil }
        switch lease {
        case .shared:
            let mustWait = self.opening > 0 && least.isSlow(since: slowSince)
            return !mustWait && least.inFlight < self.configuration.pipelineDepth ? least : nil
        case .alone, .acquire, .held: return least.inFlight == 0 ? least : nil
        }
    }

    private func send(_ segment: Segment, on connection: ServerConnection) {
        let wantedWrite = connection.wantsWrite
        connection.send(segment)
        self.settle(connection, wantedWrite: wantedWrite)
    }

    private func settle(_ connection: ServerConnection, wantedWrite: Bool) {
        if connection.isBroken {
            self.drop(connection, PostgresError(.connectionLost))
        } else if connection.wantsWrite != wantedWrite {
            self.thread.rewatch(connection.socket, forWriting: connection.wantsWrite)
        }
    }

    private func drop(_ connection: ServerConnection, _ error: PostgresError) {
        guard self.connections.removeValue(forKey: connection.socket) != nil else { return }
        self.thread.unwatch(connection.socket)
        for (segment, own) in connection.abandon() { self.fail(segment, own ?? error) }
    }

    // MARK: The thread's calls

    func socketIsReady(_ socket: CInt) {
        guard let connection = self.connections[socket] else { return }
        let wantedWrite = connection.wantsWrite
        connection.read { segment, result in
            let hasFailed = if case .failure = result { true } else { false }
            switch segment.lease {
            case .held(_, release: true):
                connection.holder = nil
                // The transaction may still be open.
                if hasFailed { connection.retire() }
            case .acquire where hasFailed: connection.holder = nil
            case .acquire, .alone, .held, .shared: break
            }
            segment.waiter.resume(returning: result)
        }
        self.settle(connection, wantedWrite: wantedWrite)
        self.dispatch()
    }

    func tick() -> Bool {
        let now = self.clock.now
        for connection in self.connections.values {
            guard connection.isStalled(now, limit: self.configuration.timeout) else {
                // None belongs to a transaction: its connection carries one segment at a time, so
                // it counts as stalled at the deadline.
                for segment in connection.expireOverdue(now) {
                    self.fail(segment, PostgresError(.timeout, "no answer in time"))
                }
                continue
            }
            // The server did not time out on its own: it stalls or is unreachable.
            if let handle = connection.cancelHandle() {
                _ = self.configuration.startThread("pg-cancel") { handle.cancel() }
            }
            self.drop(connection, PostgresError(.timeout, "no answer in time"))
        }
        self.failWaiting { $0.deadline <= now }
        // Connections become slow with time, and a failed opening sends nothing, so look again.
        self.dispatch()
        return self.connections.isEmpty || !self.waiting.isEmpty
            || self.connections.values.contains { $0.inFlight > 0 }
    }

    // MARK: Opening

    /// Opens connections for waiting calls, and one that is idle, so that the next call does not
    /// wait behind a slow statement.
    private func openMissing() {
        guard !self.isClosed else { return }
        if let retryAt, retryAt > self.clock.now { return }
        let busy = self.connections.values.count { $0.inFlight > 0 || $0.holder != nil }
        let wanted = min(
            self.configuration.connections, max(self.connections.count, busy + 1) + self.waiting.count)
        while self.connections.count + self.opening < wanted {
            self.opening += 1
            let configuration = self.configuration
            let isStarted = configuration.startThread("pg-connect") { [self] in
                let outcome = BlockingConnection.open(configuration)
                self.thread.run { self.opened(outcome) }
            }
            guard isStarted else {
                self.opening -= 1
                return
            }
        }
    }

    private func opened(_ outcome: Result<BlockingConnection, PostgresError>) {
        self.opening -= 1
        switch outcome {
        case .success(let blocking):
            guard !self.isClosed, let connection = ServerConnection(blocking.release()) else { return }
            if self.lastFailure != nil { self.logger.info("postgres connected") }
            self.attempt = 0
            self.retryAt = nil
            self.lastFailure = nil
            self.connections[connection.socket] = connection
            self.thread.watch(connection.socket)
            self.dispatch()
        case .failure(let error):
            let reason = error.message ?? "\(error)"
            if self.lastFailure != reason {
                self.logger.warning("postgres connection failed; retrying", metadata: ["error": "\(reason)"])
            }
            self.lastFailure = reason
            self.retryAt = self.clock.now + self.configuration.reconnect.delay(attempt: self.attempt)
            self.attempt += 1
            // Open connections still serve the calls, one after another.
            if !self.configuration.waitsForServer, self.connections.isEmpty, self.opening == 0 {
                self.failWaiting { _ in true }
            }
        }
    }
}

/// Statements between two sync points: one round trip, one implicit transaction, one failure.
final class Segment: Sendable {
    typealias Waiter = UnsafeContinuation<Result<[PostgresResult], PostgresError>, Never>

    /// The connection that may carry a segment.
    enum Lease: Sendable {
        /// Any connection, pipelined with other segments.
        case shared
        /// An empty connection, which carries nothing else meanwhile.
        case alone
        /// An empty connection, reserved until it is released.
        case acquire(TransactionKey)
        /// The reserved connection.
        case held(TransactionKey, release: Bool)

        var isAlone: Bool {
            if case .alone = self { true } else { false }
        }
    }

    let identifier: UInt64
    let statements: [PostgresStatement]
    let lease: Lease
    let deadline: ContinuousClock.Instant
    // An unsafe continuation is sound here: only the database thread resumes it, once, when it
    // drops the segment.
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

/// Identifies the connection that a transaction has reserved.
struct TransactionKey: Hashable, Sendable {
    let value: UInt64
}
