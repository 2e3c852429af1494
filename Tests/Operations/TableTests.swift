// Carillon · TableTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Operations

struct TableTests {
    private static let plain = Style(isOn: false)

    private static func table(_ rows: [[String?]]) -> Table {
        var table = Table([.text("NAME"), .number("COUNT"), .text("REASON", isCuttable: true)])
        for row in rows { table.add(row) }
        return table
    }

    @Test("columns are aligned, numbers to the right, without trailing spaces")
    func aligned() {
        let table = Self.table([["a", "7", "because"], ["longer", "1200", nil]])
        #expect(
            table.lines(room: nil, style: Self.plain) == [
                "NAME    COUNT  REASON",
                "a           7  because",
                "longer   1200  -",
            ])
    }

    @Test("rows that fit are shown whole; otherwise only the column that may be cut shrinks")
    func narrow() {
        let table = Self.table([["a", "7", "a reason that is rather long"]])
        #expect(table.lines(room: 80, style: Self.plain).last == "a         7  a reason that is rather long")
        let cut = table.lines(room: 30, style: Self.plain)
        #expect(cut.last == "a         7  a reason that is…")
        #expect(cut.allSatisfy { DisplayText.width($0) <= 30 })
        // Other columns are never cut.
        #expect(table.lines(room: 5, style: Self.plain).last?.hasPrefix("a         7  a reaso…") == true)
    }

    @Test("a wrapped column continues on further lines, so that nothing of it is hidden")
    func wrapped() {
        var table = Table([.number("NUMBER"), .wrapped("REASON"), .text("AT")])
        table.add(["1", "id: was used before with other content", "now"])
        table.add(["2", "no", nil])
        #expect(
            table.lines(room: 30, style: Self.plain) == [
                "NUMBER  REASON             AT",
                "     1  id: was used       now",
                "        before with other",
                "        content",
                "     2  no                 -",
            ])
        #expect(table.lines(room: nil, style: Self.plain).count == 3)
        #expect(DisplayText.wrap("a carillon:jobs:critical", to: 10) == ["a", "carillon:j", "obs:critic", "al"])
        #expect(DisplayText.wrap("日本語", to: 5) == ["日本", "語"])
    }

    @Test("rows that are printed one by one keep to the least widths, and empty cells are dashes")
    func rows() {
        let table = Table([.number("AFTER", leastWidth: 6), .text("STEP", leastWidth: 8), .text("WHAT")])
        #expect(table.titles == " AFTER  STEP      WHAT")
        #expect(table.row(["3 ms", "push", "fcm"]) == "  3 ms  push      fcm")
        #expect(table.row(["17 ms", "stored", ""]) == " 17 ms  stored    -")
        #expect(table.row(["17 ms", "summarised"]) == " 17 ms  summarised  -")
    }

    @Test("only the titles have a tint, and only if tints are on")
    func tints() {
        let lines = Self.table([["a", "7", "b"]]).lines(room: nil, style: Style(isOn: true))
        #expect(lines.first == "\u{1B}[1mNAME  COUNT  REASON\u{1B}[0m")
        #expect(lines.last == "a         7  b")
    }

    @Test("foreign text cannot send control sequences or break a line")
    func harmless() {
        let table = Self.table([["\u{1B}[2Jx", "1", "two\r\nlines\u{202E}back\u{0}\u{9B}31m"]])
        #expect(table.lines(room: nil, style: Self.plain).last == " [2Jx      1  two  linesback  31m")
    }

    @Test("wide characters take two columns, combining marks none")
    func wide() {
        for (text, width) in [("abc", 3), ("日本", 4), ("e\u{301}", 1), ("😀", 2), ("", 0), ("ä€", 2)] {
            #expect(DisplayText.width(text) == width, "\(text)")
        }
        var table = Table([.text("A"), .text("B")])
        table.add(["日本", "x"])
        table.add(["abcd", "y"])
        #expect(table.lines(room: nil, style: Self.plain) == ["A     B", "日本  x", "abcd  y"])
        #expect(DisplayText.cut("日本語", to: 4) == "日…")
    }

    @Test(
        "durations use their two largest units",
        arguments: [
            (0, "0 s"), (59, "59 s"), (60, "1 min"), (125, "2 min 5 s"), (3_600, "1 h"), (3_720, "1 h 2 min"),
            (100_800, "1 d 4 h"),
        ]
    )
    func durations(seconds: Int, text: String) {
        #expect(DisplayText.duration(.seconds(seconds)) == text)
    }

    @Test("a card aligns its values and leaves out missing ones")
    func card() {
        var card = Card()
        card.add("user", "u1")
        card.add("nothing", nil)
        card.add("reason", "one\ntwo")
        #expect(card.lines == ["user    u1", "reason  one", "        two"])
    }
}
