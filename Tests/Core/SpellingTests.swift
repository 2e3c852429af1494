// Carillon · SpellingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Spelling", .timeLimit(.minutes(10)))
struct SpellingTests {
    private static let names = ["enqueue", "events", "broadcast", "lag"]

    @Test("finds the name that a word begins, or that is at most two edits away")
    func nearest() {
        let found = [
            ("broad", "broadcast"), ("enqeue", "enqueue"), ("evnets", "events"), ("eventss", "events"), ("lga", "lag"),
        ]
        for (word, name) in found { #expect(Spelling.nearest(to: word, of: Self.names) == name, "\(word)") }
        for word in ["start", "xx", ""] { #expect(Spelling.nearest(to: word, of: Self.names) == nil, "\(word)") }
        #expect(Spelling.closest(to: "enqeue", of: Self.names) == "enqueue")
        for word in ["broad", "flags"] { #expect(Spelling.closest(to: word, of: Self.names) == nil, "\(word)") }
    }
}
