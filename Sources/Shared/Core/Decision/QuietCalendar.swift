// Carillon · QuietCalendar.swift
// SPDX-License-Identifier: Apache-2.0

/// A user's quiet hours as instants: one daily window of wall-clock times in a zone.
///
/// A window includes its start and excludes its end. A wall time that a clock change skips means
/// the first instant after the gap; one that occurs twice means the first.
struct QuietCalendar: Sendable {
    private static let mostChained = 7
    /// A clock change brings two windows closer by fewer minutes than this.
    private static let mostShifted = 180

    private let hours: QuietHours
    private let zone: ZoneRules

    init(_ hours: QuietHours, zone: ZoneRules) {
        self.hours = hours
        self.zone = zone
    }

    /// Returns the end of the quiet hours that `moment` is in; nil if it is in none.
    func end(at moment: Timestamp) -> Timestamp? {
        guard self.hours.start != self.hours.end, self.hours.weekdays & 0x7F != 0 else { return nil }
        guard var end = self.window(around: moment) else { return nil }
        // At a clock change, a day's window may run into the next one.
        for _ in 0..<Self.mostChained {
            guard let next = self.window(around: end) else { return end }
            end = next
        }
        return end
    }

    /// Whether no window can begin within `minutes` of the end of another.
    func leavesFree(minutes: Int) -> Bool {
        let length = (self.hours.end - self.hours.start + 1_440) % 1_440
        return 1_440 - length > minutes + Self.mostShifted
    }

    private func window(around moment: Timestamp) -> Timestamp? {
        let today = self.zone.local(at: moment).date
        // A window across midnight began the day before; a clock change may move it by another day.
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

/// Spreads the releases after quiet hours, so that a zone's users are not all due at once.
///
/// The same user, end and lane always give the same delay. All of a user's notifications of a lane
/// are released together, and may become one summary.
enum ReleaseSpread {
    /// Longer than any delay.
    static let mostMinutes = 15

    /// Returns the longest delay of a lane; critical notifications have none.
    static func longest(_ lane: Lane) -> Duration {
        switch lane {
        case .critical: .zero
        case .normal: .seconds(300)
        case .bulk: .seconds(900)
        }
    }

    /// Returns the delay after `end`, in whole milliseconds, below the lane's longest.
    static func delay(user: String, end: Timestamp, lane: Lane) -> Duration {
        let span = UInt64(self.longest(lane).components.seconds) * 1_000
        guard span > 0 else { return .zero }
        return .milliseconds(Int64(self.hash(user, end) % span))
    }

    private static func hash(_ user: String, _ end: Timestamp) -> UInt64 {
        let moment = stride(from: Int64(0), to: 64, by: 8).map { UInt8(truncatingIfNeeded: end.microseconds >> $0) }
        return FNV1a.hash64(moment, from: FNV1a.hash64(user.utf8))
    }
}
