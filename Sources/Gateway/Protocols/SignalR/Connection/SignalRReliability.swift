// Carillon · SignalRReliability.swift
// SPDX-License-Identifier: Apache-2.0

/// What stateful reconnect remembers: counters of both directions and what the client has not acknowledged.
///
/// Each side numbers its messages of types 1 to 5 from 1.
struct SignalRReliability: Sendable {
    /// Counted messages that were taken for the client.
    private var sent: Int64 = 0
    /// The newest of them, which the client has not acknowledged.
    private var buffered: [[UInt8]] = []
    private var bufferedBytes = 0
    /// The number of the client's next counted message.
    private var nextReceived: Int64 = 1
    /// The highest that was let through.
    private var latestReceived: Int64 = 0
    /// The client is back and has not said yet where it goes on.
    private var waitsForSequence = false
    /// When the next acknowledgement is due.
    private(set) var acknowledgementDue: Int64?

    /// Whether more than `limit` bytes are unacknowledged.
    ///
    /// One record may go beyond, so that a long one is never stuck.
    func isFull(_ limit: Int) -> Bool { self.bufferedBytes > limit }

    /// Keeps a counted record until it is acknowledged.
    mutating func keep(_ bytes: [UInt8]) {
        self.sent += 1
        self.buffered.append(bytes)
        self.bufferedBytes += bytes.count
    }

    /// Drops what the client has, up to this number.
    mutating func acknowledge(_ sequenceID: Int64) {
        let oldest = self.oldest
        guard sequenceID >= oldest else { return }
        // Compared as a distance from the oldest, which a number from outside cannot make overflow.
        let count = Int(min(Int64(self.buffered.count) - 1, sequenceID - oldest)) + 1
        for bytes in self.buffered.prefix(count) { self.bufferedBytes -= bytes.count }
        self.buffered.removeFirst(count)
    }

    /// The number of the oldest record that is kept, or of the next one if none is.
    private var oldest: Int64 { self.sent - Int64(self.buffered.count) + 1 }

    /// Begins anew on another transport: what goes out first.
    ///
    /// The specification's text wants the number of the next new message; clients stop if it is higher than they
    /// expect, so it is that of the oldest one that is sent again.
    mutating func reattach() -> [[UInt8]] {
        self.waitsForSequence = true
        return [SignalRRecord(.sequence(sequenceID: self.oldest)).bytes] + self.buffered
    }

    /// Whether a client's message is to be handled; false for what comes before its Sequence, and for repeats.
    mutating func admits(_ message: SignalRMessage, now: Int64, delay: Int64) -> Bool {
        if self.waitsForSequence {
            guard case .sequence = message else { return false }
            self.waitsForSequence = false
            return true
        }
        guard message.isCounted else { return true }
        let number = self.nextReceived
        self.nextReceived += 1
        // A repeat too: the client sends it because it missed the acknowledgement.
        if self.acknowledgementDue == nil { self.acknowledgementDue = now + delay }
        guard number > self.latestReceived else { return false }
        self.latestReceived = number
        return true
    }

    /// Goes on where the client says.
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

    /// The acknowledgement that is due, once.
    mutating func dueAcknowledgement(now: Int64) -> SignalRRecord? {
        guard let due = self.acknowledgementDue, now >= due else { return nil }
        self.acknowledgementDue = nil
        return SignalRRecord(.acknowledgement(sequenceID: self.latestReceived))
    }
}
