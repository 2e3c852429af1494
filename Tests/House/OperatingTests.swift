// Carillon · OperatingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@Suite("Monitoring reference", .timeLimit(.minutes(10)))
struct OperatingTests {
    /// Names in the first column of the table below a heading, without labels in braces.
    private static func names(below heading: String) throws -> [String] {
        let lines = try House.text("docs/monitoring.md").split(separator: "\n", omittingEmptySubsequences: false)
        let start = try #require(lines.firstIndex { $0 == heading })
        let section = lines[(start + 1)...].prefix { !$0.hasPrefix("## ") }
        return section.compactMap { $0.prefixMatch(of: #/\| `([^`{]+)(?:\{[^`]*)?`/#).map { String($0.output.1) } }
    }

    /// All matches of a pattern in the sources, with the files that contain them.
    private static func found(_ pattern: Regex<(Substring, Substring)>) throws -> [String: Set<String>] {
        var found: [String: Set<String>] = [:]
        for file in try House.swiftFiles(in: "Sources") {
            for match in try House.text(file).matches(of: pattern) {
                found[String(match.output.1), default: []].insert(file)
            }
        }
        return found
    }

    @Test("docs/monitoring.md lists the metrics that the sources create, and no others")
    func metrics() throws {
        let listed = try Self.names(below: "## Metrics")
        #expect(listed.count > 80)
        #expect(Set(listed).count == listed.count, "a metric is listed twice")
        // `label: "carillon.…"` names a metric or a logger.
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
        #expect(made.subtracting(ours).isEmpty, "add these to docs/monitoring.md")
        #expect(ours.subtracting(streams).subtracting(made).isEmpty, "no source creates these")
    }

    @Test("docs/monitoring.md lists the keys that log lines use, and no others")
    func logKeys() throws {
        let listed = try Self.names(below: "## Logs")
        #expect(Set(listed).count == listed.count, "a key is listed twice")
        var keys = Set(try Self.found(#/"([a-z][a-z_.]*)": "\\\(/#).keys)
        keys.formUnion(try Self.found(#/etadata\["([a-z_.]+)"\]/#).keys)
        keys.formUnion(try Self.found(#/metadataKey: "([a-z_.]+)"/#).keys)
        keys.formUnion(try Self.found(#/key: "([a-z_.]+)", name: /#).keys)
        // Keys that every log line has.
        keys.formUnion(["at", "level", "logger", "message"])
        #expect(keys.subtracting(listed).isEmpty, "add these to docs/monitoring.md")
        #expect(Set(listed).subtracting(keys).isEmpty, "no log line uses these")
    }
}
