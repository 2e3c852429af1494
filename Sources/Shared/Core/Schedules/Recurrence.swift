// Carillon · Recurrence.swift
// SPDX-License-Identifier: Apache-2.0

/// The occurrences of a recurring schedule, and which ones to catch up on after an outage.
package struct Recurrence: Sendable {
    /// A firing time.
    package struct Occurrence: Sendable, Equatable {
        package let at: Timestamp
        /// The local time to fire at, for a schedule in the recipients' zones.
        package let wall: WallTime?

        package init(at moment: Timestamp, wall: WallTime? = nil) {
            self.at = moment
            self.wall = wall
        }
    }

    /// Occurrences missed longer ago than this are skipped.
    package static let missedLimit: Duration = .seconds(3_600)
    /// How long before its time in UTC an occurrence in the recipients' zones is split by zone.
    ///
    /// Every zone is less than 15 h ahead of UTC.
    static let lead: Duration = .seconds(15 * 3_600)
    /// An upper bound on how far a change of its rules moves a zone's clock.
    private static let largestShift: Duration = .seconds(24 * 3_600)
    /// No zone is further behind UTC.
    private static let longestWest: Duration = .seconds(12 * 3_600)

    private let cron: CronExpression
    /// Nil for a schedule in the recipients' zones.
    private let rules: ZoneRules?
    private let startsAt: Timestamp?
    private let endsAt: Timestamp?

    /// - Parameter rules: the zone's; nil for the recipients' zones.
    /// - Throws: ``CronFault`` for a rate in the recipients' zones.
    package init(
        _ cron: CronExpression,
        in rules: ZoneRules?,
        startsAt: Timestamp? = nil,
        endsAt: Timestamp? = nil
    ) throws(CronFault) {
        if rules == nil, !cron.isFixed {
            throw CronFault("cron", "must name hours and minutes, without *, for a schedule in the recipients' zones")
        }
        self.cron = cron
        self.rules = rules
        self.startsAt = startsAt
        self.endsAt = endsAt
    }

    /// Returns the first occurrence after a moment; nil if the schedule ends before it.
    package func next(after moment: Timestamp) -> Occurrence? {
        let lead = self.rules == nil ? Self.lead : .zero
        var base = moment + lead
        if let startsAt, startsAt > base { base = Timestamp(microseconds: startsAt.microseconds - 1) }
        guard let next = self.cron.next(after: base, in: self.rules ?? .utc) else { return nil }
        if let endsAt, next > endsAt { return nil }
        guard self.rules == nil else { return Occurrence(at: next, wall: nil) }
        return Occurrence(at: next - lead, wall: WallTime(next))
    }

    /// Returns the occurrence to fire now and the next one, given one that may be long overdue.
    ///
    /// In one zone, only the last missed occurrence fires, if it is within ``missedLimit``. In the
    /// recipients' zones, every occurrence that is not yet too late in all zones is split.
    ///
    /// - Parameter wall: the result of ``wall(of:)`` for `due` under the rules that it was computed
    ///   with; nil if unknown. If `due` fires, occurrences that show the same local time again
    ///   under the current rules are skipped.
    /// - Returns: the occurrence to fire, nil for none; and the next one, nil at the end.
    package func resume(
        from due: Timestamp,
        wall: WallTime? = nil,
        now: Timestamp
    ) -> (fires: Occurrence?, next: Occurrence?) {
        guard due <= now else { return (nil, self.occurrence(due)) }
        let isParted = self.rules == nil
        let useful = isParted ? Self.lead + Self.longestWest + Self.missedLimit : Self.missedLimit
        let oldest = now - useful
        var fires: Occurrence? = self.occurrence(due)
        if due < oldest { fires = self.next(after: Timestamp(microseconds: oldest.microseconds - 1)) }
        guard var latest = fires, latest.at <= now else { return (nil, self.next(after: now)) }
        if !isParted {
            while let later = self.next(after: latest.at), later.at <= now { latest = later }
        }
        var next = self.next(after: latest.at)
        if let wall, !isParted, latest.at == due {
            while let again = next, again.at - due < Self.largestShift, let shown = self.wall(of: again),
                shown.moment <= wall.moment
            {
                next = self.next(after: again.at)
            }
        }
        return (latest, next)
    }

    /// Returns the local time of an occurrence, which identifies it when the zone's rules change.
    ///
    /// - Returns: nil for a rate, which has no fixed local time.
    package func wall(of occurrence: Occurrence) -> WallTime? {
        guard let rules = self.rules else { return occurrence.wall }
        guard self.cron.isFixed else { return nil }
        let (date, seconds) = rules.local(at: occurrence.at)
        return LocalTime(minutes: seconds / 60).map { WallTime(day: date.daysSinceEpoch, time: $0) }
    }

    /// Returns when a pending occurrence is due under the current zone rules.
    ///
    /// It keeps its local time and day, even if that is past: an occurrence that fired does not
    /// fire again, and one that did not is missed.
    ///
    /// - Parameter wall: the result of ``wall(of:)`` under the old rules; nil if unknown.
    package func moved(_ wall: WallTime?, now: Timestamp) -> Timestamp? {
        guard let rules = self.rules, self.cron.isFixed, let wall, let day = wall.day else {
            return self.next(after: now)?.at
        }
        return rules.instant(CivilDate(daysSinceEpoch: day), minutes: wall.time.minutes)
    }

    private func occurrence(_ moment: Timestamp) -> Occurrence {
        Occurrence(at: moment, wall: self.rules == nil ? WallTime(moment + Self.lead) : nil)
    }
}
