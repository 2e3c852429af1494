// Carillon · CronExpression.swift
// SPDX-License-Identifier: Apache-2.0

/// A crontab expression: minute, hour, day of month, month, day of week.
package struct CronExpression: Sendable, Equatable, CustomStringConvertible {
    /// The text as it was written.
    package let description: String
    let minute: CronField
    let hour: CronField
    let day: CronField
    let month: CronField
    let weekday: CronField

    private static let longest = 256
    private static let shorthands = [
        "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
    ]

    /// Parses five fields, or a shorthand such as `@daily`.
    ///
    /// - Throws: ``CronFault``, which names the field; also for a date that no year has, such as 30
    ///   February.
    package init(_ text: String) throws(CronFault) {
        guard text.utf8.count <= Self.longest else {
            throw CronFault("cron", "is longer than \(Self.longest) characters")
        }
        var plain = text
        if text.hasPrefix("@") {
            guard let fields = Self.shorthands[text.lowercased()] else {
                throw CronFault(
                    "cron",
                    "must be one of " + Self.shorthands.keys.sorted().joined(separator: ", ") + ", or five fields")
            }
            plain = fields
        }
        let fields = plain.split { $0 == " " || $0 == "\t" }
        guard fields.count == 5 else {
            throw CronFault(
                "cron",
                "must have five fields: minute, hour, day of month, month, day of week; such as 0 9 * * MON-FRI"
            )
        }
        self.description = text
        self.minute = try CronField(fields[0], .minute)
        self.hour = try CronField(fields[1], .hour)
        self.day = try CronField(fields[2], .day)
        self.month = try CronField(fields[3], .month)
        self.weekday = try CronField(fields[4], .weekday)
        // If either day field may match, some weekday always does.
        guard self.day.isStarred || self.weekday.isStarred else { return }
        let isPossible = (1...12).contains { month in
            // 2000 was a leap year.
            let longest = Timestamp.days(inMonth: month, of: 2_000)
            return self.month.contains(month) && self.day.first(from: 1).map { $0 <= longest } ?? false
        }
        guard isPossible else { throw CronFault("day of month", "names a day that none of the months has") }
    }

    /// Whether it fires at times of day; otherwise it is a rate, with a `*` in minute or hour.
    var isFixed: Bool { !self.minute.isStarred && !self.hour.isStarred }

    /// Whether a day matches: if both day fields are restricted, either one may match.
    func matches(_ date: CivilDate) -> Bool {
        guard self.month.contains(date.month) else { return false }
        // `CivilDate` counts from Monday, cron from Sunday.
        let isWeekday = self.weekday.contains((date.weekday + 1) % 7)
        let isDay = self.day.contains(date.day)
        return self.day.isStarred || self.weekday.isStarred ? isDay && isWeekday : isDay || isWeekday
    }
}

extension CronExpression {
    /// The search range in days.
    ///
    /// The longest wait, for 29 February on a given weekday, is 40 years.
    private static let reach = 60 * 366

    /// Returns the first firing time after a moment.
    ///
    /// Times of day fire once a day: a time in a gap fires right after the gap, a time in an
    /// overlap fires at the earlier of the two. A rate (`*` in minute or hour) follows the wall
    /// clock: it skips a gap and fires in both halves of an overlap. Nil only at the end of time.
    func next(after moment: Timestamp, in rules: ZoneRules) -> Timestamp? {
        self.isFixed ? self.nextTime(after: moment, in: rules) : self.nextOfRate(after: moment, in: rules)
    }

    private func nextTime(after moment: Timestamp, in rules: ZoneRules) -> Timestamp? {
        let local = rules.local(at: moment)
        var date = local.date
        // Skip today's times that have passed.
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

    private func nextOfRate(after moment: Timestamp, in rules: ZoneRules) -> Timestamp? {
        var seconds = moment.microseconds.floorDivided(by: 1_000_000).quotient + 1
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
            // Do not step over a change of the offset.
            if let change = rules.change(after: now), change.seconds < next { next = max(change.seconds, seconds + 1) }
            seconds = next
        }
        return nil
    }

    /// Returns the next day, or the first day of the next matching month.
    private func day(after date: CivilDate) -> CivilDate {
        let next = date.adding(days: 1)
        guard !self.month.contains(next.month) else { return next }
        let (month, year) =
            self.month.first(from: next.month).map { ($0, next.year) }
            ?? (self.month.first(from: 1) ?? 1, next.year + 1)
        return CivilDate(year: year, month: month, day: 1) ?? next
    }
}

/// One field of a cron expression, as a set of numbers.
struct CronField: Sendable, Equatable {
    /// The name and range of a field.
    struct Kind {
        let name: String
        let range: ClosedRange<Int>
        /// The names of the numbers, from the lower bound of `range` on.
        var names: [String] = []

        static let minute = Kind(name: "minute", range: 0...59)
        static let hour = Kind(name: "hour", range: 0...23)
        static let day = Kind(name: "day of month", range: 1...31)
        static let month = Kind(
            name: "month",
            range: 1...12,
            names: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        )
        /// 0 and 7 are Sunday.
        static let weekday = Kind(
            name: "day of week", range: 0...7, names: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
        )
    }

    /// One bit for each number.
    let bits: UInt64
    /// Whether the field begins with `*`.
    ///
    /// The other day field then decides alone; a minute or an hour with `*` makes the expression a
    /// rate.
    let isStarred: Bool

    init(_ text: Substring, _ kind: Kind) throws(CronFault) {
        var bits: UInt64 = 0
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let pieces = part.split(separator: "/", omittingEmptySubsequences: false)
            guard (1...2).contains(pieces.count) else {
                throw CronFault(kind.name, "has more than one / in \"\(part)\"")
            }
            let range = try Self.range(pieces[0], kind, isStepped: pieces.count == 2)
            var step = 1
            if pieces.count == 2 {
                guard let number = Self.number(pieces[1]), number > 0, number <= kind.range.upperBound else {
                    throw CronFault(
                        kind.name, "has no step from 1 to \(kind.range.upperBound) after the / in \"\(part)\"")
                }
                step = number
            }
            for number in stride(from: range.lowerBound, through: range.upperBound, by: step) {
                bits |= 1 << UInt64(number)
            }
        }
        if kind.range.upperBound == 7, bits & 1 << 7 != 0 { bits = bits & 0x7F | 1 }
        self.bits = bits
        self.isStarred = text.first == "*"
    }

    func contains(_ number: Int) -> Bool { self.bits & 1 << UInt64(number) != 0 }

    /// Returns the first number from `start` on; nil if there is none.
    func first(from start: Int) -> Int? {
        guard start < 64 else { return nil }
        let rest = self.bits >> UInt64(start)
        return rest == 0 ? nil : start + rest.trailingZeroBitCount
    }

    private static func range(_ text: Substring, _ kind: Kind, isStepped: Bool) throws(CronFault) -> ClosedRange<Int> {
        if text == "*" {
            // 7 would repeat Sunday.
            return kind.range.lowerBound...min(kind.range.upperBound, kind.range.upperBound == 7 ? 6 : .max)
        }
        let ends = text.split(separator: "-", omittingEmptySubsequences: false)
        guard let first = ends.first, ends.count <= 2 else {
            throw CronFault(kind.name, "has no range in \"\(text)\"; write it like 1-5")
        }
        let lower = try Self.value(first, kind)
        guard ends.count == 2 else {
            if isStepped {
                throw CronFault(
                    kind.name, "has a step without a range; write it like \(lower)-\(kind.range.upperBound)/2")
            }
            return lower...lower
        }
        let upper = try Self.value(ends[1], kind)
        guard lower <= upper else {
            throw CronFault(kind.name, "has the range \"\(text)\", which ends before it begins")
        }
        return lower...upper
    }

    private static func value(_ text: Substring, _ kind: Kind) throws(CronFault) -> Int {
        if let index = kind.names.firstIndex(of: text.lowercased()) { return index + kind.range.lowerBound }
        if let number = Self.number(text), kind.range.contains(number) { return number }
        let names = kind.names.isEmpty ? "" : ", or a name such as \(kind.names[1].uppercased())"
        throw CronFault(
            kind.name,
            "has \"\(text.prefix(16))\"; give numbers from \(kind.range.lowerBound) to \(kind.range.upperBound)\(names)"
        )
    }

    private static func number(_ text: Substring) -> Int? {
        guard (1...2).contains(text.utf8.count), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return Int(text)
    }
}

/// A fault of a cron expression: the field, the rule and the fix.
package struct CronFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let field: String
    package let reason: String

    init(_ field: String, _ reason: String) {
        self.field = field
        self.reason = reason
    }

    package var description: String { "\(self.field) \(self.reason)" }
}
