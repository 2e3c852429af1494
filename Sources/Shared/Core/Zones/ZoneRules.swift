// Carillon · ZoneRules.swift
// SPDX-License-Identifier: Apache-2.0

/// The offsets of a zone's clocks from UTC.
package struct ZoneRules: Sendable {
    /// Seconds, more than any offset: a wall time is at most this far from the same reading in UTC.
    private static let reach = 100_000
    /// Days on either side of 1970-01-01 that fit a `Timestamp`.
    private static let mostDays = 100_000_000

    private let transitions: [Int64]
    private let offsets: [Int32]
    private let first: Int
    private let rule: RecurringRule?

    /// UTC: offset zero.
    package static let utc = ZoneRules(transitions: [], offsets: [], first: 0, rule: nil)

    /// Parses a TZif file, versions 1 to 4 (RFC 9636).
    package init(_ bytes: [UInt8]) throws(ZoneFault) {
        let file = try ZoneFile(bytes)
        self.init(transitions: file.transitions, offsets: file.offsets, first: Int(file.first), rule: file.rule)
    }

    private init(transitions: [Int64], offsets: [Int32], first: Int, rule: RecurringRule?) {
        self.transitions = transitions
        self.offsets = offsets
        self.first = first
        self.rule = rule
    }

    /// Seconds east of UTC.
    func offset(at moment: Timestamp) -> Int {
        self.offset(atSeconds: Self.seconds(moment))
    }

    /// The local date, and seconds after midnight.
    package func local(at moment: Timestamp) -> (date: CivilDate, seconds: Int) {
        let seconds = Self.seconds(moment)
        let (days, rest) = (seconds + self.offset(atSeconds: seconds)).floorDivided(by: 86_400)
        return (CivilDate(daysSinceEpoch: days), rest)
    }

    /// Returns the moment at which a wall clock shows a day and a number of minutes after midnight.
    ///
    /// In a gap, the first moment after it; in an overlap, the earlier one. Minutes below 0 or from
    /// 1,440 on belong to the days before or after.
    package func instant(_ date: CivilDate, minutes: Int) -> Timestamp {
        let (carried, rest) = minutes.floorDivided(by: 1_440)
        let limited = min(max(carried, -Self.mostDays), Self.mostDays)
        let days = min(max(date.daysSinceEpoch + limited, -Self.mostDays), Self.mostDays)
        return Timestamp(seconds: Int64(self.first(atOrAfterWall: days * 86_400 + rest * 60)))
    }

    /// Returns the first change of the offset after a moment; nil if there is none.
    func change(after moment: Timestamp) -> Timestamp? {
        self.change(afterSeconds: Self.seconds(moment)).flatMap {
            abs($0) <= Self.mostDays * 86_400 ? Timestamp(seconds: Int64($0)) : nil
        }
    }

    // MARK: Seconds

    /// Returns the first moment at which the wall clock shows `wall` or later.
    private func first(atOrAfterWall wall: Int) -> Int {
        var begin = wall - Self.reach
        while true {
            let offset = self.offset(atSeconds: begin)
            let candidate = max(begin, wall - offset)
            guard let end = self.change(afterSeconds: begin), end <= candidate else { return candidate }
            begin = end
        }
    }

    private func offset(atSeconds seconds: Int) -> Int {
        let index = self.index(after: seconds)
        if index == self.transitions.count, let rule = self.rule { return rule.offset(at: seconds) }
        return index == 0 ? self.first : Int(self.offsets[index - 1])
    }

    private func change(afterSeconds seconds: Int) -> Int? {
        let index = self.index(after: seconds)
        guard index == self.transitions.count else { return Int(self.transitions[index]) }
        return self.rule?.change(after: seconds)
    }

    /// Returns the index of the first transition after a moment.
    private func index(after seconds: Int) -> Int {
        var low = 0
        var high = self.transitions.count
        while low < high {
            let middle = (low + high) / 2
            if self.transitions[middle] <= seconds { low = middle + 1 } else { high = middle }
        }
        return low
    }

    private static func seconds(_ moment: Timestamp) -> Int {
        Int(moment.microseconds).floorDivided(by: 1_000_000).quotient
    }
}
