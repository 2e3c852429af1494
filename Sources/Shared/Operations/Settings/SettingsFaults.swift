// Carillon · SettingsFaults.swift
// SPDX-License-Identifier: Apache-2.0

/// Everything that is wrong with a configuration.
///
/// Names variables and what they expect, never their values.
package struct SettingsFaults: Error, Sendable, Equatable, CustomStringConvertible {
    /// What a process exits with when its configuration is faulty (`EX_CONFIG` of sysexits.h).
    package static let exitCode: Int32 = 78

    package let faults: [String]

    package var description: String {
        "the configuration has \(self.faults.count == 1 ? "a fault" : "\(self.faults.count) faults"):\n"
            + self.faults.map { "  \($0)" }.joined(separator: "\n")
    }
}
