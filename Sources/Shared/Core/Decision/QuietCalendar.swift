// Carillon · QuietCalendar.swift
// SPDX-License-Identifier: Apache-2.0

/// A user's quiet hours as instants: wall-clock times in a zone, one window a day.
///
/// A window is a pair of instants, the first inclusive, the second exclusive. A time that a change of the clocks skips
/// stands for the first instant after the gap, one that occurs twice for the first of the two.
package struct QuietCalendar: Sendable {
    private let hours: QuietHours
    private let zone: ZoneRules

    package init(_ hours: QuietHours, zone: ZoneRules) {
        self.hours = hours
        self.zone = zone
    }

    /// The end of the quiet hours that `moment` is in; nil if it is in none.
    package func end(at moment: Timestamp) -> Timestamp? {
        guard self.hours.start != self.hours.end, self.hours.weekdays & 0x7F != 0 else { return nil }
        guard var end = self.window(around: moment) else { return nil }
        // Where clocks change, one day's window may run into the next one's.
        for _ in 0..<Self.mostChained {
            guard let next = self.window(around: end) else { return end }
            end = next
        }
        return end
    }

    private static let mostChained = 7
    /// By how many minutes a change of the clocks may bring a window nearer to the one before, amply.
    private static let mostShifted = 180

    /// Whether so little of each day is quiet that none of the windows can begin within `minutes` after the end of another.
    package func leavesFree(minutes: Int) -> Bool {
        let length = (self.hours.end - self.hours.start + 1_440) % 1_440
        return 1_440 - length > minutes + Self.mostShifted
    }

    private func window(around moment: Timestamp) -> Timestamp? {
        let today = self.zone.local(at: moment).date
        // A window that crosses midnight began the day before; a change of the clocks may move it by one more.
        for days in [-2, -1, 0, 1] {
            let date = today.adding(days: days)
            guard self.hours.weekdays >> UInt8(date.weekday) & 1 == 1 else { continue }
            let start = self.zone.instant(date, minutes: self.hours.start)
            let endDate = self.hours.end < self.hours.start ? date.adding(days: 1) : date
            let end = self.zone.instant(endDate, minutes: self.hours.end)
            if start <= moment, moment < end { return end }
        }
        return nil
    }
}
