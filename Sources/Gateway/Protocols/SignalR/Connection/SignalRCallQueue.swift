// Carillon · SignalRCallQueue.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The calls of one client: one invocation runs, the others wait in their order; streams run beside it.
struct SignalRCallQueue: Sendable {
    enum Decision: Equatable {
        case start(SignalRCall)
        /// It waits for its turn.
        case wait
        /// It is refused; its client gets this error.
        case refuse(String)
        /// It is refused, and there is nobody to tell or too much waits: the connection ends.
        case fail(SignalRFault)
    }

    private struct Waiting {
        let call: SignalRCall
        let cost: Int
    }

    /// A call that runs beside the others.
    private struct Stream {
        let number: UInt64
        let invocationID: String?
        let isDownload: Bool
        var isCancelled = false
        /// What the client still sends.
        var uploads: [String]
    }

    private struct Running {
        let number: UInt64
        let invocationID: String?
    }

    private var lastNumber: UInt64 = 0
    private var running: Running?
    private var waiting: [Waiting] = []
    private var waitingBytes = 0
    private var streams: [Stream] = []

    /// Whether so much waits that nothing more should be read.
    func isCongested(_ limits: SignalRConfiguration) -> Bool {
        guard !self.waiting.isEmpty else { return false }
        return self.waiting.count * 2 >= limits.maximumWaitingInvocations
            || self.waitingBytes * 2 >= limits.maximumWaitingBytes
    }

    /// Takes an invocation that was `cost` bytes long.
    mutating func take(_ invocation: SignalRInvocation, cost: Int, _ limits: SignalRConfiguration) -> Decision {
        let call = SignalRCall(number: self.lastNumber + 1, invocation: invocation)
        if invocation.isStream || !invocation.streamIDs.isEmpty {
            if let error = self.obstacle(to: invocation, limits) {
                guard invocation.invocationID != nil else { return .fail(SignalRFault(.tooManyStreams, error)) }
                return .refuse(error)
            }
            self.streams.append(
                Stream(
                    number: call.number,
                    invocationID: invocation.invocationID,
                    isDownload: invocation.isStream,
                    uploads: invocation.streamIDs
                )
            )
        } else if self.running != nil {
            guard self.waiting.count < limits.maximumWaitingInvocations,
                self.waitingBytes + cost <= limits.maximumWaitingBytes
            else { return .fail(SignalRFault(.tooManyInvocations, "Too many invocations are waiting.")) }
            self.waiting.append(Waiting(call: call, cost: cost))
            self.waitingBytes += cost
            self.lastNumber = call.number
            return .wait
        } else {
            self.running = Running(number: call.number, invocationID: invocation.invocationID)
        }
        self.lastNumber = call.number
        return .start(call)
    }

    /// The call to cancel because its client wants no more of that stream; nil if there is none, or it was cancelled.
    mutating func cancel(_ invocationID: String) -> UInt64? {
        let index = self.streams.firstIndex { stream in
            stream.isDownload && !stream.isCancelled
                && stream.invocationID.map { ExactText($0) } == ExactText(invocationID)
        }
        guard let index else { return nil }
        self.streams[index].isCancelled = true
        return self.streams[index].number
    }

    /// The client's id of a stream that still takes items.
    func openStream(_ number: UInt64) -> String? {
        self.streams.first { $0.number == number && $0.isDownload && !$0.isCancelled }?.invocationID
    }

    /// The call that a client's stream belongs to.
    func call(uploading streamID: String) -> UInt64? {
        self.streams.first { $0.uploads.contains { ExactText($0) == ExactText(streamID) } }?.number
    }

    /// Forgets a client's stream and names its call.
    mutating func endUpload(_ streamID: String) -> UInt64? {
        for index in self.streams.indices {
            guard let place = self.streams[index].uploads.firstIndex(where: { ExactText($0) == ExactText(streamID) })
            else { continue }
            self.streams[index].uploads.remove(at: place)
            return self.streams[index].number
        }
        return nil
    }

    /// A call that is over: the id for its answer, and the one that starts now.
    struct Completed: Equatable {
        let invocationID: String?
        let next: SignalRCall?
    }

    /// Ends a call; nil if it is not running.
    mutating func complete(_ number: UInt64) -> Completed? {
        if let index = self.streams.firstIndex(where: { $0.number == number }) {
            return Completed(invocationID: self.streams.remove(at: index).invocationID, next: nil)
        }
        guard let running, running.number == number else { return nil }
        guard let next = self.waiting.first else {
            self.running = nil
            return Completed(invocationID: running.invocationID, next: nil)
        }
        self.waiting.removeFirst()
        self.waitingBytes -= next.cost
        self.running = Running(number: next.call.number, invocationID: next.call.invocation.invocationID)
        return Completed(invocationID: running.invocationID, next: next.call)
    }

    private func obstacle(to invocation: SignalRInvocation, _ limits: SignalRConfiguration) -> String? {
        if invocation.isStream, let invocationID = invocation.invocationID {
            let isTaken = self.streams.contains { stream in
                stream.isDownload && stream.invocationID.map { ExactText($0) } == ExactText(invocationID)
            }
            if isTaken { return SignalRErrorText.invocationIDInUse(invocationID) }
        }
        // Each stream of the client's counts, so that what a call brings along is bounded too.
        let uploads = self.streams.reduce(invocation.streamIDs.count) { $0 + $1.uploads.count }
        guard self.streams.count < limits.maximumStreams, uploads <= limits.maximumStreams else {
            return SignalRErrorText.tooManyStreams
        }
        return nil
    }
}
