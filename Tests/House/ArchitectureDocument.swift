// Carillon · ArchitectureDocument.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

/// The modules and their imports as `docs/architecture.md` lists them.
struct ArchitectureDocument {
    struct Entry {
        let name: String
        let arrows: [String]
        /// The description on the line below.
        let holds: String
    }

    let entries: [Entry]

    init() throws {
        let lines = try House.text("docs/architecture.md").split(separator: "\n", omittingEmptySubsequences: false)
        let first = try #require(lines.firstIndex(of: "## Modules"))
        var entries: [Entry] = []
        for (index, line) in lines.enumerated() where index > first {
            guard let match = line.wholeMatch(of: #/- (\w+)(?: → (.+))?/#) else { continue }
            let arrows = match.output.2?.split(separator: ", ").map { String($0) } ?? []
            let below = index + 1 < lines.count ? lines[index + 1] : ""
            let holds = below.hasPrefix("  ") ? String(below.drop { $0 == " " }) : ""
            entries.append(Entry(name: String(match.output.1), arrows: arrows, holds: holds))
        }
        self.entries = entries
    }
}
