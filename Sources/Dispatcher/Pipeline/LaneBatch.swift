// Carillon · LaneBatch.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Entries taken together from one lane.
struct LaneBatch: Sendable {
    /// The most recipients of a slice.
    static let mostRecipients = 2_000

    let lane: Lane
    let group: ConsumerGroup
    private(set) var entries: [StreamEntry]
    /// The number of recipients, if ``slices()`` has counted them.
    private(set) var knownRecipients: Int?
    /// The lease term in which they were taken.
    var term = LeaseClock.Term()
    var areRepeats = false
    /// Entries appended before this moment may have been taken before; Unix milliseconds.
    var replaySafeFrom: Int64 = 0
    /// The first entry of each scheduled job, by the id of the entry that fires it.
    var firstEntries: [String: String] = [:]
    /// The due pages of broadcasts at local time, by entry id.
    var pages: [String: Schedule.Page] = [:]

    /// Returns the batch with other entries.
    func with(_ entries: [StreamEntry]) -> LaneBatch {
        var batch = self
        batch.entries = entries
        batch.knownRecipients = nil
        return batch
    }

    /// Returns the batch without some entries.
    func without(_ ids: [String]) -> LaneBatch {
        guard !ids.isEmpty else { return self }
        let ids = Set(ids)
        return self.with(self.entries.filter { !ids.contains($0.id) })
    }

    /// Splits the batch, in order, into slices with at most ``mostRecipients`` recipients.
    ///
    /// One entry may name a thousand users. Without slices, urgent work would wait for a whole
    /// batch of such entries.
    func slices() -> [LaneBatch] {
        let slices = Self.slices(of: self.entries, recipients: Self.mostRecipients)
        return slices.map { slice in
            // Most batches have one slice, so skip the copy.
            var batch = slices.count == 1 ? self : self.with(Array(self.entries[slice.range]))
            batch.knownRecipients = slice.recipients
            return batch
        }
    }

    /// The number of recipients of all entries, as in ``recipients(_:)``.
    var recipients: Int { self.knownRecipients ?? self.entries.reduce(0) { $0 + Self.recipients($1) } }

    func mayBeRepeat(_ entry: StreamEntry) -> Bool {
        guard self.replaySafeFrom > 0, let time = StreamEntry.milliseconds(ofID: entry.id) else { return false }
        return time < self.replaySafeFrom
    }

    /// Splits entries so that no slice of two or more has more than `limit` recipients.
    static func slices(
        of entries: [StreamEntry], recipients limit: Int
    ) -> [(range: Range<Int>, recipients: Int)] {
        var slices: [(range: Range<Int>, recipients: Int)] = []
        var first = 0
        var count = 0
        for (index, entry) in entries.enumerated() {
            let recipients = Self.recipients(entry)
            if index > first, count + recipients > limit {
                slices.append((first..<index, count))
                first = index
                count = 0
            }
            count += recipients
        }
        if first < entries.count { slices.append((first..<entries.count, count)) }
        return slices
    }

    /// Returns the number of users that an entry names, from 1 to the most that a job may name;
    /// commas inside names count too.
    static func recipients(_ entry: StreamEntry) -> Int {
        guard let users = entry["users"] else { return 1 }
        return min(1 + users.count { $0 == UInt8(ascii: ",") }, JobLimits.users)
    }
}
