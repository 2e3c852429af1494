// Carillon · OperatingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

/// What operators' tools go by is written down: the metrics and the keys of log lines.
@Suite("docs/monitoring.md", .timeLimit(.minutes(10)))
struct OperatingTests {
    /// The names in the first column of the table below a heading; braces and what is in them are left out.
    private static func names(below heading: String) throws -> [String] {
        let lines = try House.text("docs/monitoring.md").split(separator: "\n", omittingEmptySubsequences: false)
        let start = try #require(lines.firstIndex { $0 == heading })
        let section = lines[(start + 1)...].prefix { !$0.hasPrefix("## ") }
        return section.compactMap { $0.prefixMatch(of: #/\| `([^`{]+)(?:\{[^`]*)?`/#).map { String($0.output.1) } }
    }

    /// What a pattern finds in all sources, with the files that have it.
    private static func found(_ pattern: Regex<(Substring, Substring)>) throws -> [String: Set<String>] {
        var found: [String: Set<String>] = [:]
        for file in try House.swiftFiles(in: "Sources") {
            for match in try House.text(file).matches(of: pattern) {
                found[String(match.output.1), default: []].insert(file)
            }
        }
        return found
    }

    @Test("Every metric that the sources make stands in the table, and the other way round")
    func metrics() throws {
        let listed = try Self.names(below: "## Metrics")
        #expect(listed.count > 80)
        #expect(Set(listed).count == listed.count, "a metric is listed twice")
        // `label: "carillon.…"` is a metric's or a logger's.
        let labels = try Self.found(#/(?:label: |counter\(\s*)"(carillon\.[a-z_.]+)"/#).filter { label, files in
            try files.contains { file in
                try !House.text(file).contains("ogger(label: \"\(label)\"")
            }
        }
        let prefixed = try Self.found(#/"(carillon\.[a-z_.]+\.)" \+ name/#).keys
        var made: Set<String> = []
        for label in labels.keys where !prefixed.contains(label) {
            made.insert(String(label.map { $0 == "." ? "_" : $0 }))
        }
        let ours = Set(listed.filter { $0.hasPrefix("carillon_") })
        let streams = ours.filter { $0.hasPrefix("carillon_stream_") }
        #expect(prefixed.sorted() == ["carillon.stream."] && streams.count == 5)
        #expect(made.subtracting(ours).isEmpty, "write these into docs/monitoring.md")
        #expect(ours.subtracting(streams).subtracting(made).isEmpty, "nobody makes these")
    }

    @Test("Every key of a log line stands in the table, and the other way round")
    func logKeys() throws {
        let listed = try Self.names(below: "## Logs")
        #expect(Set(listed).count == listed.count, "a key is listed twice")
        var keys = Set(try Self.found(#/"([a-z][a-z_.]*)": "\\\(/#).keys)
        keys.formUnion(try Self.found(#/etadata\["([a-z_.]+)"\]/#).keys)
        keys.formUnion(try Self.found(#/metadataKey: "([a-z_.]+)"/#).keys)
        keys.formUnion(try Self.found(#/key: "([a-z_.]+)", name: /#).keys)
        // Those of each line.
        keys.formUnion(["at", "level", "logger", "message"])
        #expect(keys.subtracting(listed).isEmpty, "write these into docs/monitoring.md")
        #expect(Set(listed).subtracting(keys).isEmpty, "nobody writes these")
    }
}
