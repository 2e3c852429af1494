// Carillon · InlineMarkTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

struct InlineMarkTests {
    @Test(
        "removes marks at the edges of words, and leaves everything else",
        arguments: [
            ("**Paid** in _full_", "Paid in full"), ("`x_y` and `**`", "x_y and **"), ("(_a b_), „_c_“", "(a b), „c“"),
            ("**a** **b**", "a b"), ("_é_", "é"), ("plain", "plain"), ("", ""),
            // These are no marks.
            ("a_b_c", "a_b_c"), ("2 ** 3 ** 4", "2 ** 3 ** 4"), ("__init__", "__init__"), ("** a**", "** a**"),
            ("_ a_", "_ a_"), ("_a_b", "_a_b"), ("``", "``"), ("`a\nb`", "`a\nb`"), ("**", "**"), ("*a*", "*a*"),
            ("**a*b**", "**a*b**"), ("_", "_"), ("`", "`"), ("é_a_", "é_a_"),
        ])
    func plain(text: String, expected: String) {
        #expect(InlineMarks.plain(text) == expected)
    }
}
