// Carillon · SignalRReliability.swift
// SPDX-License-Identifier: Apache-2.0

/// The state of stateful reconnect: counters of both directions and unacknowledged records.
///
/// Each side numbers its messages of types 1 to 5 from 1.
struct SignalRReliability: Sendable {
    /// The number of counted messages accepted for the client.
    private var sent: Int64 = 0
    /// The newest of these messages, which the client has not acknowledged yet.
    private var buffered: [[UInt8]] = []
    private var bufferedBytes = 0
    /// The number of the client's next counted message.
    private var nextReceived: Int64 = 1
    /// The highest number that was admitted.
    private var latestReceived: Int64 = 0
    /// Whether the client reconnected and has not yet sent its Sequence.
    private var waitsForSequence = false
    /// The time of the next acknowledgement.
    private var acknowledgementDue: Milliseconds?

    /// Whether more than `limit` bytes are unacknowledged.
    ///
    /// One record may exceed the limit, so that a long one never gets stuck.
    func isFull(_ limit: Int) -> Bool { self.bufferedBytes > limit }

    /// Keeps a counted record until it is acknowledged.
    mutating func keep(_ bytes: [UInt8]) {
        self.sent += 1
        self.buffered.append(bytes)
        self.bufferedBytes += bytes.count
    }

    /// Drops the records up to this number, which the client has.
    mutating func acknowledge(_ sequenceID: Int64) {
        let oldest = self.oldest
        guard sequenceID >= oldest else { return }
        // Compares distances from the oldest, because the client's number could overflow a sum.
        let count = Int(min(Int64(self.buffered.count) - 1, sequenceID - oldest)) + 1
        for bytes in self.buffered.prefix(count) { self.bufferedBytes -= bytes.count }
        self.buffered.removeFirst(count)
    }

    /// The number of the oldest kept record, or of the next one if none is kept.
    private var oldest: Int64 { self.sent - Int64(self.buffered.count) + 1 }

    /// Returns the first records for a new transport.
    ///
    /// The specification asks for the number of the next new message, but clients stop if it is
    /// higher than they expect. So this sends the number of the oldest repeated one.
    mutating func reattach() -> [[UInt8]] {
        self.waitsForSequence = true
        return [SignalRRecord.sequence(sequenceID: self.oldest).bytes] + self.buffered
    }

    /// Whether to handle a client's message; false before its Sequence and for repeats.
    mutating func admits(_ message: SignalRMessage, now: Milliseconds, delay: Milliseconds) -> Bool {
        if self.waitsForSequence {
            guard case .sequence = message else { return false }
            self.waitsForSequence = false
            return true
        }
        guard message.isCounted else { return true }
        let number = self.nextReceived
        self.nextReceived += 1
        // Acknowledges repeats too: the client repeats because it missed the acknowledgement.
        if self.acknowledgementDue == nil { self.acknowledgementDue = now + delay }
        guard number > self.latestReceived else { return false }
        self.latestReceived = number
        return true
    }

    /// Resumes at the client's number.
    mutating func resume(at sequenceID: Int64) throws(SignalRFault) {
        guard sequenceID >= 1 else {
            throw SignalRFault(.invalidSequence, "Sequence ID is less than one.", at: "sequenceId")
        }
        guard sequenceID <= self.nextReceived else {
            throw SignalRFault(
                .invalidSequence, "Sequence ID greater than amount of messages we've received.", at: "sequenceId")
        }
        self.nextReceived = sequenceID
    }

    /// Returns the acknowledgement once when it is due.
    mutating func dueAcknowledgement(now: Milliseconds) -> SignalRRecord? {
        guard let due = self.acknowledgementDue, now >= due else { return nil }
        self.acknowledgementDue = nil
        return .acknowledgement(sequenceID: self.latestReceived)
    }
}
