// Carillon · Metrics.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import Support
import Testing

/// The table of metrics in `docs/monitoring.md`.
struct MetricsTable {
    /// A documented or exposed metric.
    struct Row: Equatable {
        let kind: String
        let labels: Set<String>
        let help: String
    }

    /// Rows by service, then by metric name; a metric of both services is in both.
    let rows: [String: [String: Row]]

    init() throws {
        let lines = try Stack.text("docs/monitoring.md").split(separator: "\n")
        let section = lines.drop { $0 != "## Metrics" }.dropFirst().prefix { !$0.hasPrefix("## ") }
        let pattern = #/^\| `(\w+)(?:\{([\w,]+)\})?` \| (gateway|dispatcher|both) \| (\w+) \| (.+) \|$/#
        var rows: [String: [String: Row]] = ["gateway": [:], "dispatcher": [:]]
        for line in section {
            guard let (_, name, labels, service, kind, meaning) = line.wholeMatch(of: pattern)?.output else { continue }
            let row = Row(
                kind: String(kind),
                labels: Set((labels ?? "").split(separator: ",").map { String($0) }),
                help: String(meaning.filter { $0 != "`" })
            )
            for one in service == "both" ? ["gateway", "dispatcher"] : [String(service)] {
                guard rows[one]?.updateValue(row, forKey: String(name)) == nil else {
                    throw FixtureError("\(name) is listed twice")
                }
            }
        }
        self.rows = rows
    }

    /// All metric names, with the series of histograms.
    var names: Set<String> {
        var names: Set<String> = []
        for (name, row) in self.rows.values.joined() {
            names.insert(name)
            guard row.kind == "histogram" else { continue }
            for part in ["_bucket", "_sum", "_count"] { names.insert(name + part) }
        }
        return names
    }
}

/// A parsed page of the Prometheus text format.
struct MetricsText {
    /// Metrics by name, with all labels that occur except `le`.
    private(set) var families: [String: MetricsTable.Row] = [:]
    /// Samples by name and labels, as written.
    private(set) var samples: [String: Double] = [:]

    /// Reads a service's page.
    static func page(_ url: String, _ stack: Stack) async throws -> MetricsText {
        let response = try await stack.http.answer(
            .init(.get, url: url, timeout: longestWait, maximumResponseBytes: 1_048_576), to: url)
        #expect(response.status == 200)
        return try MetricsText(String(decoding: response.body, as: UTF8.self))
    }

    init(_ text: String) throws {
        var help: [String: String] = [:]
        var kinds: [String: String] = [:]
        var labels: [String: Set<String>] = [:]
        for line in text.split(separator: "\n") {
            if let (_, name, said) = line.wholeMatch(of: #/# HELP (\w+) (.+)/#)?.output {
                let before = help.updateValue(String(said), forKey: String(name))
                #expect(before == nil, "\(name) has two HELP lines")
            } else if let (_, name, kind) = line.wholeMatch(of: #/# TYPE (\w+) (\w+)/#)?.output {
                let before = kinds.updateValue(String(kind), forKey: String(name))
                #expect(before == nil, "\(name) has two TYPE lines")
            } else {
                let (_, name, parts, value) = try #require(
                    line.wholeMatch(of: #/(\w+)(?:\{(.*)\})? (-?[0-9.e+-]+)/#)?.output, "\(line)")
                self.samples[String(line[..<value.startIndex].dropLast())] = Double(value)
                var family = String(name)
                for part in ["_bucket", "_sum", "_count"] where kinds[family] == nil && family.hasSuffix(part) {
                    family.removeLast(part.count)
                }
                #expect(kinds[family] != nil, "\(name) has no TYPE line above it")
                for (_, label) in (parts ?? "").matches(of: #/(\w+)="/#).map(\.output) where label != "le" {
                    labels[family, default: []].insert(String(label))
                }
            }
        }
        for (name, kind) in kinds {
            self.families[name] = .init(kind: kind, labels: labels[name] ?? [], help: help[name] ?? "")
        }
    }
}
