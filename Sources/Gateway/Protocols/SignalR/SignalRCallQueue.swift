// Carillon · SignalRCallQueue.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An invocation for the server to run.
package struct SignalRCall: Sendable, Equatable {
    /// Identifies the call to ``SignalRStateMachine``, because the client's id may be missing or
    /// repeated.
    package let number: UInt64
    package let invocation: SignalRInvocation
}

/// The calls of one client: one runs at a time and the others wait in order; streams run
/// concurrently.
struct SignalRCallQueue: Sendable {
    enum Decision: Equatable {
        case start(SignalRCall)
        /// The call waits for its turn.
        case wait
        /// The call is refused and the connection ends: too many calls wait, or too many streams
        /// run.
        case fail(SignalRFault)
    }

    private struct Waiting {
        let number: UInt64
        /// Kept encoded, because decoded JSON takes many times the memory.
        let record: [UInt8]

        /// Decodes the record once more; it was an invocation before, so this is never nil.
        var call: SignalRCall? {
            guard case .invocation(let invocation)? = try? SignalRDecoder.message(self.record) else { return nil }
            return SignalRCall(number: self.number, invocation: invocation)
        }
    }

    private struct Running {
        let number: UInt64
        let invocationID: String?
    }

    private struct Stream {
        let call: Running
        /// Whether the client wants no more items.
        var isCancelled = false
    }

    private var lastNumber: UInt64 = 0
    private var running: Running?
    private var streams: [Stream] = []
    private var waiting: [Waiting] = []
    private var waitingBytes = 0

    /// Whether the queue is half full, so the caller should stop reading.
    func isCongested(_ limits: SignalRConfiguration) -> Bool {
        guard !self.waiting.isEmpty else { return false }
        return self.waiting.count * 2 >= limits.maximumWaitingInvocations
            || self.waitingBytes * 2 >= limits.maximumWaitingBytes
    }

    /// Admits or refuses an invocation; `record` is its encoded form.
    mutating func admit(
        _ invocation: SignalRInvocation,
        _ record: [UInt8],
        _ limits: SignalRConfiguration
    ) -> Decision {
        let call = SignalRCall(number: self.lastNumber + 1, invocation: invocation)
        let running = Running(number: call.number, invocationID: invocation.invocationID)
        if invocation.isStream {
            guard self.streams.count < limits.maximumStreams else {
                return .fail(SignalRFault(.tooManyInvocations, "Too many streams are open."))
            }
            self.lastNumber = call.number
            self.streams.append(Stream(call: running))
            return .start(call)
        }
        guard self.running != nil else {
            self.lastNumber = call.number
            self.running = running
            return .start(call)
        }
        guard self.waiting.count < limits.maximumWaitingInvocations,
            self.waitingBytes + record.count <= limits.maximumWaitingBytes
        else { return .fail(SignalRFault(.tooManyInvocations, "Too many invocations are waiting.")) }
        self.lastNumber = call.number
        self.waiting.append(Waiting(number: call.number, record: record))
        self.waitingBytes += record.count
        return .wait
    }

    /// Notes that the client wants no more items of a stream; ignores an unknown id.
    mutating func cancel(_ invocationID: String) {
        let id = ExactText(invocationID)
        for index in self.streams.indices where self.streams[index].call.invocationID.map({ ExactText($0) }) == id {
            self.streams[index].isCancelled = true
        }
    }

    /// Returns the client's id of a stream whose items it still wants.
    func openStream(_ number: UInt64) -> String? {
        self.streams.first { $0.call.number == number && !$0.isCancelled }?.call.invocationID
    }

    /// A completed call: the id for its answer, and the call that starts next.
    struct Completed: Equatable {
        let invocationID: String?
        let next: SignalRCall?
    }

    /// Ends a call; nil if it is not running.
    mutating func complete(_ number: UInt64) -> Completed? {
        if let index = self.streams.firstIndex(where: { $0.call.number == number }) {
            return Completed(invocationID: self.streams.remove(at: index).call.invocationID, next: nil)
        }
        guard let running, running.number == number else { return nil }
        guard let next = self.waiting.first, let call = next.call else {
            self.running = nil
            return Completed(invocationID: running.invocationID, next: nil)
        }
        self.waiting.removeFirst()
        self.waitingBytes -= next.record.count
        self.running = Running(number: call.number, invocationID: call.invocation.invocationID)
        return Completed(invocationID: running.invocationID, next: call)
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

    /// Returns the error for a plain method that was called as a stream.
    package static func plainMethodStreamed(_ target: String) -> String {
        "The client attempted to invoke the non-streaming '\(target)' method with a streaming invocation."
    }

    static let closedWithError = "Connection closed with an error."
    static let clientTimeout = "Connection closed with an error. The client was silent for too long."
}
