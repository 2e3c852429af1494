// Carillon · SignalRRecordSplitter.swift
// SPDX-License-Identifier: Apache-2.0

/// Cuts what arrives into records, which the byte 0x1E ends; one may be spread over many pieces.
package struct SignalRRecordSplitter: Sendable {
    package static let separator: UInt8 = 0x1E

    package struct Batch: Sendable, Equatable {
        /// Without their separators.
        package var records: [[UInt8]] = []
        /// A record behind these is longer than allowed, finished or not; nothing is read any more.
        package var isTooLong = false
    }

    private let maximumBytes: Int
    private var pending: [UInt8] = []
    private var isBroken = false

    /// Makes a splitter that holds at most one unfinished record of `maximumBytes`, its separator not counted.
    package init(maximumBytes: Int) {
        self.maximumBytes = maximumBytes
    }

    /// The bytes of the unfinished record.
    package var pendingBytes: Int { self.pending.count }

    /// The records that these bytes end; at most one unfinished record is kept.
    package mutating func split(_ bytes: [UInt8]) -> Batch {
        var batch = Batch()
        guard !self.isBroken else { return batch }
        var start = 0
        while let end = bytes[start...].firstIndex(of: Self.separator) {
            guard self.pending.count + (end - start) <= self.maximumBytes else { return self.stop(batch) }
            if self.pending.isEmpty {
                batch.records.append(Array(bytes[start..<end]))
            } else {
                self.pending.append(contentsOf: bytes[start..<end])
                batch.records.append(self.pending)
                self.pending = []
            }
            start = end + 1
        }
        guard self.pending.count + (bytes.count - start) <= self.maximumBytes else { return self.stop(batch) }
        self.pending.append(contentsOf: bytes[start...])
        return batch
    }

    private mutating func stop(_ batch: Batch) -> Batch {
        self.isBroken = true
        self.pending = []
        var batch = batch
        batch.isTooLong = true
        return batch
    }
}
