// Carillon · WallClock.swift
// SPDX-License-Identifier: Apache-2.0

/// Times of day in whole minutes after midnight.
enum WallClock {
    /// `22:00:00`, as databases and .NET write it.
    static func text(_ minutes: Int) -> String {
        func two(_ value: Int) -> String { (value < 10 ? "0" : "") + String(value) }
        return "\(two(minutes / 60)):\(two(minutes % 60)):00"
    }

    /// Minutes after midnight of `22:00`, `22:00:00` or `22:00:00.0000000`.
    ///
    /// What is finer than a minute must be zero; nil if it is no such time.
    static func minutes(_ text: String) -> Int? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard (2...3).contains(parts.count), parts[0].utf8.count == 2, parts[1].utf8.count == 2,
            text.utf8.first != UInt8(ascii: "+"), parts[1].utf8.first != UInt8(ascii: "+"),
            let hours = UInt8(parts[0]), let minutes = UInt8(parts[1]), hours < 24, minutes < 60
        else { return nil }
        if parts.count == 3 {
            guard parts[2].hasPrefix("00"), parts[2].allSatisfy({ $0 == "0" || $0 == "." }) else { return nil }
        }
        return Int(hours) * 60 + Int(minutes)
    }
}
