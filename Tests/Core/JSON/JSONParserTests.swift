// Carillon · JSONParserTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("JSON parser", .timeLimit(.minutes(10)))
struct JSONParserTests {
    private static func parse(_ text: String) throws(JSONFault) -> JSONValue {
        try JSONParser.parse(Array(text.utf8))
    }

    private static func fault(_ bytes: [UInt8]) -> JSONFault? {
        do throws(JSONFault) {
            _ = try JSONParser.parse(bytes)
            return nil
        } catch {
            return error
        }
    }

    /// The zeros of the greatest power of ten that a double holds.
    private static let zeros = String(repeating: "0", count: 308)

    private static func nested(_ depth: Int) -> String {
        String(repeating: "[", count: depth) + "1" + String(repeating: "]", count: depth)
    }

    @Test(
        "parses all JSON of RFC 8259",
        arguments: [
            ("null", .null), ("true", .bool(true)), ("false", .bool(false)), ("\"\"", .string("")), ("[]", .array([])),
            ("{}", .object([])), (" \t\r\n1\t\r\n ", .number("1")), ("[ ]", .array([])), ("{ }", .object([])),
            ("[1,2]", .array([.number("1"), .number("2")])), ("[null,[[]]]", .array([.null, .array([.array([])])])),
            ("[ true , \"a\" ]", .array([.bool(true), .string("a")])),
            ("{\"a\":1}", .object([JSONMember("a", .number("1"))])),
            (
                "{ \"b\" : { } , \"a\" : [ 1 ] }",
                .object([JSONMember("b", .object([])), JSONMember("a", .array([.number("1")]))])
            ),
            ("{\"\":0}", .object([JSONMember("", .number("0"))])),
        ] as [(String, JSONValue)]
    )
    func accepts(text: String, value: JSONValue) throws {
        #expect(try Self.parse(text) == value)
    }

    @Test(
        "refuses texts that are not JSON",
        arguments: [
            "", " ", "nul", "nulll", "True", "tru", "truefalse", "'a'", "a", "[", "]", "{", "}", "[1,]", "[,1]",
            "[1 2]",
            "[1,,2]", "[1}", "{1:2}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{,}", "{\"a\":1 \"b\":2}", "{\"a\" 1}",
            "{a:1}", "{\"a\":1]", "1 2", "[] []", "\"a", "\"a\\", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\U0041\"",
            "\"\\ud8", "\"a\nb\"", "\"a\tb\"", "\"\u{1F}\"", "\u{FEFF}1", "// x\n1", "/**/1", "\u{A0}1", "\u{0}",
            "1\u{0}",
            "NaN", "Infinity", "-Infinity", "[\"a\",\n\u{B}1]",
        ]
    )
    func refuses(text: String) {
        #expect(Self.fault(Array(text.utf8))?.kind == .invalid)
    }

    @Test(
        "numbers keep their text",
        arguments: [
            "0", "-0", "1", "-1", "10", "1.0", "0.5", "-0.0", "1e5", "1E5", "1e+5", "1e-5", "0e0", "1.5E-10",
            "123456789012345678901234567890", "0.1000000000000000000001", "1e308", "1e-308", "1e0005",
            "-1.7976931348623157e308", "0e308", "-0.0e-308", "1\(zeros)", "0.\(zeros)\(zeros)", "0.\(zeros)1",
            "0.1\(zeros)1",
        ]
    )
    func keeps(number: String) throws {
        #expect(try Self.parse(number) == .number(number))
        #expect(try Self.parse("[\(number)]") == .array([.number(number)]))
    }

    @Test(
        "refuses numbers beyond a double's exponents",
        arguments: ["1e309", "-1E+309", "1e-309", "1.5e131071", "1e99999999999999999999"])
    func refuses(exponent: String) {
        #expect(Self.fault(Array(exponent.utf8)) == JSONFault(.exponent, at: 0))
        #expect(Self.fault(Array(#"{"a":\#(exponent)}"#.utf8)) == JSONFault(.exponent, at: 5))
    }

    @Test(
        "refuses numbers beyond a double's range",
        arguments: [
            "9e308", "-9E+308", "1.7976931348623159e308", "10e308", "0.00000000000000000001e-308", "2\(zeros)",
            "-9\(zeros)\(zeros)", "0.\(zeros)\(zeros)1",
        ])
    func refuses(range number: String) {
        #expect(Self.fault(Array(number.utf8)) == JSONFault(.range, at: 0))
        #expect(Self.fault(Array(#"{"a":\#(number)}"#.utf8)) == JSONFault(.range, at: 5))
    }

    @Test(
        "refuses other notations of numbers",
        arguments: [
            "-", "+1", "01", "-01", "00", ".5", "1.", "1.e5", "1e", "1e+", "1E-", "0x10", "1_000", "1,5", "--1",
            "1.2.3",
            "1e1.5", "١",
        ]
    )
    func refuses(number: String) {
        #expect(Self.fault(Array(number.utf8))?.kind == .invalid)
        #expect(Self.fault(Array("[\(number)".utf8))?.kind == .invalid)
    }

    @Test(
        "decodes escapes",
        arguments: [
            (#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{C}\n\r\t"), (#""\u0041\u00e9\u00E9\u20AC""#, "Aéé€"),
            (#""a\ud83d\ude00b""#, "a😀b"), (#""\uD834\uDD1E""#, "\u{1D11E}"), (#""\udbff\udfff""#, "\u{10FFFF}"),
            (#""\u0001\uffff""#, "\u{1}\u{FFFF}"), ("\"é€😀\u{7F}\u{80}\u{2028}\"", "é€😀\u{7F}\u{80}\u{2028}"),
            (#""é\n€""#, "é\n€"),
        ]
    )
    func unescapes(text: String, expected: String) throws {
        let string = try #require(try Self.parse(text).string)
        #expect(Array(string.utf8) == Array(expected.utf8))
        let key = try #require(try Self.parse("{\(text):1}").object?.first?.key)
        #expect(Array(key.utf8) == Array(expected.utf8))
    }

    @Test(
        "refuses a lone surrogate anywhere",
        arguments: [
            #""\ud800""#, #""\udfff""#, #""\udc00\ud800""#, #""\ud800\ud800""#, #""\ud800\u0041""#, #""\ud800x""#,
            #""\ud83d \ude00""#, #""\ud83d\n""#, #"["\udead"]"#, #"{"\ud800":1}"#, #""\ud83d\ude00\ude00""#,
        ]
    )
    func refuses(surrogates: String) {
        #expect(Self.fault(Array(surrogates.utf8))?.kind == .loneSurrogate)
    }

    @Test("refuses an escaped U+0000 in strings and names", arguments: [#""\u0000""#, #"{"a\u0000":1}"#])
    func refuses(nul: String) {
        #expect(Self.fault(Array(nul.utf8))?.kind == .nul)
    }

    @Test("refuses a raw NUL")
    func refusesRawNul() {
        #expect(Self.fault([0x22, 0x00, 0x22])?.kind == .invalid)
    }

    @Test(
        "refuses invalid UTF-8",
        arguments: [
            [0x80], [0xC3], [0xC0, 0x80], [0xC1, 0xBF], [0xE0, 0x80, 0x80], [0xED, 0xA0, 0x80], [0xED, 0xBF, 0xBF],
            [0xF0, 0x80, 0x80, 0x80], [0xF4, 0x90, 0x80, 0x80], [0xF5, 0x80, 0x80, 0x80], [0xFE], [0xFF],
        ] as [[UInt8]]
    )
    func refuses(bytes: [UInt8]) {
        #expect(Self.fault([0x22] + bytes + [0x22])?.kind == .invalidUTF8)
    }

    @Test("refuses a duplicate name in any notation")
    func refusesDuplicates() throws {
        for text in [#"{"a":1,"a":2}"#, #"{"a":1,"b":2,"\u0061":3}"#, #"[{"x":{"":1,"":1}}]"#] {
            #expect(Self.fault(Array(text.utf8))?.kind == .duplicateKey)
        }
        #expect(try Self.parse(#"{"a":{"a":1},"b":{"a":1}}"#)["a"]?["a"]?.integer == 1)
    }

    @Test("refuses a duplicate among many names", arguments: [2, 15, 16, 17, 18, 100])
    func refusesDuplicatesAmongMany(count: Int) throws {
        func text(_ names: [String]) -> String { "{" + names.map { "\"\($0)\":1" }.joined(separator: ",") + "}" }
        let names = (0..<count).map { "n\($0)" }
        #expect(try Self.parse(text(names)).object?.map(\.key) == names)
        for name in [names[0], names[count / 2], names[count - 1]] {
            #expect(Self.fault(Array(text(names + [name]).utf8))?.kind == .duplicateKey)
        }
    }

    @Test("canonically equivalent names are distinct")
    func tellsNormalFormsApart() throws {
        let object = try #require(try Self.parse("{\"\u{E9}\":1,\"e\u{301}\":2}").object)
        #expect(object.count == 2)
    }

    @Test(
        "refuses more than 64 combining marks in a row, escaped or not, in strings and names",
        arguments: ["\u{300}", #"\u0316"#])
    func boundsMarks(mark: String) throws {
        let most = "a" + String(repeating: mark, count: 64)
        #expect(try Self.parse("\"\(most)\(most)\"").string?.unicodeScalars.count == 130)
        #expect(try Self.parse("{\"\(most)\":1}").object?.count == 1)
        for text in ["[\"\(most)\(mark)\"]", "{\"\(most)\(mark)\":1}"] {
            #expect(Self.fault(Array(text.utf8)) == JSONFault(.tooManyMarks, at: 1))
            #expect(throws: Never.self) { try JSONParser.parse(stored: Array(text.utf8)) }
        }
    }

    @Test("finds a member among stored names of many combining marks", .timeLimit(.minutes(1)))
    func findsAmongMarks() throws {
        // Each comparison as `String` would take minutes.
        let marks = String(repeating: "\u{300}\u{316}", count: 400_000)
        let value = try JSONParser.parse(stored: Array("{\"\(marks)\":1,\"a\":2}".utf8))
        #expect(value["a"]?.integer == 2)
    }

    @Test(
        "reads stored numbers beyond a double's range",
        arguments: ["9e308", "1" + String(repeating: "0", count: 309)])
    func readsStoredNumbers(number: String) throws {
        #expect(Self.fault(Array(number.utf8))?.kind == .range)
        #expect(try JSONParser.parse(stored: Array(number.utf8)) == .number(number))
    }

    @Test("limits the values of a text to 500,000, except of those that were stored")
    func boundsValues() throws {
        func list(_ count: Int) -> [UInt8] {
            Array(("[" + Array(repeating: "1", count: count).joined(separator: ",") + "]").utf8)
        }
        #expect(try JSONParser.parse(list(499_999)).array?.count == 499_999)
        #expect(Self.fault(list(500_000)) == JSONFault(.tooManyValues, at: 999_999))
        #expect(try JSONParser.parse(stored: list(500_000)).array?.count == 500_000)
    }

    @Test("limits nesting to 64")
    func boundsDepth() throws {
        #expect(throws: Never.self) { try Self.parse(Self.nested(64)) }
        #expect(Self.fault(Array(Self.nested(65).utf8))?.kind == .tooDeep)
        let objects = String(repeating: "{\"a\":", count: 65) + "1" + String(repeating: "}", count: 65)
        #expect(Self.fault(Array(objects.utf8))?.kind == .tooDeep)
        let empty = String(repeating: "[", count: 65) + String(repeating: "]", count: 65)
        #expect(Self.fault(Array(empty.utf8))?.kind == .tooDeep)
        #expect(Self.fault(Array(empty.replacing("[]", with: "{}").utf8))?.kind == .tooDeep)
        let endless = String(repeating: "[", count: 200_000)
        #expect(Self.fault(Array(endless.utf8))?.kind == .tooDeep)
    }

    @Test("a fault names its kind and offset")
    func describes() {
        let fault = Self.fault(Array(#"{"a":1,"a":2}"#.utf8))
        #expect(fault == JSONFault(.duplicateKey, at: 7))
        #expect(fault?.description == "JSON with a key that occurs twice at byte 7")
        #expect(Self.fault(Array("[1,x]".utf8)) == JSONFault(.invalid, at: 3))
    }

    @Test("refuses every proper prefix of a text")
    func refusesBeginnings() {
        let text = Array(#"{"a":[1.5e3,true,null,"\u00e9\ud83d\ude00é"],"b":{"c":false}}"#.utf8)
        #expect(Self.fault(text) == nil)
        for length in 0..<text.count { #expect(Self.fault(Array(text.prefix(length))) != nil) }
    }
}
