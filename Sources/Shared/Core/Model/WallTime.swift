// Carillon · WallTime.swift
// SPDX-License-Identifier: Apache-2.0

/// What clocks on the wall show, wherever they hang: a time of day, and the day if it is said.
package struct WallTime: Sendable, Hashable, CustomStringConvertible {
    /// Days after 1970-01-01; nil for the next day on which it is that time.
    package let day: Int?
    package let time: LocalTime

    package init(day: Int?, time: LocalTime) {
        self.day = day
        self.time = time
    }

    /// What a clock in UTC shows at a moment from 1970 on, to the minute.
    package init(_ moment: Timestamp) {
        let minutes = Int(max(0, moment.seconds) / 60)
        self.init(day: minutes / 1_440, time: LocalTime(minutes: minutes % 1_440) ?? .midnight)
    }

    /// Reads `HH:MM` or `YYYY-MM-DDTHH:MM`; nil if it is neither.
    package init?(_ text: String) {
        if let time = LocalTime(text) {
            self.init(day: nil, time: time)
            return
        }
        guard text.utf8.count == 16, let moment = Timestamp(rfc3339: text + ":00Z"),
            let time = LocalTime(text.suffix(5)), moment.microseconds >= 0
        else { return nil }
        self.init(day: Int(moment.microseconds / 86_400_000_000), time: time)
    }

    /// The moment at which a clock in UTC shows it; without a day, that of 1970-01-01.
    package var moment: Timestamp {
        Timestamp(seconds: Int64((self.day ?? 0) * 86_400 + self.time.minutes * 60))
    }

    /// As it is read.
    package var description: String {
        self.day == nil ? "\(self.time)" : String(self.moment.rfc3339.prefix(16))
    }
}
