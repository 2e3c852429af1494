// Carillon · PostgresListener.swift
// SPDX-License-Identifier: Apache-2.0

import CLibpq
import Core
import Logging

/// Runs LISTEN on a connection of its own and reconnects after every loss.
package final class PostgresListener: Sendable {
    /// An event of the listener, delivered on its thread.
    package enum Event: Sendable {
        /// Listening starts now; earlier notifications, also those during a loss, are not repeated.
        case listening
        case lost
        case notification(channel: String, payload: String)
    }

    private let thread: PollingThread
    private let state: ListenerState

    /// Starts to listen, until ``close()`` or deallocation.
    ///
    /// - Parameter channels: constant names, inserted into the statement without quoting.
    package init(
        _ configuration: PostgresConfiguration,
        channels: [StaticString],
        logger: Logger,
        handle: @escaping @Sendable (Event) -> Void
    ) throws(PostgresError) {
        guard let thread = PollingThread() else { throw PostgresError(.unavailable, "no descriptor for epoll") }
        self.thread = thread
        self.state = ListenerState(
            configuration,
            channels: channels.map { "\($0)" },
            thread: self.thread,
            logger: logger,
            handle: handle
        )
        guard thread.start(name: "pg-listen", owner: self.state) else {
            throw PostgresError(.unavailable, "no thread for the listener")
        }
    }

    deinit {
        self.close()
    }

    /// Stops the listener.
    package func close() {
        self.thread.run { [state] in state.close() }
    }
}

/// The listener's connection.
///
/// `@unchecked Sendable` is sound: only the listener's thread touches this state.
final class ListenerState: PollingThread.Owner, @unchecked Sendable {
    private let configuration: PostgresConfiguration
    private let channels: [String]
    private let thread: PollingThread
    private let logger: Logger
    private let handle: @Sendable (PostgresListener.Event) -> Void
    private let clock = ContinuousClock()

    private var connection: OpaquePointer?
    private var isOpening = false
    private var isClosed = false
    private var attempt = 0
    private var retryAt: ContinuousClock.Instant?
    private var lastFailure: String?

    init(
        _ configuration: PostgresConfiguration,
        channels: [String],
        thread: PollingThread,
        logger: Logger,
        handle: @escaping @Sendable (PostgresListener.Event) -> Void
    ) {
        self.configuration = configuration
        self.channels = channels
        self.thread = thread
        self.logger = logger
        self.handle = handle
    }

    deinit {
        if let connection { PQfinish(connection) }
    }

    func close() {
        self.isClosed = true
        self.drop()
        self.thread.stop()
    }

    func tick() -> Bool {
        self.openIfMissing()
        return self.connection == nil
    }

    private func openIfMissing() {
        guard !self.isClosed, self.connection == nil, !self.isOpening else { return }
        if let retryAt, retryAt > self.clock.now { return }
        self.isOpening = true
        let configuration = self.configuration
        let script = self.channels.map { "LISTEN \($0)" }.joined(separator: ";")
        let isStarted = configuration.startThread("pg-connect") { [self] in
            let outcome = BlockingConnection.open(configuration, script: script)
            self.thread.run {
                switch outcome {
                case .success(let connection): self.opened(connection.release())
                case .failure(let error): self.failed(error)
                }
            }
        }
        if !isStarted { self.failed(PostgresError(.unavailable, "no thread to connect on")) }
    }

    private func opened(_ pointer: OpaquePointer) {
        self.isOpening = false
        // The listener was closed while this connection opened.
        guard !self.isClosed else { return PQfinish(pointer) }
        if self.lastFailure != nil { self.logger.info("postgres listener connected") }
        self.attempt = 0
        self.lastFailure = nil
        self.connection = pointer
        PQsetnonblocking(pointer, 1)
        self.thread.watch(PQsocket(pointer))
        self.handle(.listening)
        self.socketIsReady(PQsocket(pointer))
    }

    private func failed(_ error: PostgresError) {
        self.isOpening = false
        guard !self.isClosed else { return }
        let reason = error.message ?? "\(error)"
        if self.lastFailure != reason {
            self.logger.warning("postgres listener failed; reconnecting", metadata: ["error": "\(reason)"])
        }
        self.lastFailure = reason
        self.retryAt = self.clock.now + self.configuration.reconnect.delay(attempt: self.attempt)
        self.attempt += 1
    }

    func socketIsReady(_ socket: CInt) {
        guard let connection else { return }
        guard ConnectionInput.read(connection) else {
            self.drop()
            self.handle(.lost)
            return
        }
        while let notification = PQnotifies(connection) {
            // Copies both strings before the notification is freed.
            let channel = String(cString: notification.pointee.relname)
            let payload = String(cString: notification.pointee.extra)
            PQfreemem(notification)
            self.handle(.notification(channel: channel, payload: payload))
        }
    }

    private func drop() {
        guard let connection else { return }
        self.thread.unwatch(PQsocket(connection))
        PQfinish(connection)
        self.connection = nil
    }
}
