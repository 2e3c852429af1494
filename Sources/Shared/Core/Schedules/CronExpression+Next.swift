// Carillon · CronExpression+Next.swift
// SPDX-License-Identifier: Apache-2.0

extension CronExpression {
    /// How far ahead is looked: the longest wait, for a 29 February that is a given weekday, is 40 years.
    private static let reach = 60 * 366

    /// The first moment after another at which it fires.
    ///
    /// Times of day fire once each day: one that a gap leaves out at the first moment after the gap, one that occurs twice at
    /// the first of the two. What fires at a pace (`*` in minute or hour) follows the clock on the wall: it leaves a gap out
    /// and fires in both halves of an overlap. Nil only at the end of time.
    package func next(after moment: Timestamp, in rules: ZoneRules) -> Timestamp? {
        self.isFixed ? self.nextTime(after: moment, in: rules) : self.nextPace(after: moment, in: rules)
    }

    private func nextTime(after moment: Timestamp, in rules: ZoneRules) -> Timestamp? {
        let local = rules.local(at: moment)
        var date = local.date
        // What the clock has passed on this day has been.
        var start = local.seconds / 60
        let end = date.adding(days: Self.reach)
        while date <= end {
            if self.matches(date) {
                var hour = self.hour.first(from: start / 60)
                while let currentHour = hour {
                    var minute = self.minute.first(from: currentHour == start / 60 ? start % 60 : 0)
                    while let currentMinute = minute {
                        let candidate = rules.instant(date, minutes: currentHour * 60 + currentMinute)
                        if candidate > moment { return candidate }
                        minute = self.minute.first(from: currentMinute + 1)
                    }
                    hour = self.hour.first(from: currentHour + 1)
                }
            }
            date = self.day(after: date)
            start = 0
        }
        return nil
    }

    private func nextPace(after moment: Timestamp, in rules: ZoneRules) -> Timestamp? {
        var seconds = Self.floorDivide(moment.microseconds, 1_000_000) + 1
        let end = seconds + Int64(Self.reach) * 86_400
        while seconds < end {
            let now = Timestamp(seconds: seconds)
            let local = rules.local(at: now)
            let wait: Int
            if local.seconds % 60 != 0 {
                wait = 60 - local.seconds % 60
            } else if !self.matches(local.date) {
                let days = self.day(after: local.date).daysSinceEpoch - local.date.daysSinceEpoch
                wait = days * 86_400 - local.seconds
            } else if !self.hour.contains(local.seconds / 3_600) {
                wait = 3_600 - local.seconds % 3_600
            } else if let minute = self.minute.first(from: local.seconds / 60 % 60) {
                if minute == local.seconds / 60 % 60 { return now }
                wait = (minute - local.seconds / 60 % 60) * 60
            } else {
                wait = 3_600 - local.seconds % 3_600
            }
            var next = seconds + Int64(wait)
            // Beyond a change the clock shows something else.
            if let change = rules.change(after: now), change.seconds < next { next = max(change.seconds, seconds + 1) }
            seconds = next
        }
        return nil
    }

    /// The next day, or the first of a month that counts.
    private func day(after date: CivilDate) -> CivilDate {
        let next = date.adding(days: 1)
        guard !self.month.contains(next.month) else { return next }
        let (month, year) =
            self.month.first(from: next.month).map { ($0, next.year) }
            ?? (self.month.first(from: 1) ?? 1, next.year + 1)
        return CivilDate(year: year, month: month, day: 1) ?? next
    }

    private static func floorDivide(_ value: Int64, _ divisor: Int64) -> Int64 {
        let (quotient, remainder) = value.quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? quotient - 1 : quotient
    }
}
