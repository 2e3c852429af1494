// Carillon · MailPool.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Synchronization

/// The threads of a ``MailClient``: made when all others are busy, up to a bound, and gone when they idle.
final class MailPool: Sendable {
    /// A thread that may be waiting for a message.
    final class Worker: Sendable {
        let bell: Doorbell

        init?() {
            guard let bell = Doorbell() else { return nil }
            self.bell = bell
        }
    }

    private struct State {
        var waiting = FairQueue<MailTicket>(share: .max)
        /// Not after this does a waiting ticket's time run out, or is it looked for.
        var nextExpiry: ContinuousClock.Instant?
        /// Those that wait for a message, the one used last at the end.
        var idle: [Worker] = []
        var assigned: [ObjectIdentifier: MailTicket] = [:]
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

    private enum Place {
        case refused(TransferFailure.Reason)
        case idle(Worker)
        case queue
        case newThread
    }

    /// Takes a ticket on, and finishes it in any case.
    func submit(_ ticket: MailTicket) {
        let place = self.state.withLock { state -> Place in
            if state.isStopped { return .refused(.shutdown) }
            if ticket.isCancelled { return .refused(.cancelled) }
            if let worker = state.idle.popLast() {
                state.assigned[ObjectIdentifier(worker)] = ticket
                return .idle(worker)
            }
            let priority = ticket.request.priority
            guard state.waiting.count(of: priority) < self.configuration.maximumWaiting else {
                return .refused(.overloaded)
            }
            state.waiting.append(ticket, origin: "", priority: priority)
            state.nextExpiry = min(state.nextExpiry ?? ticket.deadline, ticket.deadline)
            guard state.snapshot.connections < max(1, self.configuration.connections) else { return .queue }
            state.snapshot.connections += 1
            return .newThread
        }
        switch place {
        case .refused(let reason): self.settle(ticket, .unanswered(TransferFailure(reason)))
        case .idle(let worker): worker.bell.ring()
        case .queue: break
        case .newThread: self.startThread()
        }
    }

    /// The ticket's caller gave up: what waits is taken back, what is under way ends soon.
    func cancel(_ ticket: MailTicket) {
        ticket.cancel()
        let taken = self.state.withLock { $0.waiting.removeAll { $0 === ticket } }
        for ticket in taken { self.settle(ticket, .unanswered(TransferFailure(.cancelled))) }
    }

    /// Takes nothing more and ends the threads.
    func stop() {
        let (waiting, idle) = self.state.withLock { state in
            state.isStopped = true
            defer { state.idle = [] }
            return (state.waiting.removeAll { _ in true }, state.idle)
        }
        for worker in idle { worker.bell.ring() }
        for ticket in waiting { self.settle(ticket, .unanswered(TransferFailure(.shutdown))) }
    }

    /// Answers those whose time was over before their turn came: what goes before them may be without end.
    private func expireWaiting() {
        let now = ContinuousClock.now
        let expired = self.state.withLock { state -> [MailTicket] in
            guard let expiry = state.nextExpiry, now >= expiry else { return [] }
            var next: ContinuousClock.Instant?
            let expired = state.waiting.removeAll { ticket in
                guard now < ticket.deadline else { return true }
                next = min(next ?? ticket.deadline, ticket.deadline)
                return false
            }
            // The queue is walked ten times a second at most.
            state.nextExpiry = next.map { max($0, now.advanced(by: .milliseconds(100))) }
            return expired
        }
        for ticket in expired { self.settle(ticket, .unanswered(TransferFailure(.noTurn))) }
    }

    private func settle(_ ticket: MailTicket, _ outcome: MailOutcome) {
        self.state.withLock { state in
            if case .answered = outcome { state.snapshot.answered += 1 } else { state.snapshot.failed += 1 }
        }
        ticket.finish(outcome)
    }

    // MARK: Threads

    private func startThread() {
        if let worker = Worker(), DetachedThread.run(name: "mail", { self.work(worker) }) { return }
        self.logger.error("no thread for a connection to the mail relay")
        // Others that there are take what waits; nobody does where there are none.
        let stranded = self.state.withLock { state in
            state.snapshot.connections -= 1
            return state.snapshot.connections == 0 ? state.waiting.removeAll { _ in true } : []
        }
        for ticket in stranded { self.settle(ticket, .unanswered(TransferFailure(.other))) }
    }

    private func work(_ worker: Worker) {
        var handle: MailHandle?
        var done: (ticket: MailTicket, outcome: MailOutcome)?
        while let ticket = self.next(worker, after: done) {
            done = nil
            let now = ContinuousClock.now
            guard now < ticket.deadline, !ticket.isCancelled else {
                let reason: TransferFailure.Reason = ticket.isCancelled ? .cancelled : .noTurn
                self.settle(ticket, .unanswered(TransferFailure(reason)))
                continue
            }
            if handle == nil {
                handle = MailHandle(self.relay, self.configuration)
                self.state.withLock { $0.snapshot.opened += 1 }
            }
            guard let handle else {
                self.logger.error("libcurl gives no handle")
                self.settle(ticket, .unanswered(TransferFailure(.other)))
                continue
            }
            let outcome = handle.send(ticket.request, remaining: now.duration(to: ticket.deadline)) {
                // While all threads are busy, nobody else looks.
                self.expireWaiting()
                return !ticket.isCancelled && !self.state.withLock { $0.isStopped }
            }
            done = (ticket, self.named(outcome, ticket))
        }
    }

    /// What the end of the client cut off says so.
    private func named(_ outcome: MailOutcome, _ ticket: MailTicket) -> MailOutcome {
        guard case .unanswered(let failure) = outcome, failure.reason == .cancelled, !ticket.isCancelled else {
            return outcome
        }
        return .unanswered(
            TransferFailure(.shutdown, mayHaveBeenSent: failure.mayHaveBeenSent, code: failure.code))
    }

    /// The next message for a thread; nil if the thread is to end.
    ///
    /// - Parameter done: the last one, whose caller is answered when the connection is free: who sends another then finds it.
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
        if let done { self.settle(done.ticket, done.outcome) }
        if let taken { return taken }
        _ = worker.bell.wait(milliseconds: self.configuration.idleTime.milliseconds)
        return self.state.withLock { state in
            // Whoever took it off the list has left a message for it, unless all is over.
            state.idle.removeAll { $0 === worker }
            if let ticket = state.assigned.removeValue(forKey: ObjectIdentifier(worker)) { return ticket }
            if !state.isStopped, let ticket = Self.takeWaiting(&state) { return ticket }
            state.snapshot.connections -= 1
            return nil
        }
    }

    private static func takeWaiting(_ state: inout State) -> MailTicket? {
        guard let (ticket, lane) = state.waiting.next() else { return nil }
        state.waiting.release(lane: lane)
        return ticket
    }
}
