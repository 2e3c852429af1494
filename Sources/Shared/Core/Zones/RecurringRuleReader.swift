// Carillon · RecurringRuleReader.swift
// SPDX-License-Identifier: Apache-2.0

/// Reads a TZ string such as `CET-1CEST,M3.5.0,M10.5.0/3`.
struct RecurringRuleReader {
    private let bytes: ArraySlice<UInt8>
    private var index: Int

    private init(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
        self.index = bytes.startIndex
    }

    /// Reads the whole string.
    static func read(_ bytes: ArraySlice<UInt8>) throws(ZoneFault) -> RecurringRule {
        var reader = RecurringRuleReader(bytes)
        guard let rule = reader.rule(), reader.index == bytes.endIndex else {
            throw ZoneFault("its last line is no rule")
        }
        return rule
    }

    private mutating func rule() -> RecurringRule? {
        // A TZ string says how far west of UTC a place is.
        guard self.name(), let west = self.time(hours: 24) else { return nil }
        guard self.index < self.bytes.endIndex else { return RecurringRule(standard: -west, alternate: nil) }
        guard self.name() else { return nil }
        var offset = -west + 3_600
        if let next = self.peek(), next != UInt8(ascii: ",") {
            guard let time = self.time(hours: 24) else { return nil }
            offset = -time
        }
        // POSIX leaves open what holds without dates; every implementation takes those of the United States.
        var begins = RecurringRule.Change(day: .weekday(month: 3, week: 2, day: 0), seconds: 7_200)
        var ends = RecurringRule.Change(day: .weekday(month: 11, week: 1, day: 0), seconds: 7_200)
        if self.index < self.bytes.endIndex {
            guard self.skip(","), let first = self.change(), self.skip(","), let second = self.change() else {
                return nil
            }
            (begins, ends) = (first, second)
        }
        return RecurringRule(
            standard: -west,
            alternate: RecurringRule.Alternate(offset: offset, begins: begins, ends: ends)
        )
    }

    private func peek() -> UInt8? { self.index < self.bytes.endIndex ? self.bytes[self.index] : nil }

    private mutating func skip(_ character: Unicode.Scalar) -> Bool {
        guard self.peek() == UInt8(ascii: character) else { return false }
        self.index += 1
        return true
    }

    /// Three letters at least, or in angle brackets letters, digits and signs.
    private mutating func name() -> Bool {
        func isLetter(_ byte: UInt8) -> Bool { (0x41...0x5A).contains(byte & 0xDF) }
        let isQuoted = self.skip("<")
        var count = 0
        while let byte = self.peek(),
            isLetter(byte) || isQuoted && ((0x30...0x39).contains(byte) || byte == 0x2B || byte == 0x2D)
        {
            self.index += 1
            count += 1
        }
        return count >= 3 && (!isQuoted || self.skip(">"))
    }

    /// `[+-]hh[:mm[:ss]]` as seconds.
    private mutating func time(hours limit: Int) -> Int? {
        let isNegative = self.skip("-")
        if !isNegative { _ = self.skip("+") }
        guard let hours = self.number(0...limit) else { return nil }
        var seconds = hours * 3_600
        if self.skip(":") {
            guard let minutes = self.number(0...59) else { return nil }
            seconds += minutes * 60
            if self.skip(":") {
                guard let rest = self.number(0...59) else { return nil }
                seconds += rest
            }
        }
        return isNegative ? -seconds : seconds
    }

    private mutating func change() -> RecurringRule.Change? {
        let day: RecurringRule.Change.Day
        if self.skip("M") {
            guard let month = self.number(1...12), self.skip("."), let week = self.number(1...5), self.skip("."),
                let weekday = self.number(0...6)
            else { return nil }
            day = .weekday(month: month, week: week, day: weekday)
        } else if self.skip("J") {
            guard let number = self.number(1...365) else { return nil }
            day = .julian(number)
        } else {
            guard let number = self.number(0...365) else { return nil }
            day = .ordinal(number)
        }
        guard self.skip("/") else { return RecurringRule.Change(day: day, seconds: 7_200) }
        // RFC 9636, 3.3.1: a week either way.
        return self.time(hours: 167).map { RecurringRule.Change(day: day, seconds: $0) }
    }

    private mutating func number(_ range: ClosedRange<Int>) -> Int? {
        var value = 0
        var digits = 0
        while let byte = self.peek(), (0x30...0x39).contains(byte), digits < 4 {
            value = value * 10 + Int(byte - 0x30)
            digits += 1
            self.index += 1
        }
        return digits > 0 && range.contains(value) ? value : nil
    }
}
