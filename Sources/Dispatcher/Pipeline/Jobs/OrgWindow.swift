// Carillon · OrgWindow.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The recipients of each organisation's jobs in the last minute, in steps of five seconds.
struct OrgWindow {
    private static let step: Int64 = 5
    private static let steps: Int64 = 12
    /// Organisations beyond this number are not counted or limited.
    private static let mostOrgs = 10_000

    /// How many recipients an organisation may have at least.
    private let leastShare: Int
    private var counts: [ExactText: Int] = [:]
    private var total = 0
    private var buckets: [(step: Int64, counts: [ExactText: Int])] = []

    init(leastShare: Int) {
        self.leastShare = leastShare
    }

    /// Counts a job, and returns whether it is within its organisation's share.
    ///
    /// The share is the average of the other organisations, but at least `leastShare`. The job that
    /// uses it up is within it.
    mutating func admit(_ org: String, recipients: Int, at moment: Timestamp) -> Bool {
        var step = moment.seconds / Self.step
        if let last = self.buckets.last?.step, last > step {
            // The clock was set back: wait out a small step, start over after a large one.
            if last - step < Self.steps { step = last } else { self = OrgWindow(leastShare: self.leastShare) }
        }
        self.forget(before: step - Self.steps + 1)
        let org = ExactText(org)
        let own = self.counts[org] ?? 0
        if own == 0, self.counts.count >= Self.mostOrgs { return true }
        let others = self.counts.count - (own > 0 ? 1 : 0)
        let average = others > 0 ? (self.total - own) / others : 0
        self.counts[org] = own + recipients
        self.total += recipients
        if self.buckets.last?.step != step { self.buckets.append((step, [:])) }
        self.buckets[self.buckets.count - 1].counts[org, default: 0] += recipients
        return own < max(self.leastShare, average)
    }

    private mutating func forget(before step: Int64) {
        while let first = self.buckets.first, first.step < step {
            for (org, count) in first.counts {
                let left = (self.counts[org] ?? 0) - count
                self.counts[org] = left > 0 ? left : nil
                self.total -= count
            }
            self.buckets.removeFirst()
        }
    }
}
