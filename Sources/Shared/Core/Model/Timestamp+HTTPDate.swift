// Carillon · Timestamp+HTTPDate.swift
// SPDX-License-Identifier: Apache-2.0

extension Timestamp {
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Reads an HTTP date in its fixed form (RFC 9110 section 5.6.7), such as `Sun, 06 Nov 1994 08:49:37 GMT`; nil if it
    /// is none.
    package init?(httpDate text: String) {
        let parts = text.split(separator: " ")
        guard parts.count == 6, parts[0].hasSuffix(","), parts[5] == "GMT",
            let day = Int(parts[1]), let month = Self.months.firstIndex(of: String(parts[2])), let year = Int(parts[3])
        else { return nil }
        let time = parts[4].split(separator: ":").compactMap { Int($0) }
        guard time.count == 3, (0..<24).contains(time[0]), (0..<60).contains(time[1]), (0...60).contains(time[2]),
            (1970...9999).contains(year), (1...Self.days(inMonth: month + 1, of: year)).contains(day)
        else { return nil }
        let days = Self.days(year: year, month: month + 1, day: day)
        self.init(seconds: Int64(((days * 24 + time[0]) * 60 + time[1]) * 60 + time[2]))
    }
}
