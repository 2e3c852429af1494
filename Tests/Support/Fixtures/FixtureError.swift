// Carillon · FixtureError.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a test's surroundings could not be had.
package struct FixtureError: Error, Sendable, CustomStringConvertible {
    package let message: String
    /// File and line of who asked.
    package let place: String

    package init(_ message: String, file: StaticString = #fileID, line: UInt = #line) {
        self.message = message
        self.place = "\(file):\(line)"
    }

    package var description: String { "\(self.message) (\(self.place))" }
}
