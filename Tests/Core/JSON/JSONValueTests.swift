// Carillon · JSONValueTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("JSON values", .timeLimit(.minutes(10)))
struct JSONValueTests {
    private let value = JSONValue.object([
        JSONMember("s", .string("x")), JSONMember("n", .number("-12")), JSONMember("f", .number("1.5")),
        JSONMember("b", .bool(true)), JSONMember("z", .null),
        JSONMember("a", .array([.string("p"), .string("q")])), JSONMember("m", .array([.string("p"), .null])),
    ])

    @Test("Each face gives its own kind and nothing else")
    func faces() {
        #expect(self.value["s"]?.string == "x")
        #expect(self.value["n"]?.integer == -12)
        #expect(self.value["f"]?.integer == nil)
        #expect(self.value["b"]?.bool == true)
        #expect(self.value["a"]?.array?.count == 2)
        #expect(self.value["a"]?.strings == ["p", "q"])
        #expect(self.value["m"]?.strings == nil)
        #expect(self.value["z"] == .null)
        #expect(self.value["none"] == nil)
        #expect(self.value["s"]?["s"] == nil)
        for name in ["n", "b", "z", "a"] { #expect(self.value[name]?.string == nil) }
        for name in ["s", "b", "z", "a"] { #expect(self.value[name]?.integer == nil) }
        for name in ["s", "n", "z", "a"] { #expect(self.value[name]?.bool == nil) }
        for name in ["s", "n", "b", "z"] { #expect(self.value[name]?.strings == nil) }
    }

    @Test("Integers cover 64 bits and no more")
    func integers() {
        #expect(JSONValue.number("9223372036854775807").integer == .max)
        #expect(JSONValue.number("-9223372036854775808").integer == .min)
        #expect(JSONValue.number("9223372036854775808").integer == nil)
        #expect(JSONValue.number("1e19").integer == nil)
    }

    @Test(
        "A number without a fraction is an integer, however it is written",
        arguments: [
            ("1.0", 1), ("-7.00", -7), ("1e3", 1_000), ("2.5e1", 25), ("0.0", 0), ("1.5", nil), ("1e-1", nil),
            ("9007199254740993.0", nil), ("1e400", nil),
        ] as [(String, Int64?)])
    func wholeNumbers(text: String, expected: Int64?) {
        #expect(JSONValue.number(text).integer == expected)
    }
}
