// Carillon · AwaitedPongs.swift
// SPDX-License-Identifier: Apache-2.0

/// Tells the pongs that answer pings of ours from those that nobody asked for.
///
/// Pings carry rising numbers; a peer may leave out some and answer the newest (RFC 6455 section 5.5.3), but none twice.
struct AwaitedPongs {
    /// From the oldest number that may still be answered to the newest that was sent.
    private var range: ClosedRange<UInt64>?

    /// A ping goes out; a number that is not above the one before it begins anew.
    mutating func pinged(_ sequence: UInt64) {
        if let range, range.upperBound < sequence {
            self.range = range.lowerBound...sequence
        } else {
            self.range = sequence...sequence
        }
    }

    /// Whether a pong answers a ping; it and all earlier ones are answered then.
    mutating func settle(_ payload: [UInt8]) -> Bool {
        guard payload.count == 8, let range else { return false }
        let sequence = payload.reduce(0) { $0 << 8 | UInt64($1) }
        guard range.contains(sequence) else { return false }
        self.range = sequence < range.upperBound ? (sequence + 1)...range.upperBound : nil
        return true
    }
}
