// Carillon · SummaryTextTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Testing

@testable import Pipeline

@Suite("Summary texts", .timeLimit(.minutes(10)))
struct SummaryTextTests {
    private static func catalog(_ body: String) throws -> Catalog {
        try CatalogParser.parse([
            (
                "c.yaml",
                """
                types:
                  reply:
                    digest: {window: 1h}
                    summary:
                      en: {title: "{{count}} replies", body: "\(body)"}
                """
            )
        ])
    }

    /// Three lines, of which the second has no data.
    private static let lines = (1...3).map { number in
        DigestStore.Line(
            id: NotificationID(high: 1, low: UInt64(number)), title: "t\(number)", body: "b\(number)",
            data: number == 2 ? nil : Array(#"{"post":"p\#(number)"}"#.utf8))
    }

    private static func text(_ body: String) throws -> SummaryText {
        SummaryText(count: 3, lines: Self.lines, type: "reply", catalog: try self.catalog(body), locale: nil)
    }

    @Test("shows fields that every item has")
    func complete() throws {
        let text = try Self.text("{{#items}}{{title}};{{/items}}")
        #expect(text.title == "3 replies")
        #expect(text.body == "t1;t2;t3;")
        #expect(text.fault == nil)
    }

    @Test("leaves out an item that lacks a field and names the field")
    func incomplete() throws {
        let text = try Self.text("{{#items}}{{data.post}};{{/items}}")
        #expect(text.title == "3 replies")
        #expect(text.body == "p1;p3;")
        #expect(text.fault?.field.contains("data.post") == true)
    }

    @Test(
        "falls back to the plain text when no item has the field",
        arguments: ["{{#items}}{{data.none}}{{/items}}", "{{total}}"])
    func plain(body: String) throws {
        let text = try Self.text(body)
        #expect(text.title == "3 notifications")
        #expect(text.body == "t1\nt2\nt3")
        #expect(text.fault != nil)
    }
}
