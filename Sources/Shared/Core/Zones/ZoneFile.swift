// Carillon · ZoneFile.swift
// SPDX-License-Identifier: Apache-2.0

/// A TZif file (RFC 9636): the changes of the offset, and the rule after the last one.
struct ZoneFile {
    /// An upper bound; the largest file of the IANA database has about 250.
    private static let mostTransitions = 10_000
    private static let header = 44
    /// RFC 9636 section 3.2: a bit more than a day either way.
    private static let offsets = -93_600...93_600

    /// Seconds since the epoch, ascending.
    private(set) var transitions: [Int64] = []
    /// The offset from each transition on, in seconds east of UTC.
    private(set) var offsets: [Int32] = []
    /// The offset before the first transition.
    private(set) var first: Int32 = 0
    /// The rule after the last transition; nil if the file has none.
    private(set) var rule: RecurringRule?

    private struct Counts {
        let isUTC: Int, isStandard: Int, leap: Int, transitions: Int, types: Int, characters: Int

        func size(ofTime bytes: Int) -> Int {
            self.transitions * (bytes + 1) + self.types * 6 + self.characters + self.leap * (bytes + 4)
                + self.isStandard + self.isUTC
        }
    }

    init(_ bytes: [UInt8]) throws(ZoneFault) {
        let (version, counts) = try Self.counts(bytes, at: 0)
        guard version >= 2 else {
            try self.readBlock(bytes, at: Self.header, counts, ofTime: 4)
            return
        }
        // The first block repeats the second one's data with 32 bits.
        let second = Self.header + counts.size(ofTime: 4)
        let wide = try Self.counts(bytes, at: second).counts
        try self.readBlock(bytes, at: second + Self.header, wide, ofTime: 8)
        let footer = second + Self.header + wide.size(ofTime: 8)
        guard footer < bytes.count, bytes[footer] == 0x0A,
            let end = bytes[(footer + 1)...].firstIndex(of: 0x0A)
        else { throw ZoneFault("the footer is missing") }
        if end > footer + 1 { self.rule = try RecurringRuleReader.read(bytes[(footer + 1)..<end]) }
    }

    private static func counts(_ bytes: [UInt8], at start: Int) throws(ZoneFault) -> (version: Int, counts: Counts) {
        guard start + Self.header <= bytes.count, bytes[start..<(start + 4)].elementsEqual("TZif".utf8) else {
            throw ZoneFault("not a TZif file")
        }
        let version = bytes[start + 4] == 0 ? 1 : Int(bytes[start + 4]) - 0x30
        guard (1...9).contains(version) else { throw ZoneFault("unknown version") }
        func count(_ index: Int) -> Int { Int(Self.integer(bytes, at: start + 20 + index * 4, size: 4)) }
        let counts = Counts(
            isUTC: count(0), isStandard: count(1), leap: count(2), transitions: count(3), types: count(4),
            characters: count(5)
        )
        guard (0...255).contains(counts.types), (0...Self.mostTransitions).contains(counts.transitions),
            (0...4_096).contains(counts.characters), (0...255).contains(counts.isUTC),
            (0...255).contains(counts.isStandard), (0...Self.mostTransitions).contains(counts.leap)
        else { throw ZoneFault("a count is out of bounds") }
        return (version, counts)
    }

    /// Reads a big-endian integer of 4 or 8 bytes, which must be in bounds.
    private static func integer(_ bytes: [UInt8], at start: Int, size: Int) -> Int64 {
        var value: UInt64 = 0
        for byte in bytes[start..<(start + size)] { value = value << 8 | UInt64(byte) }
        return size == 4 ? Int64(Int32(truncatingIfNeeded: value)) : Int64(bitPattern: value)
    }

    private mutating func readBlock(
        _ bytes: [UInt8],
        at start: Int,
        _ counts: Counts,
        ofTime size: Int
    ) throws(ZoneFault) {
        guard start + counts.size(ofTime: size) <= bytes.count else { throw ZoneFault("the file is truncated") }
        guard counts.types > 0 else { throw ZoneFault("no local time types") }
        // POSIX time has no leap seconds; the files of the folder "right" count them.
        guard counts.leap == 0 else { throw ZoneFault("leap seconds are not supported") }
        let indices = start + counts.transitions * size
        let types = indices + counts.transitions
        var table: [Int32] = []
        for index in 0..<counts.types {
            let offset = Self.integer(bytes, at: types + index * 6, size: 4)
            guard Self.offsets.contains(Int(offset)) else { throw ZoneFault("an offset is out of bounds") }
            table.append(Int32(offset))
        }
        self.first = table[0]
        self.transitions.reserveCapacity(counts.transitions)
        self.offsets.reserveCapacity(counts.transitions)
        for index in 0..<counts.transitions {
            let moment = Self.integer(bytes, at: start + index * size, size: size)
            let type = Int(bytes[indices + index])
            guard type < table.count else { throw ZoneFault("a transition has an unknown type") }
            guard moment > self.transitions.last ?? .min || index == 0 else {
                throw ZoneFault("the transitions are not ascending")
            }
            self.transitions.append(moment)
            self.offsets.append(table[type])
        }
    }
}

/// Why a file is not a valid zone file.
package struct ZoneFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    init(_ description: String) {
        self.description = description
    }
}
