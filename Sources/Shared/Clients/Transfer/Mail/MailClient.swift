// Carillon · MailClient.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import Logging

/// Hands messages to one relay over connections that are kept.
///
/// Each connection is libcurl's, on a thread of its own; the one that was used last is used next, so that a quiet time needs
/// one of them and the others close. There are no retries here, but for a kept connection that the relay ended before it
/// looked at the message.
package final class MailClient: Sendable {
    package let relay: MailRelay
    private let configuration: MailConfiguration
    private let pool: MailPool

    /// Connects with the first message.
    ///
    /// - Throws: ``TransferError`` if libcurl or the authorities' file is not to be had.
    package init(
        relay: MailRelay,
        configuration: MailConfiguration = MailConfiguration(),
        logger: Logger = Logger(label: "carillon.mail")
    ) throws(TransferError) {
        guard MultiHandle.isLibraryReady else { throw TransferError(.library, "libcurl cannot be used") }
        if let file = configuration.caFile, access(file, R_OK) != 0 {
            throw TransferError(.configuration, "the authorities' file cannot be read")
        }
        self.relay = relay
        self.configuration = configuration
        self.pool = MailPool(relay: relay, configuration: configuration, logger: logger)
    }

    deinit {
        self.pool.stop()
    }

    /// Sends one message and waits for its end.
    ///
    /// Cancelling the task takes back a message that waits, and ends one that is under way as `cancelled` within about a
    /// second.
    package func send(_ request: MailRequest) async -> MailOutcome {
        let ticket = MailTicket(request, start: .now)
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                ticket.wait(continuation)
                self.pool.submit(ticket)
            }
        } onCancel: {
            self.pool.cancel(ticket)
        }
    }

    /// Opens a connection of its own, greets the relay and logs in, and closes it: no message is sent.
    ///
    /// - Parameter timeout: how long all of it may take.
    package func greet(timeout: Duration = .seconds(10)) async -> MailOutcome {
        let (relay, configuration) = (self.relay, self.configuration)
        return await withCheckedContinuation { continuation in
            let isStarted = DetachedThread.run(name: "mail-greeting") {
                let handle = MailHandle(relay, configuration)
                continuation.resume(
                    returning: handle?.greet(within: timeout) ?? .unanswered(TransferFailure(.other)))
            }
            if !isStarted { continuation.resume(returning: .unanswered(TransferFailure(.other))) }
        }
    }

    /// What is under way and what has been done.
    package func snapshot() -> MailSnapshot { self.pool.snapshot }

    /// Ends what is under way as `shutdown` and takes nothing more.
    package func shutdown() {
        self.pool.stop()
    }
}

/// What a ``MailClient`` is doing, and has done since its start.
package struct MailSnapshot: Sendable, Equatable {
    /// Threads, and so connections, that there are.
    package var connections = 0
    /// Messages that wait for one.
    package var waiting = 0
    /// Connections that were opened.
    package var opened = 0
    /// Messages that the relay answered, whatever it said.
    package var answered = 0
    /// Messages that ended without an answer.
    package var failed = 0

    package init() {}
}
