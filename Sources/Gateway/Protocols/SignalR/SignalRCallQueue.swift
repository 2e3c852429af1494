// Carillon · SignalRCallQueue.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An invocation for the server to run.
package struct SignalRCall: Sendable, Equatable {
    /// Identifies the call to ``SignalRConnection``, because the client's id may be missing or
    /// repeated.
    package let number: UInt64
    package let invocation: SignalRInvocation
}

/// The calls of one client: one invocation runs at a time and the others wait in order; streams run
/// concurrently.
struct SignalRCallQueue: Sendable {
    enum Decision: Equatable {
        case start(SignalRCall)
        /// The call waits for its turn.
        case wait
        /// The call is refused with this error.
        case refuse(String)
        /// The call is refused and the connection ends: the client cannot be answered, or too much
        /// waits.
        case fail(SignalRFault)
    }

    private struct Waiting {
        let call: SignalRCall
        let cost: Int
    }

    /// A call that runs concurrently with the others.
    private struct Stream {
        let number: UInt64
        let invocationID: String?
        let isDownload: Bool
        var isCancelled = false
        /// The client's streams that came with it.
        let uploads: Int
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

    /// Whether so much waits that the caller should stop reading.
    func isCongested(_ limits: SignalRConfiguration) -> Bool {
        guard !self.waiting.isEmpty else { return false }
        return self.waiting.count * 2 >= limits.maximumWaitingInvocations
            || self.waitingBytes * 2 >= limits.maximumWaitingBytes
    }

    /// Accepts or refuses an invocation of `cost` bytes.
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
                    uploads: invocation.streamIDs.count
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

    /// Marks a stream as cancelled by the client and returns its call; nil if there is none or it
    /// was cancelled before.
    mutating func cancel(_ invocationID: String) -> UInt64? {
        let index = self.streams.firstIndex { stream in
            stream.isDownload && !stream.isCancelled
                && stream.invocationID.map { ExactText($0) } == ExactText(invocationID)
        }
        guard let index else { return nil }
        self.streams[index].isCancelled = true
        return self.streams[index].number
    }

    /// Returns the client's id of a stream that still accepts items.
    func openStream(_ number: UInt64) -> String? {
        self.streams.first { $0.number == number && $0.isDownload && !$0.isCancelled }?.invocationID
    }

    /// A completed call: the id for its answer, and the call that starts next.
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
        // Each of the client's streams counts, which also limits the streams that a call brings.
        let uploads = self.streams.reduce(invocation.streamIDs.count) { $0 + $1.uploads }
        guard self.streams.count < limits.maximumStreams, uploads <= limits.maximumStreams else {
            return SignalRErrorText.tooManyStreams
        }
        return nil
    }
}

/// The error texts of the reference server, which clients know.
package enum SignalRErrorText {
    package static func unknownMethod(_ target: String) -> String {
        "Failed to invoke '\(target)' due to an error on the server. HubException: Method does not exist."
    }

    /// Returns the error that hides a failure's details.
    static func unexpected(_ target: String) -> String {
        "An unexpected error occurred invoking '\(target)' on the server."
    }

    /// Returns the error with a reason meant for the caller.
    package static func failed(_ target: String, _ reason: String) -> String {
        "\(Self.unexpected(target)) HubException: \(reason)"
    }

    /// Returns the error for a plain method that was called for a stream.
    package static func plainMethodStreamed(_ target: String) -> String {
        "The client attempted to invoke the non-streaming '\(target)' method with a streaming invocation."
    }

    static func invocationIDInUse(_ invocationID: String) -> String {
        "Invocation ID '\(invocationID)' is already in use."
    }

    static let tooManyStreams = "Too many streams are open on this connection."
    static let closedWithError = "Connection closed with an error."
    static let clientTimeout = "Connection closed with an error. The client was silent for too long."
}
