// Carillon · CronField.swift
// SPDX-License-Identifier: Apache-2.0

/// One field of a cron expression: the numbers that it names.
struct CronField: Sendable, Equatable {
    /// What a field is called and what may stand in it.
    struct Kind {
        let name: String
        let range: ClosedRange<Int>
        /// Names of numbers, from the range's first on.
        var names: [String] = []

        static let minute = Kind(name: "minute", range: 0...59)
        static let hour = Kind(name: "hour", range: 0...23)
        static let day = Kind(name: "day of month", range: 1...31)
        static let month = Kind(
            name: "month",
            range: 1...12,
            names: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        )
        /// 0 and 7 are Sunday.
        static let weekday = Kind(
            name: "day of week", range: 0...7, names: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
        )
    }

    /// A bit for each number.
    let bits: UInt64
    /// Whether it begins with `*`, and so leaves the choice of a day, or the pace, to the others.
    let isStarred: Bool

    init(_ text: Substring, _ kind: Kind) throws(CronFault) {
        var bits: UInt64 = 0
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let pieces = part.split(separator: "/", omittingEmptySubsequences: false)
            guard (1...2).contains(pieces.count) else {
                throw CronFault(kind.name, "has more than one / in \"\(part)\"")
            }
            let range = try Self.range(pieces[0], kind, isStepped: pieces.count == 2)
            var step = 1
            if pieces.count == 2 {
                guard let number = Self.number(pieces[1]), number > 0, number <= kind.range.upperBound else {
                    throw CronFault(
                        kind.name, "has no step from 1 to \(kind.range.upperBound) after the / in \"\(part)\"")
                }
                step = number
            }
            for number in stride(from: range.lowerBound, through: range.upperBound, by: step) {
                bits |= 1 << UInt64(number)
            }
        }
        if kind.range.upperBound == 7, bits & 1 << 7 != 0 { bits = bits & 0x7F | 1 }
        self.bits = bits
        self.isStarred = text.first == "*"
    }

    func contains(_ number: Int) -> Bool { self.bits & 1 << UInt64(number) != 0 }

    /// The first number from `start` on; nil if there is none.
    func first(from start: Int) -> Int? {
        guard start < 64 else { return nil }
        let rest = self.bits >> UInt64(start)
        return rest == 0 ? nil : start + rest.trailingZeroBitCount
    }

    private static func range(_ text: Substring, _ kind: Kind, isStepped: Bool) throws(CronFault) -> ClosedRange<Int> {
        if text == "*" {
            // Seven is Sunday a second time.
            return kind.range.lowerBound...min(kind.range.upperBound, kind.range.upperBound == 7 ? 6 : .max)
        }
        let ends = text.split(separator: "-", omittingEmptySubsequences: false)
        guard let first = ends.first, ends.count <= 2 else {
            throw CronFault(kind.name, "has no range in \"\(text)\"; write it like 1-5")
        }
        let lower = try Self.value(first, kind)
        guard ends.count == 2 else {
            if isStepped {
                throw CronFault(
                    kind.name, "has a step without a range; write it like \(lower)-\(kind.range.upperBound)/2")
            }
            return lower...lower
        }
        let upper = try Self.value(ends[1], kind)
        guard lower <= upper else {
            throw CronFault(kind.name, "has the range \"\(text)\", which ends before it begins")
        }
        return lower...upper
    }

    private static func value(_ text: Substring, _ kind: Kind) throws(CronFault) -> Int {
        if let index = kind.names.firstIndex(of: text.lowercased()) { return index + kind.range.lowerBound }
        if let number = Self.number(text), kind.range.contains(number) { return number }
        let names = kind.names.isEmpty ? "" : ", or a name such as \(kind.names[1].uppercased())"
        throw CronFault(
            kind.name,
            "has \"\(text.prefix(16))\"; give numbers from \(kind.range.lowerBound) to \(kind.range.upperBound)\(names)"
        )
    }

    private static func number(_ text: Substring) -> Int? {
        guard (1...2).contains(text.utf8.count), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else {
            return nil
        }
        return Int(text)
    }
}
