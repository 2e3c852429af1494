// Carillon · SystemZones.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials

/// The machine's zone files, for tests of Core, which reads no files.
package struct SystemZones: Sendable {
    private let folder = ProcessInfo.processInfo.environment["TZDIR"] ?? "/usr/share/zoneinfo"

    package init() {}

    /// Returns the rules of a zone; nil if unknown.
    package func rules(_ name: String) -> ZoneRules? {
        FileManager.default.contents(atPath: "\(self.folder)/\(name)").flatMap { try? ZoneRules(Array($0)) }
    }
}
