// Carillon · PostgresPool.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Synchronization

/// Settings of a pool and its connections.
package struct PostgresConfiguration: Sendable {
    /// A libpq connection string: a URI or `key=value` pairs.
    var connectionString: String
    /// The name that `pg_stat_activity` shows.
    package var applicationName: String
    package var connections = 4
    /// The calls that one connection carries at once, pipelined.
    var pipelineDepth = 16
    /// How long a connection's first call may run before further calls prefer other connections.
    var slowAfter: Duration = .milliseconds(50)
    /// The limit on calls that wait for a connection; more are refused with `overloaded`.
    var maximumWaiting = 4_096
    /// The time limit of a call, waiting included.
    ///
    /// The server cancels a statement a little earlier, at nine tenths of it.
    package var timeout: Duration = .seconds(10)
    package var connectTimeout: Duration = .seconds(5)
    /// Server settings of each session.
    package var sessionSettings: [(name: String, value: String)] = []
    /// Runs first on each new connection; an error rejects the connection.
    package var prepare: (@Sendable (BlockingConnection) throws(PostgresError) -> Void)?
    var reconnect = Backoff(base: .milliseconds(50), limit: .seconds(2))
    /// Whether calls wait for a server that cannot be reached; if not, a failure to connect fails
    /// them, unless the pool has an open connection.
    package var waitsForServer = true
    /// Whether connections go only to standbys; otherwise they go only to a primary.
    package var wantsStandby = false
    var startThread: DetachedThread.Start = { DetachedThread.run(name: $0, $1) }

    package init(connectionString: String, applicationName: String) {
        self.connectionString = connectionString
        self.applicationName = applicationName
    }
}

/// A bounded pool of pipelined PostgreSQL connections on its own thread.
///
/// Calls are served in order of arrival and wait until their deadline at most. A call goes to a
/// connection that runs a slow one only if all do. The pool opens connections on demand, keeps one
/// idle for the next call if its limit allows, and replaces broken ones.
package final class PostgresPool: Sendable {
    private let thread: PollingThread
    private let state: PoolState
    private let configuration: PostgresConfiguration
    private let identifiers = Atomic<UInt64>(0)

    /// The most connections.
    package var size: Int { self.configuration.connections }

    /// Starts the pool, which runs until ``close()`` or deallocation.
    ///
    /// - Throws: ``PostgresError`` if the system has no thread or descriptor left.
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
    /// - Parameter timeout: the time limit, waiting included; nil means the configuration's.
    @discardableResult
    package func query(
        _ sql: String,
        _ parameters: PostgresValue...,
        timeout: Duration? = nil
    ) async throws(PostgresError) -> PostgresResult {
        try await self.query(PostgresStatement(sql, parameters), timeout: timeout)
    }

    /// Runs one statement.
    ///
    /// - Parameter timeout: the time limit, waiting included; nil means the configuration's.
    @discardableResult
    package func query(
        _ statement: PostgresStatement,
        timeout: Duration? = nil
    ) async throws(PostgresError) -> PostgresResult {
        try await self.run([statement], timeout: timeout)[0]
    }

    /// Runs statements as one transaction in one round trip.
    ///
    /// A call that may outlast others, because its limit is longer or several statements share it,
    /// has a connection of its own. One connection stays free of such calls, unless it is the only
    /// one.
    ///
    /// - Parameter timeout: the time limit, waiting included; nil means the configuration's.
    @discardableResult
    package func run(
        _ statements: [PostgresStatement],
        timeout: Duration? = nil
    ) async throws(PostgresError) -> [PostgresResult] {
        guard let timeout else { return try await self.submit(statements, lease: .shared, timeout: nil) }
        // The server's limit, a little shorter as always, so that it cancels the statements before
        // the pool gives up the connection and the calls behind them.
        let limit = PostgresStatement(
            "SELECT set_config('statement_timeout', $1, true)",
            [.text("\(max(1, timeout.inMicroseconds * 9 / 10_000))ms")])
        let mayOutlast = timeout > self.configuration.timeout || statements.count > 1
        let lease = mayOutlast ? Segment.Lease.alone : .shared
        return Array(try await self.submit([limit] + statements, lease: lease, timeout: timeout).dropFirst())
    }

    /// Runs `body` between BEGIN and COMMIT on a connection of its own; an error thrown by `body`
    /// rolls back.
    package func transaction<Value: Sendable>(
        _ body: (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        let key = TransactionKey(value: self.nextIdentifier())
        try await self.submit([PostgresStatement("BEGIN")], lease: .acquire(key), timeout: nil)
        let transaction = PostgresTransaction(pool: self, key: key)
        let value: Value
        do {
            value = try await body(transaction)
        } catch {
            do throws(PostgresError) {
                try await self.submit(
                    [PostgresStatement("ROLLBACK")],
                    lease: .held(key, release: true),
                    timeout: nil
                )
            } catch {
                self.thread.run { [state] in state.discard(key) }
            }
            throw error
        }
        let results = try await self.submit(
            [PostgresStatement("COMMIT")],
            lease: .held(key, release: true),
            timeout: nil
        )
        // The server answers COMMIT with ROLLBACK, and no error, if a statement failed and `body`
        // continued.
        guard results.first?.command == "COMMIT" else {
            throw PostgresError(.server, "a failed statement rolled back the transaction", sqlState: "25P02")
        }
        return value
    }

    /// Runs `body` with a blocking connection on a thread of its own, for scripts of many
    /// statements.
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

    /// Closes every connection; waiting and running calls fail with `closed`.
    package func close() {
        self.thread.run { [state] in state.close() }
    }

    func nextIdentifier() -> UInt64 {
        self.identifiers.wrappingAdd(1, ordering: .relaxed).newValue
    }

    /// Runs statements and returns a result for each.
    @discardableResult
    func submit(
        _ statements: [PostgresStatement],
        lease: Segment.Lease,
        timeout: Duration?
    ) async throws(PostgresError) -> [PostgresResult] {
        // With PostgreSQL's own code for a value beyond its limits.
        guard !statements.contains(where: \.isTooLarge) else {
            throw PostgresError(.server, "the parameters have 1 GB or more", sqlState: "54000")
        }
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
                // A cancellation before the submission found nothing to cancel.
                if Task.isCancelled { self.cancel(identifier, lease) }
            }
        } onCancel: {
            self.cancel(identifier, lease)
        }
        if case .failure(let error) = result, error.isStatementTimeout, Task.isCancelled {
            throw PostgresError(.cancelled)
        }
        let results = try result.get()
        guard results.count == statements.count else {
            throw PostgresError(.decoding, "a statement returned no result")
        }
        return results
    }

    private func cancel(_ identifier: UInt64, _ lease: Segment.Lease) {
        // The end of a transaction must reach the server even when no caller waits for it.
        if case .held(_, release: true) = lease { return }
        self.thread.run { [state] in state.cancel(identifier) }
    }
}

/// An open transaction; its statements run in order on one connection.
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
        _ parameters: PostgresValue...
    ) async throws(PostgresError) -> PostgresResult {
        try await self.run([PostgresStatement(sql, parameters)])[0]
    }

    /// Runs statements in one round trip.
    @discardableResult
    package func run(_ statements: [PostgresStatement]) async throws(PostgresError) -> [PostgresResult] {
        try await self.pool.submit(statements, lease: .held(self.key, release: false), timeout: nil)
    }
}
