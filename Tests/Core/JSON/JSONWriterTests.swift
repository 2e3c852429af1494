// Carillon · JSONWriterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("JSON writer", .timeLimit(.minutes(10)))
struct JSONWriterTests {
    private static func text(_ write: (inout JSONWriter) -> Void) -> String {
        var writer = JSONWriter()
        write(&writer)
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    @Test(
        "Strings are escaped where they must be, and only there",
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

    @Test("Whatever needs an escape gets it wherever it stands, beside any neighbour")
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

    @Test("The length of a text in JSON is known beforehand")
    func lengths() {
        for value in UInt8(0)..<0x80 {
            let text = String(Unicode.Scalar(value))
            #expect(Self.text { $0.string(text) }.utf8.count == 2 + JSONWriter.length(of: value))
        }
        #expect("é😀".utf8.allSatisfy { JSONWriter.length(of: $0) == 1 })
    }

    @Test("Commas stand between members and elements, at every depth")
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
        "What was parsed is written as it was",
        arguments: [
            #"null"#, #"[]"#, #"{}"#, #"[1,-0.50e+07,true,false,null,"x"]"#, #"{"b":1,"a":{"":[[],{}]}}"#,
            #""\"\\\n\r\t\u0001é€😀""#, #"[123456789012345678901234567890]"#, #"{"\"":"\\"}"#,
        ]
    )
    func roundTrips(text: String) throws {
        let bytes = Array(text.utf8)
        #expect(JSONWriter.bytes(of: try JSONParser.parse(bytes)) == bytes)
    }

    @Test("Every scalar but U+0000 survives writing and reading")
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
}
