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
