// Carillon · TransferLoop.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl
import Glibc
import Logging

/// The loop of the transfer thread, the only user of libcurl's handles.
final class TransferLoop {
    private typealias Instant = ContinuousClock.Instant

    /// From this many in-flight transfers on, turns pause to batch work.
    private static let manyInFlight = 64
    /// The shortest pause, and its length for each transfer in flight, in microseconds.
    private static let shortestPause = 2_000
    private static let pausePerTransfer = 10
    /// A longer time between two turns means that the process stalled; a turn polls for a second at
    /// most.
    private static let stall: Duration = .seconds(2)
    /// The time to read answers that arrived during a stall.
    private static let catchUp: Duration = .seconds(1)

    private let configuration: TransferConfiguration
    private let multi: MultiHandle
    private let mailbox: TransferMailbox
    private let logger: Logger

    private var queue: FairQueue<TransferTicket>
    /// A lower bound of the turn deadlines of waiting tickets and the deadlines of those in flight.
    private var nextExpiry: Instant?
    /// The earliest next check of deadlines.
    private var nextCheck = Instant.now
    /// The time of the last turn; nil after one that put the check off.
    private var lastTurn: Instant?
    /// All handles ever needed at once, kept for the next burst.
    private var handles: [EasyHandle] = []
    private var idle: [EasyHandle] = []
    /// Requests with a fence that libcurl has not begun to send.
    private var unsent: [EasyHandle] = []
    private let ambiguousOrigins = AmbiguousOrigins()
    private let sockets = OpenSockets()
    /// Whether this turn begins requests.
    private var hasStarted = false
    private var inFlight = 0
    /// How often libcurl has worked on the transfers.
    private var rounds = 0
    private var arrivals: [TransferTicket] = []
    private var results: [(ticket: TransferTicket, outcome: TransferOutcome)] = []

    init(_ configuration: TransferConfiguration, multi: MultiHandle, mailbox: TransferMailbox, logger: Logger) {
        self.configuration = configuration
        self.multi = multi
        self.mailbox = mailbox
        self.logger = logger
        self.queue = FairQueue(
            share: max(1, configuration.maximumInFlightPerHost), narrowShare: max(1, configuration.connectionsPerHost))
    }

    /// Runs until the mailbox stops; then answers all callers and frees libcurl's handles.
    func run() {
        while self.turn() {}
        self.mailbox.close()
        self.idle = []
        self.unsent = []
        self.handles = []
        self.multi.close()
        self.logger.debug("transfer thread ended")
        self.mailbox.finishShutdown()
    }

    private func turn() -> Bool {
        let signals = self.mailbox.drain(into: &self.arrivals)
        var moved = self.arrivals.count
        self.acceptArrivals()
        if signals.isStopping {
            self.abandonTransfers(.shutdown) { _ in true }
            self.abandonWaiting(.shutdown) { _ in true }
            self.publish()
            return false
        }
        if signals.hasCancellations {
            self.abandonTransfers(.cancelled) { $0.isCancelled }
            self.abandonWaiting(.cancelled) { $0.isCancelled }
        }
        self.fenceUnsent()
        self.fill()
        self.rounds += 1
        let isWorking = self.hasStarted ? self.sockets.corked { self.multi.perform() } : self.multi.perform()
        self.hasStarted = false
        if !isWorking {
            self.logger.error("libcurl failed; ended all transfers")
            self.abandonTransfers(.other) { _ in true }
        }
        self.unsent.removeAll { $0.ticket == nil || $0.wasSent }
        self.collect()
        self.expire()
        self.fill()
        moved += self.results.count
        self.publish()
        // The wake-up must reach `poll`, never `perform`, which could swallow it; the poll is
        // always bounded.
        if self.mailbox.fallAsleep(inFlight: self.inFlight), !self.multi.poll(milliseconds: self.pollTime()) {
            usleep(10_000)
        }
        // With many transfers in flight, pause so that answers and requests accumulate: each turn
        // walks all handles, and each lone request costs a packet. A longer walk pauses for longer.
        if self.inFlight >= Self.manyInFlight, moved <= self.inFlight / 2 {
            usleep(useconds_t(max(Self.shortestPause, Self.pausePerTransfer * self.inFlight)))
        }
        return true
    }

    // MARK: In

    private func acceptArrivals() {
        for ticket in self.arrivals {
            self.queue.append(ticket, origin: ticket.origin, priority: ticket.request.priority)
            self.nextExpiry = min(self.nextExpiry ?? ticket.turnDeadline, ticket.turnDeadline)
        }
        self.arrivals.removeAll(keepingCapacity: true)
    }

    private func fill() {
        guard self.queue.count > 0, self.inFlight < self.configuration.maximumInFlight else { return }
        let now = Instant.now
        while self.inFlight < self.configuration.maximumInFlight, let ticket = self.queue.next() {
            if let failure = self.start(ticket, now: now) {
                self.queue.release(origin: ticket.origin)
                self.results.append((ticket, .unanswered(failure)))
            }
        }
    }

    private func start(_ ticket: TransferTicket, now: Instant) -> TransferFailure? {
        if ticket.isCancelled { return TransferFailure(.cancelled) }
        guard now < ticket.turnDeadline else { return TransferFailure(.noTurn) }
        guard ticket.request.mayStart?() ?? true else { return TransferFailure(.fenced) }
        guard let handle = self.idle.popLast() ?? self.makeHandle() else { return TransferFailure(.other) }
        if let failure = handle.load(ticket, round: self.rounds) {
            self.idle.append(handle)
            return failure
        }
        guard self.multi.add(handle.pointer) else {
            _ = handle.unload()
            self.idle.append(handle)
            return TransferFailure(.other)
        }
        self.inFlight += 1
        self.hasStarted = true
        if ticket.request.mayStart != nil { self.unsent.append(handle) }
        return nil
    }

    private func makeHandle() -> EasyHandle? {
        guard
            let handle = EasyHandle(
                self.configuration, ambiguousOrigins: self.ambiguousOrigins, sockets: self.sockets)
        else {
            self.logger.error("libcurl could not create a handle")
            return nil
        }
        self.handles.append(handle)
        return handle
    }

    // MARK: Out

    private func collect() {
        while let end = self.multi.nextEnd() {
            if let handle = EasyHandle.owner(of: end.easy) { self.end(handle, end.result) }
        }
    }

    /// Ends a transfer that libcurl has worked on.
    private func end(_ handle: EasyHandle, _ result: CURLcode) {
        let outcome = handle.outcome(result)
        if case .answered(let response) = outcome, let ticket = handle.ticket {
            self.adjustShare(of: ticket.origin, for: response.version)
        }
        self.finish(handle, outcome)
    }

    /// Lets a host have as many requests at a time as its connections take: one each, until an
    /// answer over HTTP/2 shows that they take more.
    ///
    /// Over HTTP/1, further ones would wait inside libcurl, where they ignore priorities and time
    /// out as if the host had not answered.
    private func adjustShare(of origin: String, for version: TransferResponse.Version) {
        switch version {
        case .http1: self.queue.narrow(origin: origin)
        case .http2: self.queue.widen(origin: origin)
        case .other: break
        }
    }

    private func finish(_ handle: EasyHandle, _ outcome: TransferOutcome) {
        self.multi.remove(handle.pointer)
        self.inFlight -= 1
        self.idle.append(handle)
        guard let ticket = handle.unload() else { return }
        self.queue.release(origin: ticket.origin)
        self.results.append((ticket, outcome))
    }

    private func abandonTransfers(_ reason: TransferFailure.Reason, where predicate: (TransferTicket) -> Bool) {
        for handle in self.handles {
            guard let ticket = handle.ticket, predicate(ticket) else { continue }
            self.finish(handle, .unanswered(handle.abandoned(reason, round: self.rounds)))
        }
    }

    private func abandonWaiting(_ reason: TransferFailure.Reason, where predicate: (TransferTicket) -> Bool) {
        for ticket in self.queue.removeAll(where: predicate) {
            self.results.append((ticket, .unanswered(TransferFailure(reason))))
        }
    }

    /// Ends requests that may no longer start and wait inside libcurl for a connection or a stream.
    private func fenceUnsent() {
        for handle in self.unsent where handle.ticket?.request.mayStart?() == false {
            self.finish(handle, .unanswered(TransferFailure(.fenced)))
        }
    }

    /// Ends waiting requests and transfers whose time is over; call it when libcurl has read.
    ///
    /// libcurl's own time limit would end a transfer before its answer is read, even if the answer
    /// arrived in time, while the process stalled. After a stall, libcurl needs several rounds to
    /// read all answers.
    private func expire() {
        let now = Instant.now
        if let last = self.lastTurn, last.duration(to: now) > Self.stall {
            // Nil, so that turns that are always slow do not put the check off again and again.
            self.lastTurn = nil
            self.nextCheck = now.advanced(by: Self.catchUp)
        } else {
            self.lastTurn = now
        }
        guard let expiry = self.nextExpiry, now >= max(expiry, self.nextCheck) else { return }
        // Walk all of them at most a hundred times a second.
        self.nextCheck = now.advanced(by: .milliseconds(10))
        var next: Instant?
        func isOver(_ deadline: Instant) -> Bool {
            guard now < deadline else { return true }
            next = min(next ?? deadline, deadline)
            return false
        }
        self.abandonWaiting(.noTurn) { isOver($0.turnDeadline) }
        for handle in self.handles {
            if let ticket = handle.ticket, isOver(ticket.deadline) { self.end(handle, CURLE_OPERATION_TIMEDOUT) }
        }
        self.nextExpiry = next
    }

    /// Answers the callers; frees their slots first, so that an immediate next request finds one.
    private func publish() {
        guard !self.results.isEmpty else { return }
        self.mailbox.settle(self.results.count, inFlight: self.inFlight)
        for (ticket, outcome) in self.results { ticket.finish(outcome) }
        self.results.removeAll(keepingCapacity: true)
    }

    /// Returns the longest sleep in milliseconds.
    private func pollTime() -> Int {
        guard let nextExpiry else { return 1_000 }
        let next = max(nextExpiry, self.nextCheck)
        return min(1_000, max(0, Instant.now.duration(to: next).milliseconds + 1))
    }
}
