// Carillon · Timestamp.swift
// SPDX-License-Identifier: Apache-2.0

/// A UTC time with microsecond precision, like PostgreSQL's `timestamptz`.
///
/// Values out of range are clamped to the first or last representable time.
package struct Timestamp: Sendable, Hashable, Comparable {
    /// Since 1970-01-01T00:00:00Z.
    package let microseconds: Int64

    package init(microseconds: Int64) {
        self.microseconds = microseconds
    }

    package init(milliseconds: Int64) {
        self.microseconds = milliseconds.multipliedInRange(by: 1_000)
    }

    package init(seconds: Int64) {
        self.microseconds = seconds.multipliedInRange(by: 1_000_000)
    }

    package var milliseconds: Int64 { self.microseconds / 1_000 }
    package var seconds: Int64 { self.microseconds / 1_000_000 }

    package static func < (left: Timestamp, right: Timestamp) -> Bool {
        left.microseconds < right.microseconds
    }

    package static func + (left: Timestamp, right: Duration) -> Timestamp {
        Timestamp(microseconds: left.microseconds.addedInRange(right.inMicroseconds))
    }

    package static func - (left: Timestamp, right: Duration) -> Timestamp {
        let (moment, isBeyond) = left.microseconds.subtractingReportingOverflow(right.inMicroseconds)
        return Timestamp(microseconds: isBeyond ? (left.microseconds < 0 ? .min : .max) : moment)
    }

    package static func - (left: Timestamp, right: Timestamp) -> Duration {
        .microseconds(left.microseconds) - .microseconds(right.microseconds)
    }
}

extension Duration {
    /// Parses a number and a unit: `90s`, `15m`, `24h` or `30d`; nil for any other text.
    package init?(written text: String) {
        let units: [Character: Int] = ["s": 1, "m": 60, "h": 3_600, "d": 86_400]
        guard let unit = text.last.flatMap({ units[$0] }), let number = Int(text.dropLast()),
            (1...31_536_000).contains(number)
        else { return nil }
        self = .seconds(number * unit)
    }

    /// Whole microseconds, rounded towards zero and clamped.
    package var inMicroseconds: Int64 {
        let (seconds, attoseconds) = self.components
        return seconds.multipliedInRange(by: 1_000_000).addedInRange(attoseconds / 1_000_000_000_000)
    }

    /// Whole milliseconds, rounded towards zero and clamped.
    package var inMilliseconds: Int64 { self.inMicroseconds / 1_000 }
}

extension BinaryInteger {
    /// The quotient rounded down, and the remainder, which is not negative for a positive divisor.
    func floorDivided(by divisor: Self) -> (quotient: Self, remainder: Self) {
        let (quotient, remainder) = self.quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}

extension Int64 {
    /// Multiplies, clamped to the range of `Int64`.
    fileprivate func multipliedInRange(by factor: Int64) -> Int64 {
        let (product, isBeyond) = self.multipliedReportingOverflow(by: factor)
        guard isBeyond else { return product }
        return (self < 0) == (factor < 0) ? .max : .min
    }

    /// Adds, clamped to the range of `Int64`.
    package func addedInRange(_ other: Int64) -> Int64 {
        let (sum, isBeyond) = self.addingReportingOverflow(other)
        guard isBeyond else { return sum }
        return other > 0 ? .max : .min
    }
}

// MARK: RFC 3339

extension Timestamp {
    /// 0000-01-01T00:00:00Z to the last microsecond of 9999: the range of a four-digit year.
    private static let writable: ClosedRange<Int64> = -62_167_219_200_000_000...253_402_300_799_999_999
    /// The milliseconds of the years 1970 to 9999.
    package static let writableMilliseconds: ClosedRange<Int64> = 0...253_402_300_799_999

    /// Whether it has a four-digit year, so that RFC 3339 and PostgreSQL can write it.
    package var isWritable: Bool { Self.writable.contains(self.microseconds) }

    /// Parses an RFC 3339 date and time with offset, such as `2026-11-20T10:00:00Z`; nil if
    /// malformed or outside the years 0 to 9999 of UTC.
    package init?(rfc3339 text: some StringProtocol) {
        var reader = DigitReader(Array(text.utf8))
        guard
            let year = reader.number(digits: 4), reader.skip("-"),
            let month = reader.number(digits: 2), reader.skip("-"),
            let day = reader.number(digits: 2), reader.skip("T", "t", " "),
            let hour = reader.number(digits: 2), reader.skip(":"),
            let minute = reader.number(digits: 2), reader.skip(":"),
            let second = reader.number(digits: 2),
            (1...12).contains(month), (1...Self.days(inMonth: month, of: year)).contains(day),
            hour < 24, minute < 60, second <= 60
        else { return nil }
        let fraction = reader.skip(".") ? reader.fraction() : 0
        guard let fraction, let offset = reader.offset(), reader.isAtEnd else { return nil }
        let days = Self.days(year: year, month: month, day: day)
        let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - offset
        let microseconds = Int64(seconds) * 1_000_000 + Int64(fraction)
        guard Self.writable.contains(microseconds) else { return nil }
        self.init(microseconds: microseconds)
    }

    /// RFC 3339 in UTC with milliseconds, such as `2026-11-20T10:00:00.000Z`; clamped to the years
    /// 0 to 9999.
    package var rfc3339: String {
        String(unsafeUninitializedCapacity: Self.length) { self.fill($0) }
    }

    /// Writes ``rfc3339`` as a JSON string.
    package func write(to writer: inout JSONWriter) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Self.length) { buffer in
            _ = self.fill(buffer)
            writer.string(utf8: UnsafeRawBufferPointer(buffer))
        }
    }

    private static let length = 24

    /// Fills a buffer of ``length`` bytes and returns the length.
    private func fill(_ text: UnsafeMutableBufferPointer<UInt8>) -> Int {
        let inRange = min(max(self.microseconds, Self.writable.lowerBound), Self.writable.upperBound)
        let milliseconds = inRange.floorDivided(by: 1_000).quotient
        let (day, ofDay) = milliseconds.floorDivided(by: 86_400_000)
        let (year, month, dayOfMonth) = Self.date(days: Int(day))
        func put(_ value: Int, at position: Int, digits: Int) {
            var rest = value
            for index in stride(from: position + digits - 1, through: position, by: -1) {
                text[index] = UInt8(ascii: "0") + UInt8(rest % 10)
                rest /= 10
            }
        }
        let time = Int(ofDay)
        put(year, at: 0, digits: 4)
        text[4] = UInt8(ascii: "-")
        put(month, at: 5, digits: 2)
        text[7] = UInt8(ascii: "-")
        put(dayOfMonth, at: 8, digits: 2)
        text[10] = UInt8(ascii: "T")
        put(time / 3_600_000, at: 11, digits: 2)
        text[13] = UInt8(ascii: ":")
        put(time / 60_000 % 60, at: 14, digits: 2)
        text[16] = UInt8(ascii: ":")
        put(time / 1_000 % 60, at: 17, digits: 2)
        text[19] = UInt8(ascii: ".")
        put(time % 1_000, at: 20, digits: 3)
        text[23] = UInt8(ascii: "Z")
        return Self.length
    }

    /// The number of days in a month.
    static func days(inMonth month: Int, of year: Int) -> Int {
        switch month {
        case 4, 6, 9, 11: 30
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        default: 31
        }
    }

    /// Days since 1970-01-01 in the proleptic Gregorian calendar, by 400-year cycles that start in
    /// March.
    static func days(year: Int, month: Int, day: Int) -> Int {
        let shifted = month <= 2 ? year - 1 : year
        let cycle = shifted.floorDivided(by: 400).quotient
        let yearOfCycle = shifted - cycle * 400
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return cycle * 146_097 + yearOfCycle * 365 + yearOfCycle / 4 - yearOfCycle / 100 + dayOfYear - 719_468
    }

    /// The date `days` after 1970-01-01.
    package static func date(days: Int) -> (year: Int, month: Int, day: Int) {
        let (cycle, day) = (days + 719_468).floorDivided(by: 146_097)
        let yearOfCycle = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365
        let dayOfYear = day - (365 * yearOfCycle + yearOfCycle / 4 - yearOfCycle / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        let year = cycle * 400 + yearOfCycle + (month <= 2 ? 1 : 0)
        return (year, month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
    }
}

/// Reads the fixed-width fields of a date.
private struct DigitReader {
    private let bytes: [UInt8]
    private var index = 0

    init(_ bytes: [UInt8]) {
        self.bytes = bytes
    }

    var isAtEnd: Bool { self.index == self.bytes.count }

    private mutating func digit() -> Int? {
        guard self.index < self.bytes.count, (0x30...0x39).contains(self.bytes[self.index]) else { return nil }
        defer { self.index += 1 }
        return Int(self.bytes[self.index] - 0x30)
    }

    mutating func number(digits: Int) -> Int? {
        var value = 0
        for _ in 0..<digits {
            guard let digit = self.digit() else { return nil }
            value = value * 10 + digit
        }
        return value
    }

    mutating func skip(_ characters: Unicode.Scalar...) -> Bool {
        guard self.index < self.bytes.count, characters.contains(Unicode.Scalar(self.bytes[self.index])) else {
            return false
        }
        self.index += 1
        return true
    }

    /// Reads the fraction as microseconds; drops further digits.
    mutating func fraction() -> Int? {
        guard var value = self.digit() else { return nil }
        var digits = 1
        while let digit = self.digit() {
            digits += 1
            if digits <= 6 { value = value * 10 + digit }
        }
        while digits < 6 {
            value *= 10
            digits += 1
        }
        return value
    }

    /// Reads `Z` or `+hh:mm` as seconds.
    mutating func offset() -> Int? {
        if self.skip("Z", "z") { return 0 }
        let isNegative = self.skip("-")
        guard isNegative || self.skip("+") else { return nil }
        guard let hours = self.number(digits: 2), self.skip(":"), let minutes = self.number(digits: 2),
            hours < 24, minutes < 60
        else { return nil }
        return (hours * 60 + minutes) * (isNegative ? -60 : 60)
    }
}

extension Timestamp {
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Parses an IMF-fixdate (RFC 9110 section 5.6.7), such as `Sun, 06 Nov 1994 08:49:37 GMT`; nil
    /// if malformed.
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
