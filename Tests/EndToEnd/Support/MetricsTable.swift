// Carillon · MetricsTable.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support

/// The table of metrics in `docs/monitoring.md`.
struct MetricsTable {
    /// A documented or exposed metric.
    struct Row: Equatable {
        let kind: String
        let labels: Set<String>
        let help: String
    }

    /// This file is in Tests/EndToEnd/Support, four levels below the checkout.
    static let checkout = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../..").standardized

    /// Rows by service, then by metric name; a metric of both services is in both.
    let rows: [String: [String: Row]]

    init() throws {
        let lines = try Self.text("docs/monitoring.md").split(separator: "\n")
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

    static func text(_ path: String) throws -> String {
        try String(contentsOf: Self.checkout.appendingPathComponent(path), encoding: .utf8)
    }
}
