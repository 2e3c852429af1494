// Carillon · PostgresPool.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Synchronization

/// A bounded pool of pipelined PostgreSQL connections on a thread of its own.
///
/// Calls are served first come, first served, and wait at most their deadline. Connections are opened as they are needed
/// and replaced when they break.
package final class PostgresPool: Sendable {
    private let thread: PollingThread
    private let state: PoolState
    private let configuration: PostgresConfiguration
    private let identifiers = Atomic<UInt64>(0)

    /// Starts the pool, which ends with ``close()``, or when nobody holds it any more.
    ///
    /// - Throws: ``PostgresError`` if the system has no thread or descriptor for it.
    package init(_ configuration: PostgresConfiguration, logger: Logger) throws(PostgresError) {
        self.configuration = configuration
        guard let thread = PollingThread() else { throw PostgresError(.unavailable, "no descriptor for epoll") }
        self.thread = thread
        self.state = PoolState(configuration, thread: self.thread, logger: logger)
        guard thread.start(name: "postgres", owner: self.state) else {
            throw PostgresError(.unavailable, "no thread for the database")
        }
    }

    deinit {
        self.close()
    }

    /// Runs one statement.
    ///
    /// - Parameter timeout: waiting included; the configuration's if nil.
    @discardableResult
    package func query(
        _ sql: String,
        _ parameters: PostgresValue...,
        timeout: Duration? = nil
    ) async throws(PostgresError) -> PostgresResult {
        let results = try await self.run([PostgresStatement(sql, parameters)], timeout: timeout)
        guard let result = results.first else { throw PostgresError(.decoding, "a statement gave no result") }
        return result
    }

    /// Runs statements as one transaction in one round trip: all of them, or none.
    ///
    /// - Parameter timeout: waiting included; the configuration's if nil.
    @discardableResult
    package func run(
        _ statements: [PostgresStatement],
        timeout: Duration? = nil
    ) async throws(PostgresError) -> [PostgresResult] {
        try await self.submit(statements, lease: .shared, timeout: timeout)
    }

    /// Runs `body` between BEGIN and COMMIT on a connection that nobody else uses meanwhile.
    ///
    /// What `body` throws rolls everything back.
    package func transaction<Value: Sendable>(
        timeout: Duration? = nil,
        _ body: (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        let key = TransactionKey(value: self.nextIdentifier())
        try await self.submit([PostgresStatement("BEGIN")], lease: .acquire(key), timeout: timeout)
        let transaction = PostgresTransaction(pool: self, key: key)
        let value: Value
        do {
            value = try await body(transaction)
        } catch {
            do throws(PostgresError) {
                try await self.submit(
                    [PostgresStatement("ROLLBACK")],
                    lease: .held(key, release: true),
                    timeout: timeout
                )
            } catch {
                self.thread.run { [state] in state.discard(key) }
            }
            throw error
        }
        let results = try await self.submit(
            [PostgresStatement("COMMIT")],
            lease: .held(key, release: true),
            timeout: timeout
        )
        // The server answers COMMIT with a rollback, and no error, where a statement failed and `body` went on.
        guard results.first?.command == "COMMIT" else {
            throw PostgresError(.server, "a failed statement rolled the transaction back", sqlState: "25P02")
        }
        return value
    }

    /// Runs `body` on a blocking connection and a thread of its own, for scripts of many statements.
    package func withScriptConnection<Value: Sendable>(
        _ body: @escaping @Sendable (BlockingConnection) throws -> Value
    ) async throws -> Value {
        let configuration = self.configuration
        return try await withCheckedThrowingContinuation { continuation in
            let isStarted = DetachedThread.run(name: "pg-script") {
                continuation.resume(with: Result { try body(BlockingConnection.open(configuration).get()) })
            }
            if !isStarted { continuation.resume(throwing: PostgresError(.unavailable, "no thread for a script")) }
        }
    }

    /// Closes every connection; what waits or runs fails with `closed`.
    package func close() {
        self.thread.run { [state] in state.close() }
    }

    func nextIdentifier() -> UInt64 {
        self.identifiers.wrappingAdd(1, ordering: .relaxed).newValue
    }

    @discardableResult
    func submit(
        _ statements: [PostgresStatement],
        lease: Segment.Lease,
        timeout: Duration?
    ) async throws(PostgresError) -> [PostgresResult] {
        let identifier = self.nextIdentifier()
        let deadline = ContinuousClock.now + (timeout ?? self.configuration.timeout)
        let result = await withTaskCancellationHandler {
            await withUnsafeContinuation { (waiter: Segment.Waiter) in
                let segment = Segment(
                    identifier: identifier,
                    statements: statements,
                    lease: lease,
                    deadline: deadline,
                    waiter: waiter
                )
                guard self.thread.run({ [state] in state.submit(segment) }) else {
                    waiter.resume(returning: .failure(PostgresError(.closed)))
                    return
                }
                // A cancellation from before the submission found nothing to cancel.
                if Task.isCancelled { self.cancel(identifier, lease) }
            }
        } onCancel: {
            self.cancel(identifier, lease)
        }
        if case .failure(let error) = result, error.sqlState == "57014", Task.isCancelled {
            throw PostgresError(.cancelled)
        }
        return try result.get()
    }

    private func cancel(_ identifier: UInt64, _ lease: Segment.Lease) {
        // The end of a transaction must reach the server even if nobody waits for it any more.
        if case .held(_, release: true) = lease { return }
        self.thread.run { [state] in state.cancel(identifier) }
    }
}

/// A transaction that is open; its statements run on one connection, in order.
package struct PostgresTransaction: Sendable {
    private let pool: PostgresPool
    private let key: TransactionKey

    init(pool: PostgresPool, key: TransactionKey) {
        self.pool = pool
        self.key = key
    }

    /// Runs one statement.
    @discardableResult
    package func query(
        _ sql: String,
        _ parameters: PostgresValue...,
        timeout: Duration? = nil
    ) async throws(PostgresError) -> PostgresResult {
        let results = try await self.run([PostgresStatement(sql, parameters)], timeout: timeout)
        guard let result = results.first else { throw PostgresError(.decoding, "a statement gave no result") }
        return result
    }

    /// Runs statements in one round trip.
    @discardableResult
    package func run(
        _ statements: [PostgresStatement],
        timeout: Duration? = nil
    ) async throws(PostgresError) -> [PostgresResult] {
        try await self.pool.submit(statements, lease: .held(self.key, release: false), timeout: timeout)
    }
}
