// Carillon · CivilDate.swift
// SPDX-License-Identifier: Apache-2.0

/// A day of the proleptic Gregorian calendar, without a zone.
package struct CivilDate: Sendable, Hashable, Comparable, CustomStringConvertible {
    let year: Int
    /// 1 to 12.
    let month: Int
    /// 1 to 31.
    let day: Int

    /// Nil if the month has no such day or the year has more than six digits.
    init?(year: Int, month: Int, day: Int) {
        guard (-999_999...999_999).contains(year), (1...12).contains(month),
            (1...Timestamp.days(inMonth: month, of: year)).contains(day)
        else { return nil }
        self.year = year
        self.month = month
        self.day = day
    }

    /// The date `daysSinceEpoch` days after 1970-01-01.
    package init(daysSinceEpoch: Int) {
        let date = Timestamp.date(days: daysSinceEpoch)
        self.year = date.year
        self.month = date.month
        self.day = date.day
    }

    /// Days after 1970-01-01.
    var daysSinceEpoch: Int { Timestamp.days(year: self.year, month: self.month, day: self.day) }

    /// 0 for Monday to 6 for Sunday.
    var weekday: Int {
        // 1970-01-01 was a Thursday.
        let rest = (self.daysSinceEpoch + 3) % 7
        return rest < 0 ? rest + 7 : rest
    }

    /// Returns the date so many days later; earlier if negative.
    func adding(days: Int) -> CivilDate { CivilDate(daysSinceEpoch: self.daysSinceEpoch + days) }

    /// `YYYY-MM-DD`.
    package var description: String {
        func padded(_ value: Int, _ digits: Int) -> String {
            let text = String(value.magnitude)
            return (value < 0 ? "-" : "") + String(repeating: "0", count: max(0, digits - text.count)) + text
        }
        return "\(padded(self.year, 4))-\(padded(self.month, 2))-\(padded(self.day, 2))"
    }

    package static func < (left: CivilDate, right: CivilDate) -> Bool {
        (left.year, left.month, left.day) < (right.year, right.month, right.day)
    }
}
