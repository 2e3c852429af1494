// Carillon · Recurrence.swift
// SPDX-License-Identifier: Apache-2.0

/// When a recurring schedule fires, and what is made good for after a standstill.
package struct Recurrence: Sendable {
    /// A time at which it fires.
    package struct Occurrence: Sendable, Equatable {
        package let at: Timestamp
        /// What clocks show then, where each recipient's own zone counts.
        package let wall: WallTime?

        package init(at moment: Timestamp, wall: WallTime? = nil) {
            self.at = moment
            self.wall = wall
        }
    }

    /// What was missed longer ago is not made good for.
    package static let missedLimit: Duration = .seconds(3_600)
    /// Where each recipient's own zone counts, a time is parted by zones before any clock shows it: none is 15 h ahead of UTC.
    package static let lead: Duration = .seconds(15 * 3_600)
    /// Nor is any further behind.
    private static let longestWest: Duration = .seconds(12 * 3_600)

    private let cron: CronExpression
    /// Nil where each recipient's own zone counts.
    private let rules: ZoneRules?
    private let startsAt: Timestamp?
    private let endsAt: Timestamp?

    /// - Parameter rules: the zone's; nil where each recipient's own counts.
    /// - Throws: ``CronFault`` for a pace where each recipient's own zone counts.
    package init(
        _ cron: CronExpression,
        in rules: ZoneRules?,
        startsAt: Timestamp? = nil,
        endsAt: Timestamp? = nil
    ) throws(CronFault) {
        if rules == nil, !cron.isFixed {
            throw CronFault("cron", "must name hours and minutes, without *, where each recipient's own zone counts")
        }
        self.cron = cron
        self.rules = rules
        self.startsAt = startsAt
        self.endsAt = endsAt
    }

    /// The first occurrence after a moment; nil if there is none before the end.
    package func next(after moment: Timestamp) -> Occurrence? {
        let lead = self.rules == nil ? Self.lead : .zero
        var base = moment + lead
        if let startsAt, startsAt > base { base = Timestamp(microseconds: startsAt.microseconds - 1) }
        guard let next = self.cron.next(after: base, in: self.rules ?? .utc) else { return nil }
        if let endsAt, next > endsAt { return nil }
        guard self.rules == nil else { return Occurrence(at: next, wall: nil) }
        return Occurrence(at: Self.before(next, lead), wall: WallTime(next))
    }

    /// What is to be done now about an occurrence that has come due, maybe long ago.
    ///
    /// In a zone, all that was missed fires once, as the last of it, if that is within ``missedLimit``. Where each
    /// recipient's own zone counts, every occurrence is parted as long as it is not too late for all zones.
    ///
    /// - Returns: the occurrence that fires now, nil if none does; and the next one, nil at the end.
    package func resume(from due: Timestamp, now: Timestamp) -> (fires: Occurrence?, next: Occurrence?) {
        guard due <= now else { return (nil, self.occurrence(due)) }
        let isParted = self.rules == nil
        let useful = isParted ? Self.lead + Self.longestWest + Self.missedLimit : Self.missedLimit
        let oldest = Self.before(now, useful)
        var fires: Occurrence? = self.occurrence(due)
        if due < oldest { fires = self.next(after: Timestamp(microseconds: oldest.microseconds - 1)) }
        guard var latest = fires, latest.at <= now else { return (nil, self.next(after: now)) }
        if !isParted {
            while let later = self.next(after: latest.at), later.at <= now { latest = later }
        }
        return (latest, self.next(after: latest.at))
    }

    /// What clocks show at an occurrence, in the zone or in each recipient's: by that it is known when the zone's law changes.
    ///
    /// - Returns: nil where it fires at a pace, which follows whatever clocks show.
    package func wall(of occurrence: Occurrence) -> WallTime? {
        guard let rules = self.rules else { return occurrence.wall }
        guard self.cron.isFixed else { return nil }
        let (date, seconds) = rules.local(at: occurrence.at)
        return LocalTime(minutes: seconds / 60).map { WallTime(day: date.daysSinceEpoch, time: $0) }
    }

    /// When the occurrence is due by the law of now that was to come by the law before.
    ///
    /// The same time on the same day, even if it is past by now: what fired does not fire again, and what did not is missed.
    ///
    /// - Parameter wall: what ``wall(of:)`` gave by the law before; nil if that is not known.
    package func moved(_ wall: WallTime?, now: Timestamp) -> Timestamp? {
        guard let rules = self.rules, self.cron.isFixed, let wall, let day = wall.day else {
            return self.next(after: now)?.at
        }
        return rules.instant(CivilDate(daysSinceEpoch: day), minutes: wall.time.minutes)
    }

    private func occurrence(_ moment: Timestamp) -> Occurrence {
        Occurrence(at: moment, wall: self.rules == nil ? WallTime(moment + Self.lead) : nil)
    }

    private static func before(_ moment: Timestamp, _ duration: Duration) -> Timestamp {
        Timestamp(microseconds: moment.microseconds - duration.inMicroseconds)
    }
}
