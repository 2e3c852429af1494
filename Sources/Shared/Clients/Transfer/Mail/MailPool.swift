// Carillon · MailPool.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Synchronization

typealias MailTicket = Ticket<MailRequest, MailOutcome>

/// The threads of a ``MailClient``: started when all others are busy, up to a limit, and ended when
/// idle.
final class MailPool: Sendable {
    /// A thread that may wait for a message.
    final class Worker: Sendable {
        let bell: Doorbell

        init?() {
            guard let bell = Doorbell() else { return nil }
            self.bell = bell
        }
    }

    private struct State: ~Copyable {
        var waiting = FairQueue<MailTicket>(share: .max)
        /// A lower bound of the waiting tickets' turn deadlines.
        var nextExpiry: ContinuousClock.Instant?
        /// The workers that wait for a message; the one used last is at the end.
        var idle: [Worker] = []
        var assigned: [ObjectIdentifier: MailTicket] = [:]
        /// The most connections that the relay took when it refused another, and until when that
        /// holds.
        var limit: (connections: Int, end: ContinuousClock.Instant)?
        var isStopped = false
        var snapshot = MailSnapshot()
    }

    private let relay: MailRelay
    private let configuration: MailConfiguration
    private let logger: Logger
    private let state = Mutex(State())

    init(relay: MailRelay, configuration: MailConfiguration, logger: Logger) {
        self.relay = relay
        self.configuration = configuration
        self.logger = logger
    }

    var snapshot: MailSnapshot {
        self.state.withLock { state in
            var snapshot = state.snapshot
            snapshot.waiting = state.waiting.count
            return snapshot
        }
    }

    // MARK: For callers

    private enum Admission {
        case refused(TransferFailure.Reason)
        case assigned(Worker)
        case queued
        case queuedForNewThread
    }

    /// Accepts a ticket or refuses it; either way the ticket is finished.
    func submit(_ ticket: MailTicket) {
        let admission = self.state.withLock { state -> Admission in
            if state.isStopped { return .refused(.shutdown) }
            if ticket.isCancelled { return .refused(.cancelled) }
            if let worker = state.idle.popLast() {
                state.assigned[ObjectIdentifier(worker)] = ticket
                return .assigned(worker)
            }
            let priority = ticket.request.priority
            guard state.waiting.count(of: priority) < self.configuration.maximumWaiting else {
                return .refused(.overloaded)
            }
            state.waiting.append(ticket, origin: ticket.origin, priority: priority)
            state.nextExpiry = min(state.nextExpiry ?? ticket.turnDeadline, ticket.turnDeadline)
            guard state.snapshot.connections < self.mostConnections(&state) else { return .queued }
            state.snapshot.connections += 1
            return .queuedForNewThread
        }
        switch admission {
        case .refused(let reason): ticket.finish(.unanswered(TransferFailure(reason)))
        case .assigned(let worker): worker.bell.ring()
        case .queued: break
        case .queuedForNewThread: self.startThread()
        }
    }

    private func mostConnections(_ state: inout State) -> Int {
        if let limit = state.limit {
            if ContinuousClock.now < limit.end { return limit.connections }
            state.limit = nil
        }
        return max(1, self.configuration.connections)
    }

    /// Cancels a ticket: a waiting message is removed, one in flight ends soon.
    func cancel(_ ticket: MailTicket) {
        ticket.cancel()
        let taken = self.state.withLock { $0.waiting.removeAll { $0 === ticket } }
        for ticket in taken { ticket.finish(.unanswered(TransferFailure(.cancelled))) }
    }

    /// Refuses new messages and ends the threads.
    func stop() {
        let (waiting, idle) = self.state.withLock { state in
            state.isStopped = true
            defer { state.idle = [] }
            return (state.waiting.removeAll { _ in true }, state.idle)
        }
        for worker in idle { worker.bell.ring() }
        for ticket in waiting { ticket.finish(.unanswered(TransferFailure(.shutdown))) }
    }

    /// Fails waiting tickets whose turn deadline has passed; higher priorities may keep them
    /// waiting forever.
    private func expireWaiting() {
        let now = ContinuousClock.now
        let expired = self.state.withLock { state -> [MailTicket] in
            guard let expiry = state.nextExpiry, now >= expiry else { return [] }
            var next: ContinuousClock.Instant?
            let expired = state.waiting.removeAll { ticket in
                guard now < ticket.turnDeadline else { return true }
                next = min(next ?? ticket.turnDeadline, ticket.turnDeadline)
                return false
            }
            // Walk the queue at most ten times a second.
            state.nextExpiry = next.map { max($0, now.advanced(by: .milliseconds(100))) }
            return expired
        }
        for ticket in expired { ticket.finish(.unanswered(TransferFailure(.noTurn))) }
    }

    // MARK: Threads

    private func startThread() {
        if let worker = Worker(), self.configuration.startThread("mail", { self.work(worker) }) { return }
        self.logger.error("could not start a thread for a mail connection")
        // Existing threads take the waiting messages; without any thread, fail these.
        let stranded = self.state.withLock { state in
            state.snapshot.connections -= 1
            return state.snapshot.connections == 0 ? state.waiting.removeAll { _ in true } : []
        }
        for ticket in stranded { ticket.finish(.unanswered(TransferFailure(.other))) }
    }

    private func work(_ worker: Worker) {
        var handle: MailHandle?
        var done: (ticket: MailTicket, outcome: MailOutcome)?
        while let ticket = self.next(worker, after: done) {
            done = nil
            let now = ContinuousClock.now
            guard now < ticket.turnDeadline, !ticket.isCancelled else {
                let reason: TransferFailure.Reason = ticket.isCancelled ? .cancelled : .noTurn
                ticket.finish(.unanswered(TransferFailure(reason)))
                continue
            }
            guard ticket.request.mayStart?() ?? true else {
                ticket.finish(.unanswered(TransferFailure(.fenced)))
                continue
            }
            if handle == nil {
                handle = MailHandle(self.relay, self.configuration)
                self.state.withLock { $0.snapshot.opened += 1 }
            }
            guard let handle else {
                self.logger.error("libcurl could not create a handle")
                ticket.finish(.unanswered(TransferFailure(.other)))
                continue
            }
            let outcome = handle.send(ticket.request, remaining: now.duration(to: ticket.deadline)) {
                // While all threads are busy, only this callback checks deadlines.
                self.expireWaiting()
                return !ticket.isCancelled && !self.state.withLock { $0.isStopped }
            }
            if case .answered(let reply) = outcome, handle.isNew, reply.mayExceedConnections, self.putBack(ticket) {
                return
            }
            done = (ticket, self.asShutdown(outcome, ticket))
        }
    }

    /// Puts back a message that was refused because its connection was one too many: the other
    /// connections send it, and no further ones open for a while.
    ///
    /// - Returns: whether there are other connections; then the caller's has ended.
    private func putBack(_ ticket: MailTicket) -> Bool {
        let (isPutBack, worker) = self.state.withLock { state -> (Bool, Worker?) in
            let others = state.snapshot.connections - 1
            guard others > 0 else {
                // A relay that takes none now may soon take many again.
                state.limit = nil
                return (false, nil)
            }
            guard !state.isStopped, !ticket.isCancelled else { return (false, nil) }
            state.snapshot.connections = others
            state.limit = (others, ContinuousClock.now + self.configuration.limitTime)
            if let worker = state.idle.popLast() {
                state.assigned[ObjectIdentifier(worker)] = ticket
                return (true, worker)
            }
            state.waiting.prepend(ticket, origin: ticket.origin, priority: ticket.request.priority)
            state.nextExpiry = min(state.nextExpiry ?? ticket.turnDeadline, ticket.turnDeadline)
            return (true, nil)
        }
        worker?.bell.ring()
        return isPutBack
    }

    /// Reports a message that the shutdown cut off as `shutdown`.
    private func asShutdown(_ outcome: MailOutcome, _ ticket: MailTicket) -> MailOutcome {
        guard case .unanswered(let failure) = outcome, failure.reason == .cancelled, !ticket.isCancelled else {
            return outcome
        }
        return .unanswered(
            TransferFailure(.shutdown, mayHaveBeenSent: failure.mayHaveBeenSent, code: failure.code))
    }

    /// Waits for the next message of a worker; nil ends its thread.
    ///
    /// - Parameter done: the last message; its caller is answered once this worker is idle again,
    ///   so an immediate next message reuses the connection.
    private func next(_ worker: Worker, after done: (ticket: MailTicket, outcome: MailOutcome)?) -> MailTicket? {
        let taken = self.state.withLock { state -> MailTicket?? in
            if let ticket = Self.takeWaiting(&state) { return .some(ticket) }
            if state.isStopped {
                state.snapshot.connections -= 1
                return .some(nil)
            }
            state.idle.append(worker)
            return nil
        }
        if let done { done.ticket.finish(done.outcome) }
        if let taken { return taken }
        _ = worker.bell.wait(milliseconds: self.configuration.idleTime.milliseconds)
        return self.state.withLock { state in
            // A caller that took the worker off the list has assigned it a message, except at
            // shutdown.
            state.idle.removeAll { $0 === worker }
            if let ticket = state.assigned.removeValue(forKey: ObjectIdentifier(worker)) { return ticket }
            if !state.isStopped, let ticket = Self.takeWaiting(&state) { return ticket }
            state.snapshot.connections -= 1
            return nil
        }
    }

    private static func takeWaiting(_ state: inout State) -> MailTicket? {
        guard let ticket = state.waiting.next() else { return nil }
        state.waiting.release(origin: ticket.origin)
        return ticket
    }
}
