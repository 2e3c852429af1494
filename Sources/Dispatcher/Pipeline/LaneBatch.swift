// Carillon · LaneBatch.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Entries that were taken together from one lane.
struct LaneBatch: Sendable {
    /// How many recipients are worked on at once, unless one job alone names more.
    static let mostRecipients = 2_000

    let lane: Lane
    let group: ConsumerGroup
    private(set) var entries: [StreamEntry]
    /// The lease's term in which they were taken.
    var term = LeaseClock.Term()
    /// Whether they may have been worked on before.
    var areRepeats = false
    /// Entries that were appended before this, in Unix milliseconds, may have been taken before.
    var firstSure: Int64 = 0

    init(
        lane: Lane,
        group: ConsumerGroup,
        entries: [StreamEntry],
        term: LeaseClock.Term = LeaseClock.Term(),
        areRepeats: Bool = false
    ) {
        self.lane = lane
        self.group = group
        self.entries = entries
        self.term = term
        self.areRepeats = areRepeats
    }

    /// The same with some of its entries.
    func with(_ entries: [StreamEntry]) -> LaneBatch {
        var batch = self
        batch.entries = entries
        return batch
    }

    /// The batch in parts that name ``mostRecipients`` at most, in order; those of one entry stay together.
    ///
    /// An entry may name a thousand users. Without parts, what is more urgent would wait for all the users of a whole batch.
    func parts() -> [LaneBatch] {
        let ranges = Self.parts(of: self.entries, recipients: Self.mostRecipients)
        // Most batches have one part.
        guard ranges.count > 1 else { return [self] }
        return ranges.map { self.with(Array(self.entries[$0])) }
    }

    /// Whether an entry may have been taken before.
    func mayBeRepeat(_ entry: StreamEntry) -> Bool {
        guard self.firstSure > 0, let time = Int64(entry.id.prefix { $0 != "-" }) else { return false }
        return time < self.firstSure
    }

    /// Where to part entries so that none but a single one names more than `limit` recipients.
    static func parts(of entries: [StreamEntry], recipients limit: Int) -> [Range<Int>] {
        var parts: [Range<Int>] = []
        var first = 0
        var count = 0
        for (index, entry) in entries.enumerated() {
            let recipients = Self.recipients(entry)
            if index > first, count + recipients > limit {
                parts.append(first..<index)
                first = index
                count = 0
            }
            count += recipients
        }
        if first < entries.count { parts.append(first..<entries.count) }
        return parts
    }

    /// How many users an entry names, at most: names are not looked into, and so a comma in one counts.
    private static func recipients(_ entry: StreamEntry) -> Int {
        guard let users = entry.fields?.first(where: { $0.name == "users" })?.value else { return 1 }
        return 1 + users.count { $0 == UInt8(ascii: ",") }
    }
}
