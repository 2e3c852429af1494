// Carillon · MailClient.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import Logging

/// Trust and limits of a ``MailClient``.
package struct MailConfiguration: Sendable {
    /// A PEM file of certificate authorities, trusted in addition to the system's directory; nil
    /// means the system's bundle only.
    package var caFile: String?
    /// The limit on connections, each with its own thread; a new one opens when all others are
    /// busy.
    var connections = 16
    /// How long a relay that refused a connection gets no more than it took.
    var limitTime: Duration = .seconds(300)
    /// The limit on waiting messages of one priority; beyond it a message ends as `overloaded` at
    /// once.
    var maximumWaiting = 10_000
    /// The time limit until the relay is ready for a message: lookup, TCP, TLS, greeting and login.
    ///
    /// Half of a message's time, since the other half may pass in our queue. Relays may greet late
    /// to deter spam.
    var connectTimeout: Duration = .seconds(25)
    /// The idle time after which a connection closes; relays wait for minutes.
    var idleTime: Duration = .seconds(30)
    var startThread: DetachedThread.Start = { DetachedThread.run(name: $0, $1) }

    package init() {}
}

/// Sends messages to one relay over kept connections.
///
/// Each connection is a libcurl handle on its own thread. The connection used last is used next, so
/// in quiet times one stays busy and the others close. The client does not retry, except when the
/// relay had closed a kept connection before it read the message, or took no further connection.
package final class MailClient: Sendable {
    package let relay: MailRelay
    private let configuration: MailConfiguration
    private let pool: MailPool

    /// Creates a client that connects with its first message.
    ///
    /// - Throws: ``TransferError`` if libcurl or the certificate authorities' file is unavailable.
    package init(
        relay: MailRelay,
        configuration: MailConfiguration = MailConfiguration(),
        logger: Logger = Logger(label: "carillon.mail")
    ) throws(TransferError) {
        guard MultiHandle.isLibraryReady else { throw TransferError(.library, "libcurl is unusable") }
        if let file = configuration.caFile, access(file, R_OK) != 0 {
            throw TransferError(.configuration, "cannot read the file of certificate authorities")
        }
        self.relay = relay
        self.configuration = configuration
        self.pool = MailPool(relay: relay, configuration: configuration, logger: logger)
    }

    deinit {
        self.pool.stop()
    }

    /// Sends one message and returns its outcome.
    ///
    /// Cancelling the task removes a waiting message, and ends one in flight as `cancelled` within
    /// about a second.
    package func send(_ request: MailRequest) async -> MailOutcome {
        let ticket = MailTicket(request, start: .now, timeout: request.timeout)
        return await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                ticket.wait(continuation)
                self.pool.submit(ticket)
            }
        } onCancel: {
            self.pool.cancel(ticket)
        }
    }

    /// Opens a separate connection, logs in and closes it without sending a message.
    package func greet() async -> MailOutcome {
        let (relay, configuration) = (self.relay, self.configuration)
        return await withCheckedContinuation { continuation in
            let isStarted = DetachedThread.run(name: "mail-greeting") {
                let handle = MailHandle(relay, configuration)
                continuation.resume(
                    returning: handle?.greet(within: configuration.connectTimeout)
                        ?? .unanswered(TransferFailure(.other)))
            }
            if !isStarted { continuation.resume(returning: .unanswered(TransferFailure(.other))) }
        }
    }

    /// The numbers of messages and connections.
    func snapshot() -> MailSnapshot { self.pool.snapshot }

    /// Ends messages in flight as `shutdown` and refuses new ones.
    func shutdown() {
        self.pool.stop()
    }
}

/// The numbers of a ``MailClient``'s messages and connections.
struct MailSnapshot: Sendable, Equatable {
    /// The open connections, each with a thread.
    var connections = 0
    /// The messages that wait for a connection.
    var waiting = 0
    /// The connections opened so far.
    var opened = 0
}
