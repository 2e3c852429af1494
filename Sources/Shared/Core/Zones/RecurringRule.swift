// Carillon · RecurringRule.swift
// SPDX-License-Identifier: Apache-2.0

/// What a TZ string says: one offset for good, or two that change on the same days each year.
///
/// POSIX's form, with RFC 9636's extension that a change may be up to a week before or after its day.
struct RecurringRule: Sendable, Equatable {
    /// When in a year a change happens, by the clock that it ends.
    struct Change: Sendable, Equatable {
        enum Day: Sendable, Equatable {
            /// `Jn`: 1 to 365, a leap year's 29 February is not counted.
            case julian(Int)
            /// `n`: 0 to 365, with 29 February.
            case ordinal(Int)
            /// `Mm.w.d`: the w-th weekday d (0 for Sunday) of a month; 5 is the last.
            case weekday(month: Int, week: Int, day: Int)
        }

        let day: Day
        /// Seconds after that day's midnight.
        let seconds: Int

        /// The day and time in a year, in seconds since 1970-01-01T00:00 of the clock that is on the wall.
        func wallSeconds(_ year: Int) -> Int {
            let january = Timestamp.days(year: year, month: 1, day: 1)
            let days: Int
            switch self.day {
            case .julian(let number):
                let isAfterLeapDay = number >= 60 && Timestamp.days(inMonth: 2, of: year) == 29
                days = january + number - (isAfterLeapDay ? 0 : 1)
            case .ordinal(let number):
                days = january + number
            case .weekday(let month, let week, let day):
                let first = Timestamp.days(year: year, month: month, day: 1)
                // 1970-01-01 was a Thursday, day 4.
                let weekday = ((first + 4) % 7 + 7) % 7
                var number = (day - weekday + 7) % 7 + (week - 1) * 7
                while number >= Timestamp.days(inMonth: month, of: year) { number -= 7 }
                days = first + number
            }
            return days * 86_400 + self.seconds
        }
    }

    /// Summer time, as most call it: the other offset, and when it begins and ends.
    struct Alternate: Sendable, Equatable {
        let offset: Int
        let begins: Change
        let ends: Change
    }

    /// Seconds east of UTC.
    let standard: Int
    let alternate: Alternate?

    /// The offset at a moment, in seconds since the epoch.
    func offset(at seconds: Int) -> Int {
        guard let alternate = self.alternate else { return self.standard }
        var offset = self.standard
        var latest = Int.min
        for year in self.years(around: seconds) {
            let (begin, end) = self.changes(alternate, in: year)
            if end <= seconds, end > latest { (latest, offset) = (end, self.standard) }
            // Where one year's end is the next one's beginning, the beginning counts: summer time all year.
            if begin <= seconds, begin >= latest { (latest, offset) = (begin, alternate.offset) }
        }
        return offset
    }

    /// The first change after a moment; nil if there is none.
    func change(after seconds: Int) -> Int? {
        guard let alternate = self.alternate else { return nil }
        var next: Int?
        for year in self.years(around: seconds) {
            let (begin, end) = self.changes(alternate, in: year)
            for change in [begin, end] where change > seconds && change < next ?? .max { next = change }
        }
        return next
    }

    private func years(around seconds: Int) -> ClosedRange<Int> {
        let (days, rest) = seconds.quotientAndRemainder(dividingBy: 86_400)
        let year = Timestamp.date(days: rest < 0 ? days - 1 : days).year
        return (year - 1)...(year + 1)
    }

    private func changes(_ alternate: Alternate, in year: Int) -> (begin: Int, end: Int) {
        (
            alternate.begins.wallSeconds(year) - self.standard,
            alternate.ends.wallSeconds(year) - alternate.offset
        )
    }
}
