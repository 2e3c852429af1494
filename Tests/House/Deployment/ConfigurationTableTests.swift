// Carillon · ConfigurationTableTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Testing

@Suite("Configuration reference", .timeLimit(.minutes(10)))
struct ConfigurationTableTests {
    @Test("docs/configuration.md lists the variables that the settings read, and no others")
    func table() throws {
        let text = try Deployment.text("docs/configuration.md")
        var listed: Set<String> = []
        for line in text.split(separator: "\n") where line.hasPrefix("| `") {
            let column = line.split(separator: "|")[0]
            for match in column.matches(of: #/`([A-Z0-9_]+)`/#) { listed.insert(String(match.output.1)) }
        }
        let known = try Deployment.knownVariables()
        #expect(known.count > 50)
        #expect(known.subtracting(listed).isEmpty, "add these to docs/configuration.md")
        #expect(listed.subtracting(known).isEmpty, "no setting reads these")
    }
}
