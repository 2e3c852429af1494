// Carillon · MetricsText.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

/// A parsed page of the Prometheus text format.
struct MetricsText {
    /// Metrics by name, with all labels that occur except `le`.
    private(set) var families: [String: MetricsTable.Row] = [:]
    /// Samples by name and labels, as written.
    private(set) var samples: [String: Double] = [:]

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
