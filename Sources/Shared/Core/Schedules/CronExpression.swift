// Carillon · CronExpression.swift
// SPDX-License-Identifier: Apache-2.0

/// When something recurs, as crontabs say it: minute, hour, day of month, month, day of week.
package struct CronExpression: Sendable, Equatable, CustomStringConvertible {
    /// As it was written.
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

    /// Reads five fields, or `@daily` and the like.
    ///
    /// - Throws: ``CronFault``, which names the field; also for dates that no year has, such as 30 February.
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
        // Where either day counts, there is always a weekday.
        guard self.day.isStarred || self.weekday.isStarred else { return }
        let isPossible = (1...12).contains { month in
            // 2000 was a leap year.
            let longest = Timestamp.days(inMonth: month, of: 2_000)
            return self.month.contains(month) && self.day.first(from: 1).map { $0 <= longest } ?? false
        }
        guard isPossible else { throw CronFault("day of month", "names a day that none of the months has") }
    }

    /// Whether it names hours and minutes, and does not say "each" of either: then it fires at times of day, and not at a
    /// pace.
    var isFixed: Bool { !self.minute.isStarred && !self.hour.isStarred }

    /// Whether a day is one of those named: where both day fields are restricted, either may name it.
    func matches(_ date: CivilDate) -> Bool {
        guard self.month.contains(date.month) else { return false }
        // Zones count from Monday, cron from Sunday.
        let isWeekday = self.weekday.contains((date.weekday + 1) % 7)
        let isDay = self.day.contains(date.day)
        return self.day.isStarred || self.weekday.isStarred ? isDay && isWeekday : isDay || isWeekday
    }
}
