// Carillon · LocalTime.swift
// SPDX-License-Identifier: Apache-2.0

/// A time of day on a wall clock, to the minute, in no zone.
package struct LocalTime: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// Minutes after midnight, 0 to 1,439.
    package let minutes: Int

    /// 00:00.
    package static let midnight = LocalTime()

    private init() {
        self.minutes = 0
    }

    /// - Parameter minutes: minutes after midnight; nil outside of a day.
    package init?(minutes: Int) {
        guard (0..<1_440).contains(minutes) else { return nil }
        self.minutes = minutes
    }

    /// Reads `HH:MM`; nil if it is none.
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
