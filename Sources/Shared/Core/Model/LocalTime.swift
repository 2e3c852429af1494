// Carillon · LocalTime.swift
// SPDX-License-Identifier: Apache-2.0

/// A time of day on a wall clock, to the minute, without a zone.
package struct LocalTime: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// Minutes after midnight, 0 to 1,439.
    package let minutes: Int

    /// 00:00.
    package static let midnight = LocalTime()

    private init() {
        self.minutes = 0
    }

    /// - Parameter minutes: minutes after midnight; the result is nil outside 0 to 1,439.
    package init?(minutes: Int) {
        guard (0..<1_440).contains(minutes) else { return nil }
        self.minutes = minutes
    }

    /// Parses `HH:MM`; nil if malformed.
    package init?(_ text: some StringProtocol) {
        let bytes = Array(text.utf8)
        func digit(_ index: Int) -> Int? {
            let value = Int(bytes[index]) - 0x30
            return (0...9).contains(value) ? value : nil
        }
        guard bytes.count == 5, bytes[2] == UInt8(ascii: ":"), let tens = digit(0), let hours = digit(1),
            let tensOfMinutes = digit(3), let minutes = digit(4), tens * 10 + hours < 24, tensOfMinutes < 6
        else { return nil }
        self.minutes = (tens * 10 + hours) * 60 + tensOfMinutes * 10 + minutes
    }

    package var description: String {
        func padded(_ value: Int) -> String { value < 10 ? "0\(value)" : "\(value)" }
        return "\(padded(self.minutes / 60)):\(padded(self.minutes % 60))"
    }

    package static func < (left: LocalTime, right: LocalTime) -> Bool { left.minutes < right.minutes }
}

/// A time on a wall clock in any zone: a time of day, and optionally the day.
package struct WallTime: Sendable, Hashable, CustomStringConvertible {
    /// Days after 1970-01-01; nil for the next time that the clock shows `time`.
    package let day: Int?
    package let time: LocalTime

    package init(day: Int?, time: LocalTime) {
        self.day = day
        self.time = time
    }

    /// The wall time in UTC of a moment from 1970 on, to the minute.
    init(_ moment: Timestamp) {
        let minutes = Int(max(0, moment.seconds) / 60)
        self.init(day: minutes / 1_440, time: LocalTime(minutes: minutes % 1_440) ?? .midnight)
    }

    /// Parses `HH:MM` or `YYYY-MM-DDTHH:MM`; nil if malformed.
    init?(_ text: String) {
        if let time = LocalTime(text) {
            self.init(day: nil, time: time)
            return
        }
        guard text.utf8.count == 16, let moment = Timestamp(rfc3339: text + ":00Z"),
            let time = LocalTime(text.suffix(5)), moment.microseconds >= 0
        else { return nil }
        self.init(day: Int(moment.microseconds / 86_400_000_000), time: time)
    }

    /// The moment of this wall time in UTC; without a day, on 1970-01-01.
    var moment: Timestamp {
        Timestamp(seconds: Int64((self.day ?? 0) * 86_400 + self.time.minutes * 60))
    }

    /// The text that `init(_:)` parses.
    package var description: String {
        self.day == nil ? "\(self.time)" : String(self.moment.rfc3339.prefix(16))
    }
}
