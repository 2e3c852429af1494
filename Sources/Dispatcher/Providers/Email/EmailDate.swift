// Carillon · EmailDate.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Moments as the header of a message has them (RFC 5322 section 3.3).
enum EmailDate {
    private static let weekdays = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Such as `Sat, 21 Nov 2026 23:20:14 +0000`.
    static func text(_ moment: Timestamp) -> String {
        let seconds = max(0, moment.seconds)
        let days = Int(seconds / 86_400)
        let second = Int(seconds % 86_400)
        let date = Timestamp.date(days: days)
        // 1970-01-01 was a Thursday.
        let weekday = self.weekdays[days % 7]
        let time = [second / 3_600, second / 60 % 60, second % 60].map { $0 < 10 ? "0\($0)" : "\($0)" }
        let clock = time.joined(separator: ":")
        return "\(weekday), \(date.day) \(self.months[date.month - 1]) \(date.year) \(clock) +0000"
    }
}
