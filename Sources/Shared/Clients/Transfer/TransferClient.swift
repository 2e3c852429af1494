// Carillon · TransferClient.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import Logging

/// Sends HTTP requests over HTTP/2 connections that are shared and kept.
///
/// libcurl's multi interface on one thread of its own; callers hand their requests over and wait. There are no redirects
/// here and no retries, for whoever asked knows what a second try means. libcurl itself sends again, up to five times
/// within the deadline, what a server refused unread, and what a kept connection lost before a byte came back: a request
/// may arrive twice.
package final class TransferClient: Sendable {
    private let mailbox: TransferMailbox

    /// Starts the thread, which ends with ``shutdown()``, or when nobody holds the client any more.
    ///
    /// - Throws: ``TransferError`` if libcurl, the authorities' file or a thread is not to be had.
    package init(
        configuration: TransferConfiguration,
        logger: Logger = Logger(label: "carillon.transfer")
    ) throws(TransferError) {
        if let file = configuration.caFile, access(file, R_OK) != 0 {
            throw TransferError(.configuration, "the authorities' file cannot be read")
        }
        let multi = try MultiHandle(configuration)
        let mailbox = TransferMailbox(
            maximumUnfinished: configuration.maximumInFlight + configuration.maximumWaiting,
            wake: { multi.wake() }
        )
        self.mailbox = mailbox
        let isStarted = DetachedThread.run(name: "transfer") {
            TransferLoop(configuration, multi: multi, mailbox: mailbox, logger: logger).run()
        }
        guard isStarted else {
            multi.close()
            throw TransferError(.thread, "the system has none to give")
        }
    }

    deinit {
        self.mailbox.stop()
    }

    /// Sends one request and waits for its end, which comes by the request's deadline.
    ///
    /// Cancelling the task ends the transfer as `cancelled`, and resets its stream if it has one.
    package func perform(_ request: TransferRequest) async -> TransferOutcome {
        guard let origin = request.origin else {
            self.mailbox.countInvalid()
            return .unanswered(TransferFailure(.invalidRequest))
        }
        let ticket = TransferTicket(request, origin: origin, start: .now)
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                ticket.wait(continuation)
                if let failure = self.mailbox.submit(ticket) { ticket.finish(.unanswered(failure)) }
            }
        } onCancel: {
            ticket.cancel()
            self.mailbox.noteCancellation()
        }
    }

    /// What is under way and what has been done.
    package func snapshot() -> TransferSnapshot { self.mailbox.snapshot }

    /// Ends what is under way as `shutdown`, closes the connections and returns when the thread is done.
    package func shutdown() async {
        self.mailbox.stop()
        await self.mailbox.waitUntilGone()
    }
}
