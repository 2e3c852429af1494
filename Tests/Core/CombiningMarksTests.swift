// Carillon · CombiningMarksTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Combining marks", .timeLimit(.minutes(10)))
struct CombiningMarksTests {
    @Test(
        "counts the marks in a row, of two to four bytes and those that are made of marks",
        arguments: ["\u{300}", "\u{316}", "\u{5B0}", "\u{F73}", "\u{20D0}", "\u{3099}", "\u{1D165}"])
    func runs(mark: String) {
        let most = "a" + String(repeating: mark, count: 64)
        #expect(!CombiningMarks.areTooMany(in: most))
        #expect(!CombiningMarks.areTooMany(in: most + most))
        #expect(CombiningMarks.areTooMany(in: most + mark))
        #expect(CombiningMarks.areTooMany(in: most + "\u{316}"), "several marks make one row")
        #expect(CombiningMarks.areTooMany(in: String(repeating: mark, count: 65)))
        #expect(CombiningMarks.areTooMany(in: "é\(most)\(mark)b"))
    }

    @Test("takes texts of every script", arguments: ["", "a", "Ünïcödé", "中文", "नमस्ते", "กำลัง", "👩‍👩‍👧‍👦", "한국어"])
    func scripts(text: String) {
        #expect(!CombiningMarks.areTooMany(in: String(repeating: text, count: 200)))
    }
}
