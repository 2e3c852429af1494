// Carillon · RequestQueryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Protocols

@Suite("Request queries", .timeLimit(.minutes(10)))
struct RequestQueryTests {
    private typealias Field = RequestQuery.Field

    @Test(
        "decodes names and values in order",
        arguments: [
            ("", []), ("&&", []), ("a=1&b=2", [("a", "1"), ("b", "2")]), ("a", [("a", "")]), ("a=", [("a", "")]),
            ("=1", [("", "1")]), ("a=b=c", [("a", "b=c")]), ("a=x%20y+z", [("a", "x y z")]),
            ("%61=J%C3%B6rg", [("a", "Jörg")]), ("a=%2b%2F%3D%26", [("a", "+/=&")]),
            ("A=1&a=2", [("A", "1"), ("a", "2")]), ("a=b?c", [("a", "b?c")]),
        ] as [(String, [(String, String)])])
    func fields(_ text: String, _ expected: [(String, String)]) throws {
        #expect(try RequestQuery(text).fields == expected.map { Field($0.0, $0.1) })
        #expect(try RequestQuery(target: "/path?" + text) == RequestQuery(text))
    }

    @Test(
        "refuses and names what cannot be read or occurs twice",
        arguments: [
            ("a=%", "a: is not percent-encoded UTF-8"), ("a=%4", "a: is not percent-encoded UTF-8"),
            ("a=%zz", "a: is not percent-encoded UTF-8"), ("a=%FF", "a: is not percent-encoded UTF-8"),
            ("a=1&%=2", "query: is not percent-encoded UTF-8"), ("a=1&b=2&a=1", "a: occurs twice"),
            ("a=1&%61=2", "a: occurs twice"), ("a&a", "a: occurs twice"),
        ])
    func faults(_ text: String, _ reason: String) {
        #expect {
            try RequestQuery(text)
        } throws: { error in
            (error as? QueryFault)?.description == reason
        }
    }

    @Test("refuses more than 64 combining marks in a row, encoded or not", arguments: ["%CC%80", "\u{300}"])
    func marks(_ mark: String) throws {
        let most = String(repeating: mark, count: 64)
        #expect(try RequestQuery("a=b\(most)&c\(most)").fields.map(\.value.unicodeScalars.count) == [65, 0])
        for (text, name) in [("a=b\(most)\(mark)", "a"), ("x=1&b\(most)\(mark)=1", "query")] {
            for ignoresCase in [false, true] {
                #expect {
                    try RequestQuery(text, ignoresCase: ignoresCase)
                } throws: { error in
                    (error as? QueryFault)?.description == "\(name): has more than 64 combining marks in a row"
                }
            }
        }
        // A mark does not hide the ends of a field.
        #expect(try RequestQuery("a=\(mark)&\(mark)b=1").fields.map(\.value.unicodeScalars.count) == [1, 1])
    }

    @Test("treats two cases of a name as a repeat when case is ignored")
    func letterCase() throws {
        let query = try RequestQuery(target: "/hub?ID=a?b&Access_Token=T", ignoresCase: true)
        #expect(query["id"] == "a?b")
        #expect(query["access_token"] == "T")
        #expect(query["x"] == nil)
        #expect(throws: QueryFault.self) { try RequestQuery("ID=1&id=2", ignoresCase: true) }
        #expect(try RequestQuery(target: "/hub").fields.isEmpty)
    }

    @Test("returns all values of a repeated name where repeats are allowed, decoded as strictly")
    func repeats() throws {
        #expect(try RequestQuery.fields("a=1&a=2") == [Field("a", "1"), Field("a", "2")])
        #expect(throws: QueryFault.self) { try RequestQuery.fields("a=1&a=%zz") }
    }

    @Test("names a long parameter by its beginning")
    func longNames() {
        let name = String(repeating: "n", count: 5_000)
        #expect {
            try RequestQuery("\(name)=%")
        } throws: { error in
            (error as? QueryFault)?.name.count == 64
        }
    }
}
