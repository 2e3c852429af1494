// Carillon · RecurringRule.swift
// SPDX-License-Identifier: Apache-2.0

/// A parsed TZ string: one fixed offset, or two that change on the same days each year.
///
/// POSIX syntax with RFC 9636's extension that a change may be up to a week off its day.
struct RecurringRule: Sendable, Equatable {
    /// A yearly change of the offset, in wall-clock time before the change.
    struct Change: Sendable, Equatable {
        enum Day: Sendable, Equatable {
            /// `Jn`: 1 to 365; 29 February is not counted.
            case julian(Int)
            /// `n`: 0 to 365, with 29 February.
            case ordinal(Int)
            /// `Mm.w.d`: the w-th weekday d (0 for Sunday) of a month; 5 is the last.
            case weekday(month: Int, week: Int, day: Int)
        }

        let day: Day
        /// Seconds after that day's midnight.
        let seconds: Int

        /// The change in a year, as wall-clock seconds since 1970-01-01T00:00.
        func wallSeconds(_ year: Int) -> Int {
            let january = Timestamp.days(year: year, month: 1, day: 1)
            let days: Int
            switch self.day {
            case .julian(let number):
                let isAfterLeapDay = number >= 60 && Timestamp.days(inMonth: 2, of: year) == 29
                days = january + number - (isAfterLeapDay ? 0 : 1)
            case .ordinal(let number):
                days = january + number
            case .weekday(let month, let week, let day):
                let first = Timestamp.days(year: year, month: month, day: 1)
                // 1970-01-01 was a Thursday, day 4.
                let weekday = ((first + 4) % 7 + 7) % 7
                var number = (day - weekday + 7) % 7 + (week - 1) * 7
                while number >= Timestamp.days(inMonth: month, of: year) { number -= 7 }
                days = first + number
            }
            return days * 86_400 + self.seconds
        }
    }

    /// Daylight saving time: its offset, and when it begins and ends.
    struct Alternate: Sendable, Equatable {
        let offset: Int
        let begins: Change
        let ends: Change
    }

    /// Seconds east of UTC.
    let standard: Int
    let alternate: Alternate?

    /// The offset at a moment, in seconds since the epoch.
    func offset(at seconds: Int) -> Int {
        guard let alternate = self.alternate else { return self.standard }
        var offset = self.standard
        var latest = Int.min
        for year in self.years(around: seconds) {
            let (begin, end) = self.changes(alternate, in: year)
            if end <= seconds, end > latest { (latest, offset) = (end, self.standard) }
            // If one year's end is the next one's beginning, the beginning wins: daylight saving
            // all year.
            if begin <= seconds, begin >= latest { (latest, offset) = (begin, alternate.offset) }
        }
        return offset
    }

    /// The first change after a moment; nil if there is none.
    func change(after seconds: Int) -> Int? {
        guard let alternate = self.alternate else { return nil }
        var next: Int?
        for year in self.years(around: seconds) {
            let (begin, end) = self.changes(alternate, in: year)
            for change in [begin, end] where change > seconds && change < next ?? .max { next = change }
        }
        return next
    }

    private func years(around seconds: Int) -> ClosedRange<Int> {
        let (days, rest) = seconds.quotientAndRemainder(dividingBy: 86_400)
        let year = Timestamp.date(days: rest < 0 ? days - 1 : days).year
        return (year - 1)...(year + 1)
    }

    private func changes(_ alternate: Alternate, in year: Int) -> (begin: Int, end: Int) {
        (
            alternate.begins.wallSeconds(year) - self.standard,
            alternate.ends.wallSeconds(year) - alternate.offset
        )
    }
}

/// Parses a TZ string such as `CET-1CEST,M3.5.0,M10.5.0/3`.
struct RecurringRuleReader {
    private let bytes: ArraySlice<UInt8>
    private var index: Int

    private init(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
        self.index = bytes.startIndex
    }

    /// Parses a whole string.
    static func read(_ bytes: ArraySlice<UInt8>) throws(ZoneFault) -> RecurringRule {
        var reader = RecurringRuleReader(bytes)
        guard let rule = reader.rule(), reader.index == bytes.endIndex else {
            throw ZoneFault("the footer is not a TZ string")
        }
        return rule
    }

    private mutating func rule() -> RecurringRule? {
        // TZ strings count offsets west of UTC.
        guard self.name(), let west = self.time(hours: 24) else { return nil }
        guard self.index < self.bytes.endIndex else { return RecurringRule(standard: -west, alternate: nil) }
        guard self.name() else { return nil }
        var offset = -west + 3_600
        if let next = self.peek(), next != UInt8(ascii: ",") {
            guard let time = self.time(hours: 24) else { return nil }
            offset = -time
        }
        // POSIX does not define the default dates; implementations use those of the United States.
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

    /// At least three letters, or letters, digits and signs in angle brackets.
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
        // RFC 9636 section 3.3.1 allows a week either way.
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
