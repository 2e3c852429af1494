// Carillon · TopicTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Topics of the catalog", .timeLimit(.minutes(10)))
struct TopicTests {
    private static let text = """
        topics:
          news: {open: true}
          "team/*": {open: true}
          "team/*/secret": {}
          team/board: {open: false}
          "*x*y": {open: true}
        """

    @Test(
        "an exact name decides first, then the longest pattern; what no rule names is closed",
        arguments: [
            ("news", true), ("news2", false), ("new", false), ("", false), ("team/", true), ("team/blue", true),
            ("team/blue/green", true), ("team/blue/secret", false), ("team/board", false), ("team", false),
            ("xy", true), ("axxbyy", true), ("axbyc", false), ("yx", false),
        ]
    )
    func open(topic: String, isOpen: Bool) throws {
        let catalog = try CatalogLoader.parse([("c.yaml", Self.text)])
        #expect(catalog.isOpen(topic: topic) == isOpen)
    }

    @Test(
        "faults are named with file and line",
        arguments: [
            ("topics: 5", "c.yaml:1: expected `topics:` with an entry for each topic"),
            ("topics:\n  a: 5", "c.yaml:2: topic a: expected settings"),
            ("topics:\n  a: {open: maybe}", "c.yaml:2: topic a: open must be true or false"),
            ("topics:\n  a: {colour: red}", "c.yaml:2: topic a: unknown setting colour"),
        ]
    )
    func faults(text: String, fault: String) {
        #expect(throws: CatalogFaults([CatalogFault(fault)])) { try CatalogLoader.parse([("c.yaml", text)]) }
    }

    @Test("a topic that two files define is a fault; a file may hold topics alone")
    func files() throws {
        #expect(throws: CatalogFaults([CatalogFault("topic a is defined twice")])) {
            try Catalog([], topics: [TopicRule(pattern: "a"), TopicRule(pattern: "a")])
        }
        #expect(try CatalogLoader.parse([("c.yaml", "topics: {}")]).all.isEmpty)
    }
}
