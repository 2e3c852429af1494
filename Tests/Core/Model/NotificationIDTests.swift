// Carillon · NotificationIDTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Notification ids", .timeLimit(.minutes(10)))
struct NotificationIDTests {
    private typealias Fields = [(name: String, value: ArraySlice<UInt8>)]

    private static let fields: Fields = [("type", ArraySlice("greeting".utf8)), ("user", ArraySlice("u1".utf8))]

    private static func id(
        stream: String = "carillon:jobs",
        entry: String = "1795168800123-4",
        fields: Fields = NotificationIDTests.fields,
        user: String = "u1"
    ) -> NotificationID {
        NotificationID(origin: EntryDigest(stream: stream, entry: entry, fields: fields), user: user)
    }

    @Test("an entry and a user give the same id in every process")
    func isStable() {
        #expect(Self.id() == Self.id())
        // A change here would break the detection of repeated entries.
        #expect(Self.id().description == "01a1f866-0d7b-8004-a05c-a0a4299fe41c")
    }

    @Test("stream, entry, every field and the user change the id")
    func differs() {
        let ids = [
            Self.id(),
            Self.id(stream: "carillon:jobs:bulk"),
            Self.id(entry: "1795168800123-5"),
            Self.id(entry: "1795168800124-4"),
            Self.id(user: "u2"),
            Self.id(user: ""),
            Self.id(fields: []),
            Self.id(fields: Self.fields.reversed()),
            Self.id(fields: [("type", ArraySlice("greetin".utf8)), ("user", ArraySlice("u1".utf8))]),
            Self.id(fields: [("typeg", ArraySlice("reeting".utf8)), ("user", ArraySlice("u1".utf8))]),
            Self.id(fields: [("type", ArraySlice("greetinguseru1".utf8))]),
            Self.id(fields: Self.fields + [("body", [])]),
        ]
        #expect(Set(ids).count == ids.count)
    }

    @Test("an id is a UUID of version 8 that starts with the entry's milliseconds")
    func hasVersion() {
        for index in 0..<200 {
            let id = Self.id(entry: "1795168800123-\(index)")
            let text = Array(id.description)
            #expect(text[14] == "8")
            #expect("89ab".contains(text[19]))
            #expect(id.milliseconds == 1_795_168_800_123)
        }
    }

    @Test("ids sort by the time of their entries, as numbers and as text")
    func isOrdered() {
        let ids = [0, 1, 999, 1_000, 65_535, 65_536, 1_795_168_800_123, 281_474_976_710_655].map {
            Self.id(entry: "\($0)-0")
        }
        #expect(ids == ids.sorted())
        #expect(ids.map(\.description) == ids.map(\.description).sorted())
    }

    @Test("within a millisecond ids sort by the entry's number, which carries beyond twelve bits")
    func isOrderedWithin() {
        let numbers: [UInt64] = [0, 1, 2, 9, 10, 255, 256, 4_094, 4_095, 4_096, 4_097, 8_191, 8_192, 1 << 31]
        let ids = (numbers + [.max]).map { Self.id(entry: "1795168800123-\($0)") }
        #expect(ids == ids.sorted())
        #expect(ids.map(\.description) == ids.map(\.description).sorted())
        #expect(ids[8].milliseconds == 1_795_168_800_123)
        #expect(ids[9].milliseconds == 1_795_168_800_124)
        #expect(ids.allSatisfy { Array($0.description)[14] == "8" })
        // Numbers that no Redis reaches move an id by 18 minutes at most.
        #expect(ids[14].milliseconds < 1_795_168_800_123 + 18 * 60_000)
        #expect(Self.id(entry: "9223372036854775807-4096").milliseconds == 0)
    }

    @Test("a number that does not count the millisecond's entries leaves the time as it is")
    func isNotOfMillisecond() {
        let digest = EntryDigest(
            stream: "schedules", entry: "1795168800123-1000000000", fields: [], isOfMillisecond: false)
        #expect(NotificationID(origin: digest, user: "u1").milliseconds == 1_795_168_800_123)
    }

    @Test("a malformed entry id still gives an id", arguments: ["", "-", "x-1", "99999999999999999999-0"])
    func survives(entry: String) {
        #expect(Self.id(entry: entry).milliseconds == 0)
    }

    @Test(
        "writes the hyphenated form in lower case and parses either case",
        arguments: [
            ("00000000-0000-0000-0000-000000000000", 0, 0), ("ffffffff-ffff-ffff-ffff-ffffffffffff", .max, .max),
            ("01234567-89ab-cdef-0123-456789abcdef", 0x0123_4567_89AB_CDEF, 0x0123_4567_89AB_CDEF),
            ("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", 0xF81D_4FAE_7DEC_11D0, 0xA765_00A0_C91E_6BF6),
        ] as [(String, UInt64, UInt64)]
    )
    func printsAndReads(text: String, high: UInt64, low: UInt64) {
        let id = NotificationID(high: high, low: low)
        #expect(id.description == text)
        #expect(NotificationID(text) == id)
        #expect(NotificationID(text.uppercased()) == id)
        #expect(NotificationID(text[...]) == id)
        #expect(NotificationID(id.halves) == id)
    }

    @Test(
        "refuses other forms",
        arguments: [
            "", "f81d4fae7dec11d0a76500a0c91e6bf6", "f81d4fae-7dec-11d0-a765-00a0c91e6bf",
            "{f81d4fae-7dec-11d0-a765-0}",
            "f81d4fae-7dec-11d0-a765-00a0c91e6bf6 ", "f81d4fae-7dec-11d0-a76500-a0c91e6bf6",
            "f81d4fag-7dec-11d0-a765-00a0c91e6bf6", "f81d4fae_7dec_11d0_a765_00a0c91e6bf6",
            "f81d4fae-7dec-11d0-a765-00a0c91e6b٠", "-81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ]
    )
    func refuses(text: String) {
        #expect(NotificationID(text) == nil)
    }

    @Test("random bits become a UUID of version 4")
    func isRandomUUID() {
        #expect(
            NotificationID(high: .max, low: .max).asRandomUUID.description == "ffffffff-ffff-4fff-bfff-ffffffffffff")
        #expect(NotificationID(high: 0, low: 0).asRandomUUID.description == "00000000-0000-4000-8000-000000000000")
    }
}
