// Carillon · PageQueryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Testing

@testable import HTTP

@Suite("Pages by number", .timeLimit(.minutes(10)))
struct PageQueryTests {
    @Test(
        "Offset and limit",
        arguments: [
            ("", PageQuery(offset: 0, limit: 20, unreadOnly: false)),
            ("offset=40&limit=5&unread_only=true", PageQuery(offset: 40, limit: 5, unreadOnly: true)),
            ("limit=1000&unread_only=0", PageQuery(offset: 0, limit: 100, unreadOnly: false)),
            ("offset=10000", PageQuery(offset: 10_000, limit: 20, unreadOnly: false)),
        ]
    )
    func byOffset(query: String, expected: PageQuery) throws {
        #expect(try PageQuery.byOffset(RequestQuery(query)) == expected)
    }

    @Test(
        "Page and page size: what is out of bounds is brought back, as the old service did it",
        arguments: [
            ("", PageQuery(offset: 0, limit: 20, unreadOnly: false)),
            ("page=3&pageSize=10&unreadOnly=True", PageQuery(offset: 20, limit: 10, unreadOnly: true)),
            ("page=0&pageSize=500", PageQuery(offset: 0, limit: 50, unreadOnly: false)),
            ("page=201&pageSize=50", PageQuery(offset: 10_000, limit: 50, unreadOnly: false)),
        ]
    )
    func byPage(query: String, expected: PageQuery) throws {
        #expect(try PageQuery.byPage(RequestQuery(query)) == expected)
    }

    @Test(
        "Faults name the parameter",
        arguments: [
            ("offset=-1", ["offset"]), ("offset=x&limit=0", ["offset", "limit"]), ("offset=10001", ["offset"]),
            ("unread_only=maybe", ["unread_only"]),
        ]
    )
    func offsetFaults(query: String, fields: [String]) {
        #expect(Self.faults { try PageQuery.byOffset(RequestQuery(query)) } == fields)
    }

    @Test(
        "Faults name the parameter",
        arguments: [
            ("page=x", ["page"]), ("page=202&pageSize=50", ["page"]), ("page=9223372036854775807", ["page"]),
            ("pageSize=0", ["pageSize"]), ("unreadOnly=maybe", ["unreadOnly"]),
        ]
    )
    func pageFaults(query: String, fields: [String]) {
        #expect(Self.faults { try PageQuery.byPage(RequestQuery(query)) } == fields)
    }

    private static func faults(_ body: () throws -> PageQuery) -> [String]? {
        do {
            _ = try body()
            return nil
        } catch {
            return (error as? Problem)?.faults.map(\.field)
        }
    }
}
