// Carillon · JSONValueTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("JSON values", .timeLimit(.minutes(10)))
struct JSONValueTests {
    private let value = JSONValue.object([
        JSONMember("s", .string("x")), JSONMember("n", .number("-12")), JSONMember("f", .number("1.5")),
        JSONMember("b", .bool(true)), JSONMember("z", .null),
        JSONMember("a", .array([.string("p"), .string("q")])), JSONMember("m", .array([.string("p"), .null])),
    ])

    @Test("each accessor returns its own kind only")
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

    @Test("integers cover exactly 64 bits")
    func integers() {
        #expect(JSONValue.number("9223372036854775807").integer == .max)
        #expect(JSONValue.number("-9223372036854775808").integer == .min)
        #expect(JSONValue.number("9223372036854775808").integer == nil)
        #expect(JSONValue.number("1e19").integer == nil)
    }

    @Test(
        "a number without a fraction is an integer in any notation",
        arguments: [
            ("1.0", 1), ("-7.00", -7), ("1e3", 1_000), ("2.5e1", 25), ("0.0", 0), ("1.5", nil), ("1e-1", nil),
            ("9007199254740993.0", nil), ("1e400", nil),
        ] as [(String, Int64?)])
    func wholeNumbers(text: String, expected: Int64?) {
        #expect(JSONValue.number(text).integer == expected)
    }
}

@Suite("JSON writer", .timeLimit(.minutes(10)))
struct JSONWriterTests {
    private static func text(_ write: (inout JSONWriter) -> Void) -> String {
        var writer = JSONWriter()
        write(&writer)
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    @Test("writes null for a missing number, and arrays with a comma between their elements")
    func members() {
        let json = Self.text { writer in
            writer.beginObject()
            writer.member("none", Int64?.none)
            writer.member("some", Int32?(7))
            writer.array("empty", [Int]()) { $0.integer($1) }
            writer.array("numbers", 1...3) { $0.integer($1) }
            writer.member("last", true)
            writer.endObject()
        }
        #expect(json == #"{"none":null,"some":7,"empty":[],"numbers":[1,2,3],"last":true}"#)
    }

    @Test(
        "escapes strings where necessary and only there",
        arguments: [
            ("", #""""#), ("a b/é€😀", #""a b/é€😀""#), ("\"\\", #""\"\\""#), ("\n\r\t", #""\n\r\t""#),
            ("\u{0}\u{1}\u{8}\u{C}\u{B}\u{1F}", #""\u0000\u0001\u0008\u000c\u000b\u001f""#),
            ("\u{7F}\u{80}\u{2028}", "\"\u{7F}\u{80}\u{2028}\""),
        ]
    )
    func escapes(text: String, expected: String) {
        #expect(Self.text { $0.string(text) } == expected)
        #expect(Self.text { $0.string(text[...]) } == expected)
        let key = Self.text { writer in
            writer.beginObject()
            writer.key(escaping: text)
            writer.integer(1)
            writer.endObject()
        }
        #expect(key == "{\(expected):1}")
    }

    @Test("escapes a character at any position and next to any other")
    func escapesAnywhere() {
        for byte in UInt8(0)..<0x80 {
            let scalar = String(Unicode.Scalar(byte))
            let alone = Self.text { $0.string(scalar) }.dropFirst().dropLast()
            for before in 0...17 {
                for neighbour in ["~", "\u{20}", "\u{7F}", "é"] {
                    let prefix = String(repeating: neighbour, count: before)
                    #expect(Self.text { $0.string(prefix + scalar + neighbour) } == "\"\(prefix)\(alone)\(neighbour)\"")
                }
            }
        }
    }

    @Test("the escaped length of a text is known in advance")
    func lengths() {
        for value in UInt8(0)..<0x80 {
            let text = String(Unicode.Scalar(value))
            #expect(Self.text { $0.string(text) }.utf8.count == 2 + JSONWriter.length(of: value))
        }
        #expect("é😀".utf8.allSatisfy { JSONWriter.length(of: $0) == 1 })
    }

    @Test("separates members and elements with commas at every depth")
    func structure() {
        let text = Self.text { writer in
            writer.beginObject()
            writer.key("a")
            writer.beginArray()
            writer.integer(Int8(-1))
            writer.integer(UInt64.max)
            writer.beginArray()
            writer.endArray()
            writer.beginObject()
            writer.endObject()
            writer.string(nil)
            writer.endArray()
            writer.key(escaping: "b")
            writer.bool(false)
            writer.key("c")
            writer.raw(#"{"raw":[1]}"#)
            writer.key("d")
            writer.null()
            writer.key("e")
            writer.string(String?("x"))
            writer.endObject()
        }
        #expect(
            text == #"{"a":[-1,18446744073709551615,[],{},null],"b":false,"c":{"raw":[1]},"d":null,"e":"x"}"#)
    }

    @Test(
        "writes parsed values unchanged",
        arguments: [
            #"null"#, #"[]"#, #"{}"#, #"[1,-0.50e+07,true,false,null,"x"]"#, #"{"b":1,"a":{"":[[],{}]}}"#,
            #""\"\\\n\r\t\u0001é€😀""#, #"[123456789012345678901234567890]"#, #"{"\"":"\\"}"#,
        ]
    )
    func roundTrips(text: String) throws {
        let bytes = Array(text.utf8)
        #expect(JSONWriter.bytes(of: try JSONParser.parse(bytes)) == bytes)
    }

    @Test("every scalar but U+0000 survives a round trip")
    func roundTripsScalars() throws {
        var text = ""
        for value in (UInt32(1)...0x2FF) {
            if let scalar = Unicode.Scalar(value) { text.unicodeScalars.append(scalar) }
        }
        for value: UInt32 in [0x2028, 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF] {
            if let scalar = Unicode.Scalar(value) { text.unicodeScalars.append(scalar) }
        }
        let read = try JSONParser.parse(JSONWriter.bytes(of: .string(text)))
        #expect(read.string.map { Array($0.utf8) } == Array(text.utf8))
    }

    @Test(
        "compares data as jsonb does",
        arguments: [
            (#"{"a": 1, "b": [true, null]}"#, #"{"b": [true, null], "a": 1.0}"#, true),
            ("1e2", "100", true), ("-0.0", "0", true), ("0.10", "1e-1", true), ("1200", "12E2", true),
            ("1", "-1", false), ("10", "1", false), (#"{"a": 1}"#, #"{"a": 1, "b": 1}"#, false),
            ("[1, 2]", "[2, 1]", false), (#""1""#, "1", false),
            (#""\u00e9""#, #""e\u0301""#, false),
        ])
    func sameData(left: String, right: String, isSame: Bool) throws {
        let (left, right) = (try JSONParser.parse(Array(left.utf8)), try JSONParser.parse(Array(right.utf8)))
        #expect(left.isSameData(as: right) == isSame)
        #expect(right.isSameData(as: left) == isSame)
    }
}
