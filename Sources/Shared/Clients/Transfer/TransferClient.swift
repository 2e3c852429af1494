// Carillon · TransferClient.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl
import Glibc
import Logging

/// Trust and limits of a ``TransferClient``.
package struct TransferConfiguration: Sendable {
    /// A PEM file of certificate authorities, trusted in addition to the system's directory; nil
    /// means the system's bundle only.
    package var caFile: String?
    var userAgent = "carillon"
    /// The URL of a proxy for all hosts; empty means none, nil the environment's (`HTTPS_PROXY`).
    var proxy: String?
    /// The connections to one host, 2 to 8.
    ///
    /// Without a limit libcurl opens one for each request that finds the others full.
    package var connectionsPerHost = 4
    /// The streams of one connection, if the server allows as many; libcurl's work a turn grows
    /// with all open streams.
    package var streamsPerConnection = 100
    /// The in-flight limit of all hosts; one host never exceeds connections × streams, nor its
    /// connections before an answer over HTTP/2.
    package var maximumInFlight = 1_000
    /// The limit on waiting requests; beyond it a request ends as `overloaded` at once.
    package var maximumWaiting = 10_000
    /// The time limit for the lookup of a name, TCP and TLS together.
    ///
    /// Longer than the 5 s after which the C library asks the next name server.
    var connectTimeout: Duration = .seconds(8)
    /// Whether `http` URLs are allowed.
    package var allowPlainHTTP = false
    /// Whether to connect only to public addresses and through no proxy, for URLs chosen by
    /// strangers.
    ///
    /// Every address is checked after its name was resolved, so rebinding the name does not help.
    package var refusesPrivateAddresses = false
    /// Whether strangers choose the URLs, so that a silent name server must delay only its own
    /// hosts.
    ///
    /// ``NameResolver`` looks the names up then, unless there is a proxy, which does so itself.
    package var strangersChooseURLs = false
    /// The lookup of names by ``NameResolver``; tests inject one.
    var lookUp: NameResolver.LookUp = { NameResolver.lookUp($0) }

    package init() {}

    var maximumInFlightPerHost: Int { self.connectionsPerHost * self.streamsPerConnection }

    /// Whether ``NameResolver`` looks names up.
    var resolvesNames: Bool {
        if self.refusesPrivateAddresses { return true }
        guard self.strangersChooseURLs else { return false }
        if let proxy { return proxy.isEmpty }
        return !Self.namesProxy { name in getenv(name).map { String(cString: $0) } }
    }

    /// Whether variables of the environment name a proxy, by libcurl's rules.
    static func namesProxy(_ variable: (String) -> String?) -> Bool {
        // Not `HTTP_PROXY`, which a request's `Proxy` header sets in CGI programs.
        ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
            .contains { variable($0)?.isEmpty == false }
    }
}

/// Sends HTTP requests over shared, long-lived HTTP/2 connections.
///
/// Uses libcurl's multi interface on one thread; callers hand over a request and await its outcome.
/// The client follows no redirects and never retries, because only the caller knows what a second
/// attempt means. libcurl itself resends a body, up to five times within the deadline, where an
/// HTTP/2 server did not process the request. So a POST arrives at most once, but for two rare
/// cases (see `EasyHandle.rewindBody`); a GET that a reused connection lost may arrive twice.
package final class TransferClient: Sendable {
    private let mailbox: TransferMailbox
    /// Nil if libcurl looks names up itself.
    private let resolver: NameResolver?
    private let connectTimeout: Duration

    /// Starts the thread, which runs until ``shutdown()`` or deallocation.
    ///
    /// - Throws: ``TransferError`` if libcurl, the certificate authorities' file or a thread is
    ///   unavailable.
    package init(
        configuration: TransferConfiguration,
        logger: Logger = Logger(label: "carillon.transfer")
    ) throws(TransferError) {
        if let file = configuration.caFile, access(file, R_OK) != 0 {
            throw TransferError(.configuration, "cannot read the file of certificate authorities")
        }
        let multi = try MultiHandle(configuration)
        let mailbox = TransferMailbox(
            maximumUnfinished: configuration.maximumInFlight + configuration.maximumWaiting,
            wake: { multi.wake() }
        )
        self.mailbox = mailbox
        self.resolver = configuration.resolvesNames ? NameResolver(lookUp: configuration.lookUp) : nil
        self.connectTimeout = configuration.connectTimeout
        let isStarted = DetachedThread.run(name: "transfer") {
            TransferLoop(configuration, multi: multi, mailbox: mailbox, logger: logger).run()
        }
        guard isStarted else {
            multi.close()
            throw TransferError(.thread, "the system has no thread left")
        }
    }

    deinit {
        self.mailbox.stop()
    }

    /// Sends one request and returns its outcome by the request's deadline.
    ///
    /// Cancelling the task ends the transfer as `cancelled` and resets its stream.
    package func perform(_ request: TransferRequest) async -> TransferOutcome {
        let start = ContinuousClock.now
        guard let origin = request.origin else { return .unanswered(TransferFailure(.invalidRequest)) }
        guard let resolver = self.resolver else { return await self.send(request, origin: origin, start: start) }
        guard let target = TransferTarget(origin: origin) else { return .unanswered(TransferFailure(.invalidRequest)) }
        if target.isAddress { return await self.send(request, origin: origin, start: start) }
        if let failure = self.mailbox.reserve() { return .unanswered(failure) }
        let limit = min(self.connectTimeout, request.timeout)
        guard let addresses = await resolver.addresses(of: target.host, within: limit) else {
            let failure =
                Task.isCancelled
                ? TransferFailure(.cancelled)
                : TransferFailure(curl: CURLE_COULDNT_RESOLVE_HOST, hasDetail: false, wasSent: false)
            return .unanswered(self.mailbox.withdraw(failure))
        }
        var resolved = request
        resolved.resolution = target.resolution(addresses)
        return await self.send(resolved, origin: origin, start: start, isReserved: true)
    }

    /// Hands the request over to the thread; the deadline counts from `start`.
    private func send(
        _ request: TransferRequest,
        origin: String,
        start: ContinuousClock.Instant,
        isReserved: Bool = false
    ) async -> TransferOutcome {
        let ticket = TransferTicket(request, origin: origin, start: start, timeout: request.timeout)
        return await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                ticket.wait(continuation)
                if let failure = self.mailbox.submit(ticket, isReserved: isReserved) {
                    ticket.finish(.unanswered(failure))
                }
                // A cancellation before the thread had the ticket had no effect, so repeat it.
                if ticket.isCancelled { self.mailbox.reportCancellation() }
            }
        } onCancel: {
            ticket.cancel()
            self.mailbox.reportCancellation()
        }
    }

    /// The current numbers of requests.
    func snapshot() -> TransferSnapshot { self.mailbox.snapshot }

    /// Ends all transfers as `shutdown`, closes the connections and returns when the thread has
    /// ended.
    package func shutdown() async {
        self.mailbox.stop()
        self.resolver?.stop()
        await self.mailbox.waitUntilGone()
    }
}

/// The current numbers of a ``TransferClient``'s requests.
struct TransferSnapshot: Sendable, Equatable {
    /// In flight in libcurl.
    var inFlight = 0
    /// Waiting for a host's addresses or in our queue.
    var waiting = 0
}

/// The reason why a ``TransferClient`` could not start.
package struct TransferError: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Code: String, Sendable {
        /// libcurl, or its HTTP/2 support, is unusable.
        case library
        /// The system has no thread left.
        case thread
        /// libcurl rejects a setting.
        case configuration
    }

    package let code: Code
    package let message: String

    init(_ code: Code, _ message: String) {
        self.code = code
        self.message = message
    }

    package var description: String { "transfer \(self.code.rawValue): \(self.message)" }
}
